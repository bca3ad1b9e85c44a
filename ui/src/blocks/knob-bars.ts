// The measured step and the predicted one as bars of their lines on one axis of time, with the interval of the latter.

import { fromZero, ticks } from "../axes";
import { paintOf } from "../colours";
import { s } from "../dom";
import type { Before } from "./knob-answer";
import type { Setting } from "../types";
import { formatNs } from "../units";

const BAR = 26;
const GAP = 20;
const MOST_TICKS = 5;

export function stepBars(before: Before, setting: Setting | null): Element {
  const longest = Math.max(before.ns, setting?.high_ns ?? 0, setting?.predicted_ns ?? 0);
  const place = (ns: number): string => `${((100 * ns) / longest).toFixed(3)}%`;
  const predicted = setting ? [bar("predicted", "predicted", setting.lines, 1, place), interval(setting, place)] : [];
  const said = setting
    ? `${before.name} ${formatNs(before.ns)}, predicted ${formatNs(setting.predicted_ns!)}`
    : `${before.name} ${formatNs(before.ns)}`;
  return s(
    "svg",
    { class: "bars", role: "img", "aria-label": `${said}; the table below lists the ledger lines.`, height: top(2) + 22 },
    ...axis(longest, place),
    bar("measured", before.name, before.lines, 0, place),
    ...predicted,
  );
}

function top(row: number): number {
  return row * (BAR + GAP) + GAP;
}

function bar(
  kind: string,
  name: string,
  lines: [string, number][],
  row: number,
  place: (ns: number) => string,
): Element {
  let from = 0;
  const parts = lines.map(([line, ns]) => {
    const title = s("title", {}, `${line}: ${formatNs(ns)}`);
    const box = { x: place(from), y: top(row), width: place(ns), height: BAR, fill: paintOf(line), "data-line": line };
    from += ns;
    return s("rect", box, title);
  });
  return s("g", { class: kind }, s("text", { x: 0, y: top(row) - 6 }, name), ...parts);
}

/** The 90% interval of the predicted step. */
function interval(setting: Setting, place: (ns: number) => string): Element {
  const y = top(1) + BAR / 2;
  const [low, high] = [place(setting.low_ns!), place(setting.high_ns!)];
  const title = `90% interval: ${formatNs(setting.low_ns!)} to ${formatNs(setting.high_ns!)}`;
  const ends = [low, high].map((x) => s("line", { x1: x, x2: x, y1: y - 6, y2: y + 6 }));
  const line = s("line", { x1: low, x2: high, y1: y, y2: y });
  const halo = s("g", { class: "halo" }, line.cloneNode(), ...ends.map((end) => end.cloneNode()));
  return s("g", { class: "interval" }, s("title", {}, title), halo, line, ...ends);
}

function axis(longest: number, place: (ns: number) => string): Element[] {
  const bottom = top(2) - GAP + 4;
  return ticks(fromZero("ns", "", longest), MOST_TICKS).flatMap(({ value, label }) => {
    const anchor = value === 0 ? "start" : value > 0.93 * longest ? "end" : "middle";
    return [
      s("line", { class: "grid", x1: place(value), x2: place(value), y1: 0, y2: bottom }),
      s("text", { class: "tick", x: place(value), y: bottom + 14, "text-anchor": anchor }, label),
    ];
  });
}

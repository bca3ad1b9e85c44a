// The measured step as a bar of its lines, and above it the predicted one as its ghost, with its interval, on one axis of time.

import { fromZero, ticks } from "../axes";
import { paintOf } from "../colours";
import { s } from "../dom";
import type { Before } from "./knob-answer";
import type { Setting } from "../types";
import { formatNs } from "../units";
import { stepInterval } from "../predictions";

const BAR = 20;
const GAP = 18;
const AXIS = 20;
const MOST_TICKS = 5;

type Place = (ns: number) => string;

export function stepBars(before: Before, setting: Setting | null): Element {
  const ends = setting && intervalOf(before, setting);
  const longest = Math.max(before.ns, ends?.high ?? 0, setting?.predicted_ns ?? 0);
  const place: Place = (ns) => `${((100 * ns) / longest).toFixed(3)}%`;
  const rows = setting ? 2 : 1;
  const predicted = setting && ends ? [bar("predicted", "predicted", setting.lines, top(0), place), interval(ends, place)] : [];
  const measured = `${before.name} ${formatNs(before.ns)}`;
  const said = setting ? `${measured}, predicted ${formatNs(setting.predicted_ns!)}` : measured;
  return s(
    "svg",
    { class: "bars", role: "img", "aria-label": `${said}; the table below lists the ledger lines.`, height: top(rows) - GAP + AXIS },
    ...axis(longest, place, top(rows) - GAP + 4),
    ...predicted,
    bar("measured", before.name, before.lines, top(rows - 1), place),
  );
}

function top(row: number): number {
  return row * (BAR + GAP) + GAP;
}

function bar(kind: string, name: string, lines: [string, number][], y: number, place: Place): Element {
  let from = 0;
  const parts = lines.map(([line, ns]) => {
    const box = { x: place(from), y, width: place(ns), height: BAR, fill: paintOf(line), "data-line": line };
    from += ns;
    return s("rect", box, s("title", {}, `${line}: ${formatNs(ns)}`));
  });
  const outline = s("rect", { class: "outline", x: 0, y, width: place(from), height: BAR });
  return s("g", { class: kind }, s("text", { x: 0, y: y - 5 }, name), ...parts, outline);
}

/** The range of the predicted step. */
export function intervalOf(before: Before, { gain_interval: gain, low_ns, high_ns }: Setting): { low: number; high: number } {
  return gain ? stepInterval(before.ns, gain) : { low: low_ns!, high: high_ns! };
}

function interval(of: { low: number; high: number }, place: Place): Element {
  const y = top(0) + BAR / 2;
  const [low, high] = [place(of.low), place(of.high)];
  const title = `range: ${formatNs(of.low)} to ${formatNs(of.high)}`;
  const ends = [low, high].map((x) => s("line", { x1: x, x2: x, y1: y - 6, y2: y + 6 }));
  const line = s("line", { x1: low, x2: high, y1: y, y2: y });
  const halo = s("g", { class: "halo" }, line.cloneNode(), ...ends.map((end) => end.cloneNode()));
  return s("g", { class: "interval" }, s("title", {}, title), halo, line, ...ends);
}

function axis(longest: number, place: Place, bottom: number): Element[] {
  return ticks(fromZero("ns", "", longest), MOST_TICKS).flatMap(({ value, label }) => {
    const anchor = value === 0 ? "start" : value > 0.93 * longest ? "end" : "middle";
    return [
      s("line", { class: "grid", x1: place(value), x2: place(value), y1: 0, y2: bottom }),
      s("text", { class: "tick", x: place(value), y: bottom + 12, "text-anchor": anchor }, label),
    ];
  });
}

// What a plot shades and marks along its x axis, and how its legend names it.

import { h, s } from "../dom";
import { widthOf } from "../fitting";
import { xOf } from "../grid";
import type { Frame } from "../grid";
import type { Plot } from "../types";

/** That of chart.css. */
const FONT = "12px system-ui, sans-serif";
const APART = 4;
/** Pixels; a narrower band could not be seen. */
const NARROWEST = 2;

/** Shaded ranges, cut at the edges of the frame. */
export function drawBands(block: Plot, frame: Frame): SVGElement {
  const { left, top, width, height } = frame;
  const inside = (x: number): number => Math.max(left, Math.min(left + width, x));
  const rects = (block.bands ?? []).flatMap(({ name, start, stop }) => {
    const [from, to] = [xOf(frame, start), xOf(frame, stop)];
    if (to < left || from > left + width) return [];
    const wide = Math.max(NARROWEST, inside(to) - inside(from));
    return [s("rect", { class: "band", x: inside(from), y: top, width: wide, height }, s("title", {}, name))];
  });
  return s("g", {}, ...rects);
}

/** Vertical lines with their names; a name that would come over another line is left out. */
export function drawMarks(block: Plot, frame: Frame): SVGElement {
  const { left, top, width, height } = frame;
  const places = (block.marks ?? []).map(({ name, at }) => ({ name, x: xOf(frame, at) }));
  const shown = places.filter(({ x }) => x >= left && x <= left + width).sort((one, other) => one.x - other.x);
  const lines = shown.flatMap(({ name, x }, place) => {
    const line = s("path", { class: "mark", d: `M${x} ${top}v${height}` }, s("title", {}, name));
    const room = widthOf(name, FONT) + 2 * APART;
    const next = shown[place + 1]?.x ?? left + width;
    return x + room > next ? [line] : [line, s("text", { x: x + APART, y: top + 12 }, name)];
  });
  return s("g", { class: "marked" }, ...lines);
}

/** Names of the shaded ranges, each once. */
export function bandLegend(block: Plot): HTMLElement[] {
  const names = [...new Set((block.bands ?? []).map(({ name }) => name))];
  return names.map((name) =>
    h(
      "li",
      { class: "shaded" },
      s("svg", { width: 22, height: 12, "aria-hidden": "true" }, s("rect", { class: "band", width: 22, height: 12 })),
      name,
    ),
  );
}

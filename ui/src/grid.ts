// The frame that charts are drawn in: lines and labels of both axes, in SVG.

import { placeOn, ticks } from "./axes";
import { s } from "./dom";
import type { Axis } from "./axes";

export interface Frame {
  across: Axis;
  up: Axis;
  left: number;
  top: number;
  width: number;
  height: number;
}

const X_ROOM = 72;
const Y_ROOM = 32;
/** As wide as a letter gets; labels that would touch are left out. */
const LETTER = 7;

export const LEFT = 66;
export const TOP = 26;
export const BOTTOM = 42;
export const RIGHT = 16;

export function frameOf(across: Axis, up: Axis, width: number, height: number): Frame {
  const tall = Math.max(40, height - TOP - BOTTOM);
  // A label that is cut at its beginning is another number.
  const longest = Math.max(...ticks(up, Math.max(3, Math.floor(tall / Y_ROOM))).map(({ label }) => label.length));
  const left = Math.max(LEFT, LETTER * longest + 10);
  return { across, up, left, top: TOP, width: Math.max(40, width - left - RIGHT), height: tall };
}

export function xOf(frame: Frame, value: number): number {
  return frame.left + placeOn(frame.across, value) * frame.width;
}

export function yOf(frame: Frame, value: number): number {
  return frame.top + (1 - placeOn(frame.up, value)) * frame.height;
}

export function grid(frame: Frame): SVGElement {
  const { left, top, width, height } = frame;
  const bottom = top + height;
  const rows = ticks(frame.up, Math.max(3, Math.floor(height / Y_ROOM))).flatMap(({ value, label }) => {
    const y = yOf(frame, value);
    return [
      s("path", { class: "grid", d: `M${left} ${y}h${width}` }),
      s("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, label),
    ];
  });
  let free = -Infinity;
  const columns = ticks(frame.across, Math.max(2, Math.floor(width / X_ROOM))).flatMap(({ value, label }) => {
    const x = xOf(frame, value);
    const half = (LETTER * label.length) / 2;
    const line = s("path", { class: "grid", d: `M${x} ${top}v${height}` });
    if (x - half < free) return [line];
    free = x + half + LETTER;
    return [line, s("text", { x, y: bottom + 17, "text-anchor": "middle" }, label)];
  });
  return s(
    "g",
    { class: "axes" },
    ...rows,
    ...columns,
    s("path", { class: "frame", d: `M${left} ${top}V${bottom}H${left + width}` }),
    s("text", { class: "axis", x: 2, y: 13 }, frame.up.title),
    s("text", { class: "axis", x: left + width, y: bottom + 35, "text-anchor": "end" }, frame.across.title),
  );
}

// The frame that charts are drawn in: lines and labels of both axes, in SVG.

import { ticks } from "./axes";
import { s } from "./dom";
import { widthOf } from "./fitting";
import type { Axis, Tick } from "./axes";

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
/** That of chart.css. */
const FONT = "12px system-ui, sans-serif";
/** Labels of an axis that would come closer to each other are left out. */
const BETWEEN = 7;

const LEAST_LEFT = 66;
const TOP = 26;
const BOTTOM = 42;
const RIGHT = 16;
/** Between a label and the frame. */
const APART = 8;

export function frameOf(across: Axis, up: Axis, width: number, height: number): Frame {
  const inside = Math.max(40, height - TOP - BOTTOM);
  const widest = Math.max(0, ...rungs(up, inside).map(({ label }) => widthOf(label, FONT)));
  const left = Math.max(LEAST_LEFT, Math.ceil(widest) + APART + 4);
  return { across, up, left, top: TOP, width: Math.max(40, width - left - RIGHT), height: inside };
}

/** Of a whole chart: the frame with the labels around it. */
export function sizeOf(frame: Frame): { width: number; height: number; viewBox: string } {
  const [width, height] = [frame.left + frame.width + RIGHT, frame.top + frame.height + BOTTOM];
  return { width, height, viewBox: `0 0 ${width} ${height}` };
}

function rungs(up: Axis, height: number): Tick[] {
  return ticks(up, Math.max(3, Math.floor(height / Y_ROOM)));
}

export function xOf(frame: Frame, value: number): number {
  return frame.left + frame.across.place(value) * frame.width;
}

export function yOf(frame: Frame, value: number): number {
  return frame.top + (1 - frame.up.place(value)) * frame.height;
}

export function grid(frame: Frame): SVGElement {
  const { left, top, width, height } = frame;
  const bottom = top + height;
  const rows = rungs(frame.up, height).flatMap(({ value, label }) => {
    const y = yOf(frame, value);
    return [
      s("path", { class: "grid", d: `M${left} ${y}h${width}` }),
      s("text", { x: left - APART, y: y + 4, "text-anchor": "end" }, label),
    ];
  });
  let free = -Infinity;
  const columns = ticks(frame.across, Math.max(2, Math.floor(width / X_ROOM))).flatMap(({ value, label }) => {
    const x = xOf(frame, value);
    const half = widthOf(label, FONT) / 2;
    const line = s("path", { class: "grid", d: `M${x} ${top}v${height}` });
    // The last one may stand at the very end: it moves in, rather than being cut.
    const middle = Math.min(x, left + width + RIGHT - half - 2);
    if (middle - half < free) return [line];
    free = middle + half + BETWEEN;
    return [line, s("text", { x: middle, y: bottom + 17, "text-anchor": "middle" }, label)];
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

// What stands around and over the rows of a timeline: the axis of time, marks of steps, names of rows, the outline of
// what is selected.

import { between, ticks } from "../axes";
import type { Row } from "./layout";
import { middleCut } from "./names";
import type { Palette } from "./palette";
import type { State, Target } from "./state";

export interface Frame {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  labels: number;
  scroll: number;
  palette: Palette;
}

export const AXIS = 22;
/** Below the rows, for names of marks. */
export const FOOT = 16;
const FONT = "11px system-ui, sans-serif";
const LETTER = 5.9;
const TICK_ROOM = 110;
/** So many are asked for that two are always there. */
const FEWEST_TICKS = 5;

export function axis(frame: Frame, state: State): void {
  const { context, width, height, labels, palette } = frame;
  const { view, model } = state;
  const place = (ns: number): number => Math.round(labels + ((ns - view.start) / view.width) * width) + 0.5;
  context.font = FONT;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.strokeStyle = palette.rule;
  context.fillStyle = palette.muted;
  context.beginPath();
  let room = labels;
  for (const { value, label } of ticks(between("ns", "", view.start, view.stop), Math.max(FEWEST_TICKS, width / TICK_ROOM))) {
    const x = place(value);
    const end = x + 3 + context.measureText(label).width;
    context.moveTo(x, AXIS - 6);
    context.lineTo(x, AXIS);
    if (x < room || end > labels + width) continue;
    context.fillText(label, x + 3, AXIS / 2 - 1);
    room = end;
  }
  context.moveTo(0, AXIS - 0.5);
  context.lineTo(labels + width, AXIS - 0.5);
  context.stroke();
  const shown = model.marks.filter(([, ns]) => ns >= view.start && ns <= view.stop);
  if (shown.length > width / 12) return;
  context.strokeStyle = palette.text;
  context.setLineDash([2, 3]);
  context.beginPath();
  for (const [, ns] of shown) {
    context.moveTo(place(ns), AXIS);
    context.lineTo(place(ns), AXIS + height + FOOT);
  }
  context.stroke();
  context.setLineDash([]);
  let free = labels;
  for (const [number, ns] of shown) free = mark(frame, `${model.marked} ${number}`, place(ns), free);
}

/** Names a mark if there is room from `free` on; where there is room for the next. */
function mark({ context, width: room, height, labels, palette }: Frame, text: string, at: number, free: number): number {
  const width = context.measureText(text).width + 6;
  const x = Math.min(at, labels + room - width);
  if (x < free) return free;
  context.fillStyle = palette.text;
  context.fillRect(x, AXIS + height + 1, width, FOOT - 1);
  context.fillStyle = palette.page;
  context.fillText(text, x + 3, AXIS + height + FOOT / 2 + 1);
  return x + width + 2;
}

export function rowNames(frame: Frame, state: State, rows: Row[], focused: boolean): void {
  const { context, labels, scroll, palette } = frame;
  context.font = FONT;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillStyle = palette.muted;
  if (state.model.marks.length) {
    context.fillStyle = palette.page;
    context.fillRect(0, AXIS + frame.height, labels, FOOT);
    context.fillStyle = palette.muted;
    context.fillText(`${state.model.marked} start`, 5, AXIS + frame.height + FOOT / 2, labels - 8);
  }
  let free = AXIS;
  for (const row of rows) {
    if (row.counter) continue;
    const top = AXIS + state.layout.y(row, scroll);
    const y = top + row.height / 2;
    // Half a name would stand over the rows that stay, or over the names of steps.
    if ((!row.fixed && y < AXIS + state.layout.fixed + 6) || y > AXIS + frame.height - 4) continue;
    const strip = row.level === null;
    const here = strip && row.group === state.cursor && focused;
    if (here) {
      context.fillStyle = palette.accent;
      context.fillRect(0, top, 3, Math.max(3, row.height));
    }
    if (!row.label || y < free + 6) continue;
    context.fillStyle = here || (strip && state.marked.has(row.group)) ? palette.accent : strip ? palette.text : palette.muted;
    context.fillText(cut(context, sign(state, row) + row.label, labels - 8), 5, y);
    free = y + 6;
  }
}

function cut(context: CanvasRenderingContext2D, text: string, room: number): string {
  const letters = Math.floor(room / LETTER);
  if (text.length <= letters || (text.length < 2 * letters && context.measureText(text).width <= room)) return text;
  return middleCut(text, letters);
}

function sign(state: State, row: Row): string {
  if (row.level) return state.model.strips ? " " : "";
  if (!state.isLive && !state.model.groups[row.group]!.lanes.length) return "";
  return state.unfolded.has(row.group) ? "▾ " : "▸ ";
}

export function outline({ context, width, height, labels, scroll, palette }: Frame, state: State): void {
  const target = state.selected;
  const row = target && rowOf(state, target);
  if (!row) return;
  const { view } = state;
  const [start, stop] = edges(state, target);
  const x = labels + Math.max(-4, ((start - view.start) / view.width) * width);
  const end = labels + Math.min(width + 4, ((stop - view.start) / view.width) * width);
  if (end < labels || x > labels + width) return;
  context.save();
  context.beginPath();
  const above = row.fixed ? 0 : state.layout.fixed;
  context.rect(labels, AXIS + above, width, height - above);
  context.clip();
  context.strokeStyle = palette.text;
  context.lineWidth = 2;
  context.strokeRect(x, AXIS + state.layout.y(row, scroll), Math.max(3, end - x), Math.max(4, row.height - 1));
  context.restore();
}

/** Where a target stands, if its row is unfolded. */
export function rowOf(state: State, target: Target): Row | undefined {
  return state.layout.rows.find((row) => row.group === target.group && holds(row, target));
}

function holds(row: Row, target: Target): boolean {
  if (target.item === null || !row.level) return target.item === null && row.level === null && row.counter === null;
  if (row.lane !== target.lane) return false;
  const { item } = row.level;
  let low = 0;
  for (let high = item.length; low < high; ) {
    const middle = (low + high) >>> 1;
    if (item[middle]! < target.item) low = middle + 1;
    else high = middle;
  }
  return item[low] === target.item;
}

/** From when to when something lasts: an event, or the stretch of a strip with one kind. */
export function edges(state: State, target: Target): [number, number] {
  if (target.item !== null) {
    const { items } = target.lane!;
    return [items.start[target.item]!, items.start[target.item]! + items.dur[target.item]!];
  }
  const { strips, span, groups } = state.model;
  if (!strips) return [target.time, target.time];
  const [, first, last] = strips.stretch(groups[target.group]!.strip!, strips.binAt(target.time / span));
  return [(first * span) / strips.bins, (last * span) / strips.bins];
}

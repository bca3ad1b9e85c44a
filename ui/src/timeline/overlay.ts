// What is drawn over the rows: the selected area, the line under the pointer, notes, names of groups of rows, arrows.

import { formatNs } from "../units";
import type { Arrow } from "./arrows";
import { AXIS, type Frame, edges, rowOf } from "./furniture";
import { GHOST, HEADING, LANE_GAP, type Row } from "./layout";
import type { State, Target } from "./state";

const FONT = "11px system-ui, sans-serif";
const HEAD = 6;
const FLAG = 16;
const MOST_WIDE = 280;

export function overlay(frame: Frame, state: State, arrows: Arrow[]): void {
  headings(frame, state);
  ghost(frame, state);
  const { context, width, height, labels } = frame;
  if (state.area) ruled(frame, placeOf(frame, state, state.area.start), placeOf(frame, state, state.area.stop));
  context.save();
  context.beginPath();
  context.rect(labels, AXIS, width, height);
  context.clip();
  area(frame, state);
  for (const arrow of arrows) drawArrow(frame, state, arrow);
  context.restore();
  notes(frame, state);
  pointer(frame, state);
}

function headings({ context, width, labels, scroll, height, palette }: Frame, state: State): void {
  context.font = FONT;
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (const [name, top] of state.layout.headings) {
    const y = AXIS + top - scroll;
    if (y < AXIS + state.layout.fixed - HEADING / 2 || y > AXIS + height) continue;
    context.fillStyle = palette.page;
    context.fillRect(0, y, labels + width, HEADING);
    context.fillStyle = palette.muted;
    context.fillText(name, 5, y + HEADING / 2 + 1);
  }
}

/** The predicted step from the start of the measured one, with its interval. */
function ghost(frame: Frame, state: State): void {
  const { context, labels, width, palette } = frame;
  if (!state.predicted) return;
  const { predicted, low, high } = state.predicted;
  const top = AXIS + 3;
  context.fillStyle = palette.page;
  context.fillRect(0, AXIS, labels + width, GHOST);
  context.font = FONT;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillStyle = palette.good;
  context.fillText("predicted", 5, top + 8);
  context.save();
  context.beginPath();
  context.rect(labels, AXIS, width, GHOST);
  context.clip();
  for (const at of stepsToPredict(state, predicted)) {
    const [x, end, from, to] = [at, at + predicted, at + low, at + high].map((ns) => placeOf(frame, state, ns)) as [number, number, number, number];
    if (to < labels || x > labels + width) continue;
    context.fillStyle = palette.good;
    context.globalAlpha = 0.35;
    context.fillRect(x, top, end - x - 1, 13);
    context.globalAlpha = 1;
    context.fillRect(from, top + 6, Math.max(1, to - from), 1.5);
    const text = `${formatNs(predicted)} if fixed`;
    const left = Math.max(x, labels) + 5;
    if (context.measureText(text).width + 10 < Math.min(from, labels + width) - left) {
      context.fillStyle = palette.text;
      context.fillText(text, left, top + 7);
    }
  }
  context.restore();
}

/** Starts of the step that is selected, or of all that last as long as the predicted one: shorter ones are only in part there. */
function stepsToPredict({ model, area }: State, predicted: number): number[] {
  const starts = model.marks.map(([, at]) => at);
  const end = (place: number): number => starts[place + 1] ?? model.span;
  const chosen = area ? starts.filter((at, place) => at < area.stop && end(place) >= area.stop) : [];
  return chosen.length ? chosen : starts.filter((at, place) => end(place) - at >= predicted);
}

function area(frame: Frame, state: State): void {
  const { context, height, scroll, palette } = frame;
  if (!state.area) return;
  const { start, stop, groups } = state.area;
  const [x, end] = [placeOf(frame, state, start), placeOf(frame, state, stop)];
  const bands = groups.length ? bandsOf(state, groups, scroll) : [[0, height] as const];
  context.strokeStyle = palette.accent;
  context.lineWidth = 1;
  context.beginPath();
  for (const edge of [x, end]) {
    context.moveTo(Math.round(edge) + 0.5, AXIS);
    context.lineTo(Math.round(edge) + 0.5, AXIS + height);
  }
  context.stroke();
  // Only framed, as colours of what is inside have a meaning; with a border, as they may be that of the frame.
  for (const [colour, wide] of [[palette.page, 4], [palette.accent, 2]] as const) {
    context.strokeStyle = colour;
    context.lineWidth = wide;
    for (const [top, bottom] of bands) context.strokeRect(x, AXIS + top, Math.max(2, end - x), bottom - top - 1);
  }
}

/** Tops and bottoms below the axis of what is in sight of the rows of groups, as one where they touch. */
function bandsOf({ layout }: State, groups: readonly number[], scroll: number): [number, number][] {
  const bands: [number, number][] = [];
  for (const row of layout.rows) {
    const last = bands[bands.length - 1];
    const bottom = layout.y(row, scroll) + row.height;
    const top = Math.max(row.fixed ? 0 : layout.fixed, layout.y(row, scroll));
    if (!groups.includes(row.group) || bottom <= top) continue;
    if (last && top - last[1] <= LANE_GAP) last[1] = bottom;
    else bands.push([top, bottom]);
  }
  return bands;
}

/** The time of the selected area, on the axis. */
function ruled({ context, labels, width, palette }: Frame, from: number, to: number): void {
  const [x, end] = [Math.max(labels, from), Math.min(labels + width, to)];
  if (end < labels || x > labels + width) return;
  context.fillStyle = palette.accent;
  context.fillRect(x, AXIS - 5, Math.max(2, end - x), 4);
}

function drawArrow(frame: Frame, state: State, { from, to, kind }: Arrow): void {
  const [start, stop] = [endOf(frame, state, from), endOf(frame, state, to)];
  if (!start || !stop) return;
  const { context, palette } = frame;
  context.strokeStyle = context.fillStyle = kind === "late" ? palette.cause : palette.text;
  context.lineWidth = 1.5;
  const [[x, y], [toX, toY]] = [start, stop];
  const bend = Math.max(14, Math.min(60, Math.abs(toY - y) / 3));
  const way = toX === x ? [x + bend, toX + bend] : [x + (toX - x) / 2, x + (toX - x) / 2];
  context.beginPath();
  context.moveTo(x, y);
  context.bezierCurveTo(way[0]!, y, way[1]!, toY, toX + (toX >= x && toX !== x ? -HEAD : HEAD) , toY);
  context.stroke();
  const side = toX > x ? -1 : 1;
  context.beginPath();
  context.moveTo(toX, toY);
  context.lineTo(toX + side * HEAD, toY - HEAD / 2);
  context.lineTo(toX + side * HEAD, toY + HEAD / 2);
  context.fill();
}

/** Where an arrow begins or ends: the row of an event where that is in sight, else that of its rank. */
function endOf(frame: Frame, state: State, target: Target): [number, number] | null {
  const { layout } = state;
  const middle = (row: Row): number => layout.y(row, frame.scroll) + row.height / 2;
  const isSeen = (row: Row | undefined): boolean => row !== undefined && (row.fixed || middle(row) > layout.fixed);
  const own = rowOf(state, target);
  const row = isSeen(own) ? own : layout.rows.find(({ group }) => group === target.group);
  if (!row) return null;
  const time = target.item === null ? target.time : edges(state, target)[0];
  return [placeOf(frame, state, time), AXIS + middle(row)];
}

function notes(frame: Frame, state: State): void {
  const { context, height, labels, width, palette } = frame;
  context.font = FONT;
  context.textBaseline = "middle";
  let [row, free] = [0, -Infinity];
  for (const [at, text] of [...state.notes].sort(([one], [other]) => one - other)) {
    const x = placeOf(frame, state, at);
    if (x < labels || x > labels + width) continue;
    context.strokeStyle = palette.accent;
    context.setLineDash([4, 2]);
    context.beginPath();
    context.moveTo(x, AXIS);
    context.lineTo(x, AXIS + height);
    context.stroke();
    context.setLineDash([]);
    const wide = Math.min(MOST_WIDE, context.measureText(text).width + 10);
    const left = Math.min(x, labels + width - wide);
    row = left < free ? row + 1 : 0;
    free = left + wide + 2;
    const top = AXIS + height - (row + 1) * (FLAG + 1);
    context.fillStyle = palette.accent;
    context.fillRect(left, top, wide, FLAG);
    context.fillStyle = palette.page;
    context.fillText(text, left + 5, top + FLAG / 2 + 1, wide - 8);
  }
}

function pointer(frame: Frame, state: State): void {
  if (state.pointed === null) return;
  const { context, height, labels, width, palette } = frame;
  const x = Math.round(placeOf(frame, state, state.pointed)) + 0.5;
  if (x < labels || x > labels + width + 1) return;
  context.strokeStyle = palette.muted;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x, AXIS);
  context.lineTo(x, AXIS + height);
  context.stroke();
  const text = formatNs(state.pointed);
  context.font = FONT;
  const wide = context.measureText(text).width + 8;
  const left = Math.min(x + 1, labels + width - wide);
  context.fillStyle = palette.text;
  context.fillRect(left, 0, wide, AXIS - 5);
  context.fillStyle = palette.page;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillText(text, left + 4, (AXIS - 5) / 2 + 1);
}

function placeOf({ labels, width }: Frame, { view }: State, ns: number): number {
  return labels + ((ns - view.start) / view.width) * width;
}

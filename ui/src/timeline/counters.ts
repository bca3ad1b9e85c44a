// Counters of open ranks: filled lines that step from value to value, as high as the largest value of all ranks in sight,
// so that ranks compare.

import { formatNs, formatValue } from "../units";
import { firstOver } from "./columns";
import { AXIS, type Frame } from "./furniture";
import type { Row } from "./layout";
import type { Counter } from "./model";
import type { Painter } from "./paint";
import { rowAt, timeAt } from "./pick";
import type { State } from "./state";
import type { View } from "./view";

const FONT = "11px system-ui, sans-serif";
const INDENT = 12;
const ABOVE = 4;
const UNKNOWN = -1;

export function counters(frame: Frame, state: State, rows: Row[]): void {
  const { context, labels, width, height } = frame;
  const shown = rows.filter((row) => row.counter);
  const names = [...new Set(shown.map((row) => row.counter!.name))];
  const tops = new Map(names.map((name) => [name, Math.max(...state.model.groups.map((group) => largestOf(group.counters, name, state.view)))]));
  context.save();
  context.beginPath();
  context.rect(0, AXIS + state.layout.fixed, labels + width, height - state.layout.fixed);
  context.clip();
  for (const row of shown) {
    const most = tops.get(row.counter!.name)!;
    line(frame, state, row, most);
    label(frame, state, row, most);
  }
  context.restore();
}

/** What a counter says at a place of the canvas; empty beside all counters. */
export function counterAt(state: State, painter: Painter, scroll: number, [x, y]: [number, number]): string {
  const row = rowAt(state, painter, scroll, y);
  if (!row?.counter) return "";
  const { name, unit, at, value, thinned } = row.counter;
  const time = timeAt(state, painter, x);
  const held = value[firstOver(at, time) - 1] ?? UNKNOWN;
  const said = held < 0 ? `${name} not recorded` : `${name} ${formatValue(held, unit)}`;
  return [said, formatNs(time), state.model.groups[row.group]!.name, held < 0 ? "" : thinned].filter(Boolean).join(" · ");
}

function largestOf(all: Counter[], name: string, view: View): number {
  const own = all.find((one) => one.name === name);
  return own ? highest(own, view.start, view.stop) : UNKNOWN;
}

/** The highest value from one moment to another, with the value that holds at the first. */
function highest({ at, value }: Counter, start: number, stop: number): number {
  let place = Math.max(0, firstOver(at, start) - 1);
  let most = UNKNOWN;
  for (; place < at.length && at[place]! < stop; place++) most = Math.max(most, value[place]!);
  return most;
}

/** The highest value in each pixel; below 0 where nothing is known. */
function pixels({ at, value }: Counter, { start, width: span }: View, width: number): Float64Array {
  const found = new Float64Array(width).fill(UNKNOWN);
  let place = firstOver(at, start) - 1;
  for (let x = 0; x < width; x++) {
    const end = start + ((x + 1) / width) * span;
    let most = value[place] ?? UNKNOWN;
    while (place + 1 < at.length && at[place + 1]! < end) most = Math.max(most, value[++place]!);
    found[x] = most;
  }
  return found;
}

function line({ context, labels, width, scroll, palette }: Frame, state: State, row: Row, most: number): void {
  const bottom = AXIS + row.top - scroll + row.height - 1;
  const values = pixels(row.counter!, state.view, width);
  const tall = (value: number): number => (value > 0 ? Math.max(1, (value / most) * (row.height - 1 - ABOVE)) : 0);
  context.fillStyle = palette.accent;
  context.strokeStyle = palette.muted;
  context.lineWidth = 1;
  for (let x = 0; x < width; x++) {
    if (values[x]! < 0) continue;
    const first = x;
    const edge = new Path2D();
    edge.moveTo(labels + x, bottom - tall(values[x]!));
    for (; x < width && values[x]! >= 0; x++) {
      const y = bottom - tall(values[x]!);
      edge.lineTo(labels + x, y);
      edge.lineTo(labels + x + 1, y);
    }
    const area = new Path2D(edge);
    area.lineTo(labels + x, bottom);
    area.lineTo(labels + first, bottom);
    context.globalAlpha = 0.2;
    context.fill(area);
    context.globalAlpha = 1;
    context.stroke(edge);
  }
}

/** The name, and the highest value in sight; where that of another rank is higher, that too. */
function label({ context, labels, scroll, palette }: Frame, state: State, { counter, top, height }: Row, most: number): void {
  const { name, unit } = counter!;
  const own = highest(counter!, state.view.start, state.view.stop);
  const [text, all] = [own, most].map((value) => formatValue(value, unit));
  const said = own < 0 ? "not recorded" : text === all ? `max ${text}` : `max ${text}, of all ${all}`;
  const y = AXIS + top - scroll + height / 2;
  context.font = FONT;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillStyle = palette.muted;
  context.fillText(name, INDENT, y - 7, labels - INDENT - 3);
  context.fillText(said, INDENT, y + 7, labels - INDENT - 3);
}

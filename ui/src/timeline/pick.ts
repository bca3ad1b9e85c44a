// What stands at a place of the canvas, and which event a number means.

import { firstOver } from "./columns";
import { AXIS } from "./furniture";
import type { Row } from "./layout";
import type { Painter } from "./paint";
import type { State, Target } from "./state";

export function targetAt(state: State, painter: Painter, scroll: number, [x, y]: [number, number]): Target | null {
  const { view, model } = state;
  const row = rowAt(state, painter, scroll, y);
  if (!row) return null;
  const time = timeAt(state, painter, x);
  const none = { group: row.group, lane: null, item: null, time };
  if (x < painter.labels) return none;
  if (row.counter) return null;
  if (!row.level) return model.strips ? none : null;
  // A pixel of grace, so that the narrowest can be met.
  const grace = view.width / painter.width;
  const place = firstOver(row.level.stop, time - grace);
  if (place >= row.level.start.length || row.level.start[place]! > time + grace) return null;
  return { group: row.group, lane: row.lane, item: row.level.item[place]!, time };
}

/** The row at a height of the canvas, or the last one above it. */
export function rowAt({ layout }: State, painter: Painter, scroll: number, y: number): Row | null {
  if (y < AXIS || y > AXIS + painter.height || y - AXIS + scroll > layout.height) return null;
  return layout.rows[layout.under(y - AXIS, scroll)] ?? null;
}

export function timeAt({ view }: State, painter: Painter, x: number): number {
  return view.start + ((x - painter.labels) / painter.width) * view.width;
}

export function eventOf(state: State, group: number, event: number): Target | null {
  for (const lane of state.model.groups[group]!.lanes) {
    const place = lane.items.event.subarray(lane.first, lane.first + lane.count).indexOf(event);
    if (place >= 0) {
      const item = lane.first + place;
      return { group, lane, item, time: lane.items.start[item]! };
    }
  }
  return null;
}

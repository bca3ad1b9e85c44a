// Which row stands where: strips of groups, and below those that are unfolded one row for each counter and for each depth
// of each lane.

import type { Arranged } from "./arrangement";
import type { Counter, Lane, Level, Model } from "./model";

export interface Row {
  group: number;
  /** None for the strip of a group, and for a counter. */
  lane: Lane | null;
  level: Level | null;
  counter: Counter | null;
  /** The first row of a lane bears its name. */
  label: string;
  top: number;
  height: number;
}

const LEVEL_HEIGHT = 15;
const ALONE_HEIGHT = 22;
const COUNTER_HEIGHT = 36;
export const LANE_GAP = 4;
const MOST_DEPTHS = 16;
const ROOM = 440;
const PINNED_GAP = 6;
/** A row of this height has room for its name. */
const LEAST_NAMED = 12;
const PINNED = 22;
export const HEADING = 18;
/** Room for the predicted step. */
export const GHOST = 20;

export function stripHeight(groups: number, taller: number): number {
  const usual = Math.max(LEAST_NAMED, Math.min(PINNED, Math.floor(ROOM / Math.max(1, groups))));
  return Math.max(3, Math.min(48, usual + taller));
}

export class Layout {
  readonly rows: Row[] = [];
  /** Names of groups of rows, each with where it stands. */
  readonly headings: [string, number][] = [];
  readonly height: number;

  /** `above` is left free over the first row. */
  constructor(model: Model, arranged: Arranged, unfolded: ReadonlySet<number>, height: number, above = 0) {
    let top = above;
    const add = (group: number, row: Partial<Row>, label: string, size: number): void => {
      this.rows.push({ group, lane: null, level: null, counter: null, ...row, label, top, height: size });
      top += size;
    };
    const strip = (place: number, size = height): void => {
      const group = model.groups[place]!;
      if (group.strip !== null) add(place, {}, group.name, size);
    };
    const lanes = (place: number): void => {
      const group = model.groups[place]!;
      if (group.strip !== null && !unfolded.has(place)) return;
      for (const counter of group.counters) add(place, { counter }, counter.name, COUNTER_HEIGHT);
      for (const lane of group.lanes) {
        const [name, size] = group.strip === null ? [group.name, ALONE_HEIGHT] : [lane.name, LEVEL_HEIGHT];
        lane.levels
          .slice(0, MOST_DEPTHS)
          .forEach((level, depth) => add(place, { lane, level }, depth ? "" : name, size));
        top += LANE_GAP;
      }
    };
    // Pinned rows stand side by side, lanes of theirs below all of them.
    const pinned = arranged.groups.slice(0, arranged.pinned);
    for (const place of pinned) strip(place, Math.max(height, PINNED));
    pinned.forEach(lanes);
    if (pinned.length) top += PINNED_GAP;
    for (const place of arranged.groups.slice(arranged.pinned)) {
      const heading = arranged.headings.get(place);
      if (heading !== undefined) {
        this.headings.push([heading, top]);
        top += HEADING;
      }
      strip(place);
      lanes(place);
    }
    this.height = top;
  }

  /** Place of the row at a height, or of the last one above it. */
  at(y: number): number {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.rows[middle]!.top > y) high = middle;
      else low = middle + 1;
    }
    return Math.max(0, low - 1);
  }
}

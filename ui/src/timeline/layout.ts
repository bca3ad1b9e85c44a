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
  /** Stays where it is while the others scroll. */
  fixed: boolean;
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
/** More pinned rows than these scroll with the others, which would have no room left. */
const MOST_FIXED = 8;

export function stripHeight(groups: number, taller: number): number {
  const usual = Math.max(LEAST_NAMED, Math.min(PINNED, Math.floor(ROOM / Math.max(1, groups))));
  return Math.max(3, Math.min(48, usual + taller));
}

export class Layout {
  readonly rows: Row[] = [];
  /** Names of groups of rows, each with where it stands. */
  readonly headings: [string, number][] = [];
  readonly height: number;
  /** Height of what stays on top: the predicted step and pinned rows. */
  readonly fixed: number;

  /** `above` is left free over the first row. */
  constructor(model: Model, arranged: Arranged, unfolded: ReadonlySet<number>, height: number, above = 0) {
    let top = above;
    const pinned = arranged.groups.slice(0, arranged.pinned);
    const stay = pinned.length <= MOST_FIXED;
    const add = (group: number, row: Partial<Row>, label: string, size: number): void => {
      this.rows.push({ group, lane: null, level: null, counter: null, ...row, label, top, height: size, fixed: false });
      top += size;
    };
    const head = (name: string): void => {
      this.headings.push([name, top]);
      top += HEADING;
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
    for (const place of pinned) strip(place, Math.max(height, PINNED));
    for (const row of this.rows) row.fixed = stay;
    this.fixed = stay ? top : above;
    for (const place of pinned) {
      if (pinned.length > 1 && unfolded.has(place)) head(`lanes of ${model.groups[place]!.name}`);
      lanes(place);
    }
    if (pinned.length) top += PINNED_GAP;
    for (const place of arranged.groups.slice(arranged.pinned)) {
      const heading = arranged.headings.get(place);
      if (heading !== undefined) head(heading);
      strip(place);
      lanes(place);
    }
    this.height = top;
  }

  /** Where a row stands below the axis, when the rows are scrolled by so much. */
  y(row: Row, scroll: number): number {
    return row.fixed ? row.top : row.top - scroll;
  }

  /** Place of the row so far below the axis, or of the last one above it. */
  under(y: number, scroll: number): number {
    return this.at(y < this.fixed ? y : y + scroll);
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

// Which row stands where: strips of groups, and below those that are unfolded one row for each depth of each lane.

import type { Group, Lane, Level, Model } from "./model";

export interface Row {
  group: number;
  /** None for the strip of a group. */
  lane: Lane | null;
  level: Level | null;
  /** The first row of a lane bears its name. */
  label: string;
  top: number;
  height: number;
}

const LEVEL_HEIGHT = 15;
const ALONE_HEIGHT = 22;
const LANE_GAP = 4;
const MOST_DEPTHS = 16;
const ROOM = 440;

export function stripHeight(groups: number, taller: number): number {
  const usual = Math.max(3, Math.min(22, Math.floor(ROOM / Math.max(1, groups))));
  return Math.max(3, Math.min(48, usual + taller));
}

export class Layout {
  readonly rows: Row[] = [];
  readonly height: number;

  constructor(model: Model, unfolded: ReadonlySet<number>, height: number) {
    let top = 0;
    const add = (group: number, lane: Lane | null, level: Level | null, label: string, size: number): void => {
      this.rows.push({ group, lane, level, label, top, height: size });
      top += size;
    };
    model.groups.forEach((group: Group, place) => {
      if (group.strip !== null) add(place, null, null, group.name, height);
      if (group.strip !== null && !unfolded.has(place)) return;
      for (const lane of group.lanes) {
        const [name, size] = group.strip === null ? [group.name, ALONE_HEIGHT] : [lane.name, LEVEL_HEIGHT];
        lane.levels
          .slice(0, MOST_DEPTHS)
          .forEach((level, depth) => add(place, lane, level, depth ? "" : name, size));
        top += LANE_GAP;
      }
    });
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

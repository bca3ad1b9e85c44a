// What a timeline shows at the moment, and what is told apart in it.

import { type Arranged, type Arrangement, arrange, ordersOf } from "./arrangement";
import type { Lane, Items, Model } from "./model";
import { GHOST, Layout, stripHeight } from "./layout";
import type { Predicted } from "../predictions";
import { View } from "./view";

/** A place of a timeline: an event, or a moment of a strip. */
export interface Target {
  group: number;
  lane: Lane | null;
  item: number | null;
  time: number;
}

/** Time of some rows. */
export interface Area {
  start: number;
  stop: number;
  /** Places of groups; none for all. */
  groups: readonly number[];
  /** First and last step, where they were selected and not a time: each row is then cut at its own. */
  steps?: [number, number];
}

export class State {
  readonly view: View;
  readonly unfolded = new Set<number>();
  readonly hidden = new Set<string>();
  arrangement: Arrangement;
  arranged: Arranged;
  layout: Layout;
  taller = 0;
  /** Place of the group that the keyboard is at. */
  cursor: number;
  area: Area | null = null;
  /** Groups of ranks that are selected anywhere on the page. */
  marked: ReadonlySet<number> = new Set();
  /** What the selected changes would do to a step. */
  predicted: Predicted | null = null;
  notes: readonly [number, string][] = [];
  /** Time under the pointer. */
  pointed: number | null = null;
  selected: Target | null = null;
  hovered: Target | null = null;
  searched = "";
  #named = new WeakMap<Items, Uint8Array>();

  /** `isLive` where a server has events of rows that have no lanes yet. */
  constructor(
    readonly model: Model,
    readonly isLive = false,
  ) {
    this.view = new View(model.span);
    this.arrangement = { order: ordersOf(model)[0]!, filter: "", pinned: [] };
    this.arranged = arrange(model, this.arrangement);
    this.cursor = this.arranged.groups[0] ?? 0;
    this.layout = this.laidOut();
  }

  arrange(wanted: Partial<Arrangement>): void {
    this.arrangement = { ...this.arrangement, ...wanted };
    this.arranged = arrange(this.model, this.arrangement);
    if (!this.arranged.groups.includes(this.cursor)) this.cursor = this.arranged.groups[0] ?? 0;
    this.laidOut();
  }

  /** The group so many rows below the cursor, or the last one on the way. */
  below(by: number): number {
    const { groups } = this.arranged;
    const place = groups.indexOf(this.cursor) + by;
    return groups[Math.max(0, Math.min(groups.length - 1, place))] ?? 0;
  }

  groupOf(rank: number): number {
    return this.model.groups.findIndex((group) => group.rank === rank);
  }

  /** Time of these groups; null if there are no groups. */
  areaOf(start: number, stop: number, groups: readonly number[]): Area | null {
    if (!groups.length) return null;
    return { start, stop, groups: groups.length === this.model.groups.length ? [] : groups };
  }

  laidOut(): Layout {
    const { model } = this;
    const height = stripHeight(this.arranged.groups.length, this.taller);
    return (this.layout = new Layout(model, this.arranged, this.unfolded, height, this.predicted && model.marks.length ? GHOST : 0));
  }

  fold(group: number, open = !this.unfolded.has(group)): void {
    if (this.model.groups[group]?.strip === null) return;
    if (open) this.unfolded.add(group);
    else this.unfolded.delete(group);
    this.laidOut();
  }

  /** The same event where lanes have been renewed since; as it was where it is not among them. */
  renewed(target: Target): Target {
    const { lanes } = this.model.groups[target.group]!;
    if (target.item === null || lanes.includes(target.lane!)) return target;
    const number = target.lane!.items.event[target.item]!;
    for (const lane of lanes) {
      const place = lane.items.event.subarray(lane.first, lane.first + lane.count).indexOf(number);
      if (place >= 0) return { ...target, lane, item: lane.first + place };
    }
    return target;
  }

  search(text: string): void {
    this.searched = text.toLowerCase();
    this.#named = new WeakMap();
  }

  /** Which names have what is searched for; none when nothing is. */
  named(items: Items): Uint8Array | null {
    if (!this.searched) return null;
    let found = this.#named.get(items);
    if (!found) {
      found = Uint8Array.from(items.names, (name) => (name.toLowerCase().includes(this.searched) ? 1 : 0));
      this.#named.set(items, found);
    }
    return found;
  }
}

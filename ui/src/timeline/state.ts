// What a timeline shows at the moment, and what is told apart in it.

import type { Lane, Items, Model } from "./model";
import { Layout, stripHeight } from "./layout";
import { View } from "./view";

/** A place of a timeline: an event, or a moment of a strip. */
export interface Target {
  group: number;
  lane: Lane | null;
  item: number | null;
  time: number;
}

export class State {
  readonly view: View;
  readonly unfolded = new Set<number>();
  readonly hidden = new Set<string>();
  layout: Layout;
  taller = 0;
  cursor = 0;
  selected: Target | null = null;
  hovered: Target | null = null;
  searched = "";
  #named = new WeakMap<Items, Uint8Array>();

  constructor(readonly model: Model) {
    this.view = new View(model.span);
    this.layout = this.laidOut();
  }

  laidOut(): Layout {
    const { model } = this;
    return (this.layout = new Layout(model, this.unfolded, stripHeight(model.groups.length, this.taller)));
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

// Events by a part of their name, in order of time: one after the other.

import { h } from "../dom";
import type { Lane } from "./model";
import type { State, Target } from "./state";

const MOST_HITS = 100_000;
const TYPED_MS = 150;

export class Search {
  readonly #input = h("input", {
    type: "search",
    placeholder: "Search events by name",
    "aria-label": "Search events by name",
    class: "search",
  }) as HTMLInputElement;
  readonly #said = h("output", { class: "muted" });
  readonly #back = h("button", { type: "button", title: "Previous match (Shift+Enter)", click: () => this.#go(-1) }, "‹");
  readonly #on = h("button", { type: "button", title: "Next match (Enter)", click: () => this.#go(1) }, "›");
  readonly element = h("span", { class: "searching" }, this.#input, this.#back, this.#on, this.#said);
  #hits: Target[] = [];
  #place = -1;
  #timer = 0;

  /** `typed` is called with what somebody searches for here. */
  constructor(
    readonly state: State,
    readonly show: (target: Target) => void,
    readonly redraw: () => void,
    readonly typed: (text: string) => void,
  ) {
    this.#input.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.redraw();
      this.#timer = window.setTimeout(() => this.#type(), TYPED_MS);
    });
    this.#input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      if (this.#timer || this.state.searched !== this.#input.value.trim().toLowerCase()) this.#type();
      this.#go(event.shiftKey ? -1 : 1);
    });
  }

  #type(): void {
    this.#find();
    this.typed(this.#input.value.trim());
  }

  /** Searches again where events came since; the match that was gone to stays the present one. */
  renew(): void {
    const now = this.#hits[this.#place];
    this.#hits = this.state.searched ? this.#found() : [];
    this.#place = now ? this.#hits.findIndex((hit) => hit.group === now.group && numberOf(hit) === numberOf(now)) : -1;
    this.#say();
  }

  /** Searches for what another view, or a link, selected, unless somebody is typing. */
  follow(text: string): void {
    if (text === this.#input.value.trim() || this.#timer) return;
    this.#input.value = text;
    this.#find();
  }

  #find(): void {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.state.search(this.#input.value.trim());
    this.#hits = this.state.searched ? this.#found() : [];
    this.#place = -1;
    this.#say();
    this.redraw();
  }

  #say(): void {
    const count = this.#hits.length.toLocaleString("en-US") + (this.#hits.length === MOST_HITS ? " or more" : "");
    const found = this.#place < 0 ? `${count} found` : `${(this.#place + 1).toLocaleString("en-US")} of ${count}`;
    this.#said.textContent = this.state.searched ? `${found}${this.state.isLive ? " in what is loaded" : ""}` : "";
  }

  #found(): Target[] {
    const hits: Target[] = [];
    this.state.model.groups.forEach(({ lanes }, group) => lanes.forEach((lane) => this.#inLane(group, lane, hits)));
    return hits.sort((a, b) => a.time - b.time);
  }

  #inLane(group: number, lane: Lane, hits: Target[]): void {
    const { items } = lane;
    const named = this.state.named(items)!;
    for (let item = lane.first; item < lane.first + lane.count && hits.length < MOST_HITS; item++) {
      if (named[items.name[item]!]) hits.push({ group, lane, item, time: items.start[item]! });
    }
  }

  #go(direction: 1 | -1): void {
    if (!this.#hits.length) return;
    const first = this.#place < 0 && direction > 0 ? this.#hits.findIndex((hit) => hit.time >= this.state.view.start) : -1;
    const next = this.#place < 0 ? Math.max(0, first) : this.#place + direction;
    this.#place = (next + this.#hits.length) % this.#hits.length;
    this.#say();
    this.show(this.#hits[this.#place]!);
  }
}

function numberOf({ lane, item }: Target): number {
  return lane!.items.event[item!]!;
}

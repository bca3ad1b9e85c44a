// Events of what is in sight from a server, where a page has one: a file holds only the longest.

import type { Live } from "../live";
import { Refused } from "../server";
import { putBelow } from "./model";
import type { State } from "./state";

const MOST = 20_000;
const MOST_RANKS = 16;
const SETTLED_MS = 250;

export interface Heard {
  /** Events that were asked for are there. */
  changed(): void;
  /** Says which events are not there, and why; nothing where all are. */
  say(text: string): void;
  /** The first group in sight below those that are pinned. */
  first(): number;
}

/** Asks for events of unfolded ranks in sight once the view has come to rest. */
export class LiveEvents {
  #timer = 0;
  #last = "";

  constructor(
    readonly live: Live,
    readonly state: State,
    readonly heard: Heard,
  ) {}

  look(): void {
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => void this.#ask(), SETTLED_MS);
  }

  async #ask(): Promise<void> {
    const { model, view, unfolded } = this.state;
    const open = unfolded.size;
    const ranks = this.#groups().flatMap((group) => model.groups[group]!.rank ?? []);
    if (!ranks.length) return this.heard.say("");
    // A margin on both sides, so that a short way to go needs no new question.
    const asked = {
      ranks: ranks.sort((a, b) => a - b),
      start: Math.max(0, view.start - view.width / 2),
      stop: Math.min(model.span, view.stop + view.width / 2),
      most: MOST,
    };
    const key = JSON.stringify(asked);
    if (key === this.#last) return;
    this.#last = key;
    try {
      const { data, numbers } = await this.live.events(asked);
      if (key !== this.#last) return;
      putBelow(model, data, numbers);
      this.state.laidOut();
      if (this.state.selected) this.state.selected = this.state.renewed(this.state.selected);
      this.heard.say(ranks.length < open ? `Events of ${ranks.length} of ${open} open ranks are loaded: scroll to load those of others.` : "");
      this.heard.changed();
    } catch (error) {
      if (key !== this.#last) return;
      this.#last = "";
      // The page says that its server is lost; what is drawn stays.
      if (error instanceof Refused) this.heard.say(`Events could not be loaded: ${error.message}`);
    }
  }

  /** Those that are open; of many, as many as a server is asked for at once, from the first in sight on. */
  #groups(): number[] {
    const { unfolded, arranged } = this.state;
    if (unfolded.size <= MOST_RANKS) return [...unfolded];
    const isOpen = (group: number): boolean => unfolded.has(group);
    const pinned = arranged.groups.slice(0, arranged.pinned).filter(isOpen);
    const others = arranged.groups.slice(arranged.pinned);
    const first = Math.max(0, others.indexOf(this.heard.first()));
    const [above, below] = [others.slice(0, first).filter(isOpen), others.slice(first).filter(isOpen)];
    return [...pinned, ...below, ...above.reverse()].slice(0, MOST_RANKS);
  }
}

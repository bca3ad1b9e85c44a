// Events of what is in sight from a server, where a page has one: a file holds only the longest.

import type { Live } from "../live";
import { putBelow } from "./model";
import type { State } from "./state";

const MOST = 20_000;
const MOST_RANKS = 16;
const SETTLED_MS = 250;

/** Asks for events of unfolded ranks in sight once the view has come to rest; `changed` is called when they are there. */
export class LiveEvents {
  #timer = 0;
  #last = "";

  constructor(
    readonly live: Live,
    readonly state: State,
    readonly changed: () => void,
  ) {}

  look(): void {
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => void this.#ask(), SETTLED_MS);
  }

  async #ask(): Promise<void> {
    const { model, view, unfolded } = this.state;
    const ranks = [...unfolded].map((group) => Number(model.groups[group]!.name.replace("rank ", "")));
    if (!ranks.length || ranks.length > MOST_RANKS || ranks.some(Number.isNaN)) return;
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
      this.changed();
    } catch {
      // The page says that its server is lost; what is drawn stays.
      this.#last = "";
    }
  }
}

// One result: its verdict at once, its blocks when they are wanted.

import { draw } from "./blocks";
import type { Context } from "./blocks";
import { copyable } from "./copyable";
import { h } from "./dom";
import { label, prose } from "./glossary";
import type { Result } from "./types";

export class Article {
  readonly element: HTMLElement;
  readonly heading: HTMLElement;
  private readonly blocks: HTMLElement;
  private readonly listed = h("ul", { class: "notes", "aria-label": "Notes", hidden: true });
  private drawn = false;

  constructor(
    readonly result: Result,
    private readonly context: Context,
  ) {
    this.heading = h("h2", { tabindex: -1 }, ...label(result.title));
    this.blocks = h("div", { class: result.blocks.length ? "blocks waiting" : "blocks" });
    this.element = h(
      "article",
      { id: result.name, class: result.blocks.length ? "" : "bare", "data-kinds": result.blocks.map((block) => block.kind).join(" ") },
      this.heading,
      h("p", { class: "verdict" }, ...prose(result.verdict)),
      this.blocks,
      this.listed,
      result.next_command ? h("p", { class: "next" }, "Next: ", copyable(result.next_command)) : null,
    );
  }

  get name(): string {
    return this.result.name;
  }

  /** Lists the notes that are not yet `said` on the page, and adds them to those. */
  note(said: Set<string>): void {
    const fresh = this.result.notes.filter((note) => !said.has(note));
    this.listed.replaceChildren(...fresh.map((note) => h("li", {}, ...prose(note))));
    this.listed.hidden = !fresh.length;
    for (const note of fresh) said.add(note);
  }

  draw(): void {
    if (this.drawn) return;
    this.drawn = true;
    this.blocks.classList.remove("waiting");
    for (const block of this.result.blocks) this.blocks.append(draw(block, this.context));
  }
}

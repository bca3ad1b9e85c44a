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
  private drawn = false;

  constructor(
    private readonly result: Result,
    private readonly context: Context,
  ) {
    this.heading = h("h2", { tabindex: -1 }, ...label(result.title));
    this.blocks = h("div", { class: result.blocks.length ? "blocks waiting" : "blocks" });
    this.element = h(
      "article",
      { id: result.name },
      this.heading,
      h("p", { class: "verdict" }, ...prose(result.verdict)),
      this.blocks,
      ...(result.notes.length ? [notes(result.notes)] : []),
      result.next_command ? h("p", { class: "next" }, "Next: ", copyable(result.next_command)) : null,
    );
  }

  get name(): string {
    return this.result.name;
  }

  draw(): void {
    if (this.drawn) return;
    this.drawn = true;
    this.blocks.classList.remove("waiting");
    for (const block of this.result.blocks) this.blocks.append(draw(block, this.context));
  }
}

function notes(said: string[]): HTMLElement {
  return h("ul", { class: "notes", "aria-label": "Notes" }, ...said.map((note) => h("li", {}, ...prose(note))));
}

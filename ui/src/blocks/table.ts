// A table that can be sorted, filtered, and unfolded.

import { h } from "../dom";
import type { Attributes, Child } from "../dom";
import { knownWord } from "../glossary";
import { onSelection, selected } from "../selection";
import type { Table, Value } from "../types";
import { grouped } from "../rounding";
import type { Column } from "./table-cells";
import { barsOf, cell, compare, headOf, holdsNames, isEmpty, isNumeric, textOf } from "./table-cells";
import { windowed } from "./rows";
import "./table.css";

const FIRST = 20;
const MOST_IN_DOM = 1000;

export function drawTable(block: Omit<Table, "kind">): Element {
  return block.rows.length ? new Grid(block).element : h("p", { class: "muted" }, `No rows.${leftOut(block.left_out)}`);
}

function leftOut(count: number): string {
  return count ? ` ${grouped(String(count))} more ${count === 1 ? "row is" : "rows are"} not on this page.` : "";
}

class Grid {
  private readonly columns: Column[];
  private readonly heads = h("tr");
  private readonly body = h("tbody");
  private readonly table = h("table", {}, h("thead", {}, this.heads), this.body);
  private readonly box = h("div", { class: "scroll", role: "region", scroll: () => this.scrolled() }, this.table);
  private readonly count = h("span", { class: "muted", "aria-live": "polite" });
  private readonly unfold = h("button", { type: "button", click: () => this.toggleAll() });
  readonly element: Element;
  private rows: Value[][];
  /** The row of the block that each row in the document shows. */
  private readonly made = new WeakMap<Element, Value[]>();
  private sorted: { place: number; down: boolean } | null = null;
  private wanted = "";
  private all = false;
  private more = false;

  constructor(private readonly block: Omit<Table, "kind">) {
    this.columns = block.fields.map((field, place) => ({
      place,
      field,
      shown: field.shown && !isEmpty(block.rows, place),
      numeric: isNumeric(block.rows, place),
      names: holdsNames(block.rows, place),
      bars: field.has_bars ? barsOf(block.rows, place) : null,
    }));
    this.rows = block.rows;
    this.box.setAttribute("aria-label", block.title || block.name);
    this.element = h(
      "div",
      { class: "grid" },
      this.filterBox(),
      this.box,
      h("div", { class: "tools below" }, this.unfold, this.moreColumns(), this.count),
    );
    this.draw();
    if (this.columns.some(({ field }) => field.name === "rank" || field.name === "step")) onSelection(() => this.markSelected());
    new ResizeObserver(() => this.letScroll()).observe(this.box);
  }

  /** A box is a stop of the tab key only where there is something to scroll to. */
  private letScroll(): void {
    const { scrollWidth, clientWidth, scrollHeight, clientHeight } = this.box;
    if (scrollWidth > clientWidth || scrollHeight > clientHeight) this.box.tabIndex = 0;
    else this.box.removeAttribute("tabindex");
  }

  private filterBox(): Child {
    if (this.block.rows.length <= FIRST) return null;
    const input = h("input", { type: "search", placeholder: "filter rows", "aria-label": "Filter rows" }) as HTMLInputElement;
    input.addEventListener("input", () => {
      this.wanted = input.value.toLowerCase();
      this.draw();
    });
    return h("div", { class: "tools" }, input);
  }

  private moreColumns(): Child {
    const hidden = this.columns.filter(({ shown }) => !shown).length;
    if (!hidden) return null;
    const toggle = (event: Event): void => {
      this.more = (event.target as HTMLInputElement).checked;
      this.draw();
    };
    const words = `${hidden} more ${hidden === 1 ? "column" : "columns"}`;
    return h("label", { class: "muted" }, h("input", { type: "checkbox", change: toggle }), words);
  }

  private draw(): void {
    this.heads.replaceChildren(...this.shown().map((column) => this.head(column)));
    this.rows = this.chosen();
    const isLong = this.all && this.rows.length > MOST_IN_DOM;
    this.element.classList.toggle("windowed", isLong);
    this.table.setAttribute("aria-rowcount", String(this.rows.length + 1));
    if (isLong) this.scrolled();
    else this.body.replaceChildren(...this.rows.slice(0, this.all ? undefined : FIRST).map((row) => this.row(row)));
    this.say();
  }

  private scrolled(): void {
    if (!this.element.classList.contains("windowed")) return;
    windowed(this.box, this.body, this.rows.length, (place) => this.row(this.rows[place]!));
    // Columns only grow, so that they do not tremble while rows pass.
    for (const head of this.heads.children as HTMLCollectionOf<HTMLElement>) {
      head.style.setProperty("min-width", `${head.offsetWidth}px`);
    }
  }

  private say(): void {
    const [kept, of] = [this.rows.length, this.block.rows.length];
    this.unfold.hidden = kept <= FIRST;
    this.unfold.textContent = this.all ? `show the first ${FIRST}` : `show all ${grouped(String(kept))}`;
    const filtered = this.wanted ? `${grouped(String(kept))} of ${grouped(String(of))} rows.` : "";
    this.count.textContent = `${filtered}${leftOut(this.block.left_out)}`.trim();
  }

  private shown(): Column[] {
    return this.columns.filter(({ shown }) => shown || this.more);
  }

  private head({ place, field, numeric }: Column): HTMLElement {
    const order = this.sorted?.place !== place ? "none" : this.sorted.down ? "descending" : "ascending";
    // A word with a meaning must not be a second thing to focus inside the button: the button tells it.
    const known = knownWord(headOf(field));
    const words = h("span", known === undefined ? {} : { class: "term" }, headOf(field));
    const told: Attributes = known === undefined ? {} : { "data-term": known };
    const button = h("button", { type: "button", click: () => this.sort(place), ...told }, words);
    return h("th", { scope: "col", "aria-sort": order, class: numeric ? "number" : "" }, button);
  }

  private row(row: Value[]): HTMLElement {
    const made = h("tr", { class: this.isSelected(row) ? "on" : "" }, ...this.shown().map((column) => cell(row, column)));
    this.made.set(made, row);
    return made;
  }

  /** In place: rows that were made again would lose the keyboard. */
  private markSelected(): void {
    for (const made of this.body.children) {
      const row = this.made.get(made);
      if (row) made.classList.toggle("on", this.isSelected(row));
    }
  }

  /** Whether a row is about a rank or a step that is selected. */
  private isSelected(row: Value[]): boolean {
    const { ranks, steps } = selected();
    return this.columns.some(({ place, field }) => {
      const value = row[place];
      if (typeof value !== "number") return false;
      return field.name === "rank" ? ranks.includes(value) : field.name === "step" && !!steps && value >= steps[0] && value <= steps[1];
    });
  }

  /** Numbers begin with the largest, names with the first; a third time gives the order of the block. */
  private sort(place: number): void {
    const first = this.columns[place]!.numeric;
    if (this.sorted?.place !== place) this.sorted = { place, down: first };
    else this.sorted = this.sorted.down === first ? { place, down: !first } : null;
    this.draw();
    // The heads are new: the keyboard stays where it was.
    const at = this.shown().findIndex((column) => column.place === place);
    (this.heads.children[at]?.firstElementChild as HTMLElement).focus();
  }

  private toggleAll(): void {
    this.all = !this.all;
    this.box.scrollTop = 0;
    this.draw();
    if (!this.all) this.element.scrollIntoView({ block: "nearest" });
  }

  private chosen(): Value[][] {
    const texts = (row: Value[]): string[] =>
      this.shown().map((column) => textOf(row, column).toLowerCase());
    const kept = this.wanted
      ? this.block.rows.filter((row) => texts(row).some((text) => text.includes(this.wanted)))
      : this.block.rows;
    if (!this.sorted) return kept;
    const { place, down } = this.sorted;
    const known = kept.filter((row) => row[place] !== null);
    known.sort((one, other) => (down ? -1 : 1) * compare(one[place] ?? null, other[place] ?? null));
    return [...known, ...kept.filter((row) => row[place] === null)];
  }
}

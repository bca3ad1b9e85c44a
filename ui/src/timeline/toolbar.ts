// What stands over a timeline: search, order and filter of rows, zoom.

import { h } from "../dom";
import { ordersOf } from "./arrangement";
import type { Search } from "./search";
import type { State } from "./state";

export interface Tools {
  arrange(wanted: { order?: string; filter?: string }): void;
  redraw(): void;
  relayout(): void;
}

const TYPED_MS = 250;
/** Fewer rows are seen at once, and need no filter. */
const FILTERED = 8;

export class Toolbar {
  readonly element: HTMLElement;
  readonly #order = h("select", { "aria-label": "Order of rows" }) as HTMLSelectElement;
  readonly #filter = h("input", {
    type: "search",
    class: "filter",
    placeholder: "Filter rows: 3, 8-11, host",
    "aria-label": "Filter rows by rank or group",
  }) as HTMLInputElement;
  #timer = 0;

  constructor(
    private readonly state: State,
    search: Search,
    private readonly tools: Tools,
  ) {
    const orders = ordersOf(state.model);
    this.#order.append(...orders.map((order) => h("option", { value: order }, order)));
    this.#order.addEventListener("change", () => tools.arrange({ order: this.#order.value === orders[0] ? "" : this.#order.value }));
    this.#filter.addEventListener("input", () => {
      clearTimeout(this.#timer);
      tools.redraw();
      this.#timer = window.setTimeout(() => {
        this.#timer = 0;
        tools.arrange({ filter: this.#filter.value });
      }, TYPED_MS);
    });
    const rows = state.model.strips !== null && state.model.groups.length > 1;
    this.element = h(
      "div",
      { class: "tools" },
      rows && orders.length > 1 ? this.#order : null,
      rows && state.model.groups.length >= FILTERED ? this.#filter : null,
      search.element,
      h("div", { class: "buttons" }, ...this.#buttons()),
    );
  }

  /** Shows what the rows are ordered and filtered by now, unless somebody is typing. */
  update(): void {
    const { order, filter } = this.state.arrangement;
    const orders = ordersOf(this.state.model);
    this.#order.value = orders.includes(order) ? order : orders[0]!;
    if (!this.#timer && this.#filter.value !== filter) this.#filter.value = filter;
  }

  #buttons(): Element[] {
    const { view, model } = this.state;
    const act = (label: string, title: string, does: () => void): Element =>
      h("button", { type: "button", title, "aria-label": title, click: () => (does(), this.tools.redraw()) }, label);
    const taller = (by: number) => () => {
      this.state.taller += by;
      this.state.laidOut();
      this.tools.relayout();
    };
    return [
      act("−", "Zoom out (s)", () => view.zoom(1.5)),
      act("+", "Zoom in (w)", () => view.zoom(1 / 1.5)),
      act("◂", "Earlier (a)", () => view.pan(-0.25 * view.width)),
      act("▸", "Later (d)", () => view.pan(0.25 * view.width)),
      act("All", "All: show everything (0 or double-click)", () => view.reset()),
      ...(model.strips ? [act("↕+", "Taller rows", taller(3)), act("↕−", "Shorter rows", taller(-3))] : []),
    ];
  }
}

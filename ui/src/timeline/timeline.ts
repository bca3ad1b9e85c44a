// A timeline as an element: rows on a canvas, with what moves, searches and explains them around it.

import "./timeline.css";
import { onTheme } from "../colours";
import { h } from "../dom";
import type { Live } from "../live";
import { formatNs, formatValues } from "../units";
import { type Handlers, control } from "./controls";
import { AXIS, FOOT, edges, rowOf } from "./furniture";
import { legend, meaning } from "./legend";
import { LiveEvents } from "./live";
import { Minimap } from "./minimap";
import type { Model } from "./model";
import { Painter } from "./paint";
import { Palette } from "./palette";
import { panel } from "./panel";
import { eventOf, targetAt } from "./pick";
import { Search } from "./search";
import { State, type Target } from "./state";

const TALLEST = 520;
const NARROW = 600;

export class Timeline {
  readonly state: State;
  readonly element: HTMLElement;
  readonly #canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": "Timeline" }) as HTMLCanvasElement;
  readonly #body: HTMLElement;
  readonly #spacer = h("div", { class: "spacer" });
  readonly #tip = h("div", { class: "tip", role: "tooltip", hidden: true });
  readonly #panel = h("div", { class: "panel", "aria-live": "polite" });
  readonly #legend = h("div");
  readonly #painter: Painter;
  readonly #minimap: Minimap;
  readonly #live: LiveEvents | null;
  #palette = new Palette();
  #waiting = 0;

  constructor(
    model: Model,
    readonly glossary: Record<string, string>,
    live: Live | undefined,
  ) {
    this.state = new State(model);
    this.#painter = new Painter(this.#canvas);
    this.#minimap = new Minimap(this.state, () => this.redraw());
    this.#live = live ? new LiveEvents(live, this.state, () => this.#changed()) : null;
    this.#body = h("div", { class: "rows", scroll: () => this.redraw() }, this.#canvas, this.#spacer);
    const search = new Search(this.state, (target) => this.show(target), () => this.redraw());
    const framed = h("div", { class: "framed" }, model.strips ? this.#minimap.canvas : null, this.#body, this.#tip);
    const tools = h("div", { class: "tools" }, search.element, h("div", { class: "buttons" }, ...this.#buttons()));
    this.element = h("div", { class: "timeline" }, tools, this.#legend, framed, this.#panel);
    control(this.#canvas, this.state, this.#painter, this.#handlers());
    new ResizeObserver(() => this.#fit()).observe(framed);
    onTheme(() => this.#recolour());
    this.#recolour();
    this.#tell();
  }

  redraw(): void {
    if (this.#waiting) return;
    this.#waiting = requestAnimationFrame(() => this.#paint());
  }

  #paint(): void {
    this.#waiting = 0;
    this.#painter.paint(this.state, this.#palette, this.#body.scrollTop);
    this.#minimap.paint(this.#palette);
    this.#live?.look();
  }

  /** Selects something and brings it into sight, unfolded where it is an event. */
  show(wanted: Target): void {
    const { state } = this;
    const target = state.renewed(wanted);
    if (target.item !== null) state.fold(target.group, true);
    const [start, stop] = edges(state, target);
    const width = Math.max(1.6 * (stop - start), Math.min(state.view.width, Math.max(12 * (stop - start), 2000)));
    if (start < state.view.start || stop > state.view.stop || stop - start < state.view.width / 400) {
      state.view.show((start + stop) / 2 - width / 2, (start + stop) / 2 + width / 2);
    }
    this.#select(target);
    this.#changed();
    const row = rowOf(state, target);
    if (row) this.#body.scrollTop = Math.max(0, row.top - this.#painter.height / 3);
  }

  /** A rank's event, or its steps, or the rank alone. */
  showRank({ rank, event, step, last }: { rank: number; event?: number; step?: number; last?: number }): boolean {
    const { state } = this;
    const group = state.model.groups.findIndex((one) => one.name === `rank ${rank}`);
    if (group < 0) return false;
    const { marks, span } = state.model;
    const at = marks.findIndex(([number]) => number === step);
    const end = Math.max(at, marks.findIndex(([number]) => number === last));
    if (at >= 0) state.view.show(marks[at]![1], marks[end + 1]?.[1] ?? span);
    state.cursor = group;
    const found = event === undefined ? null : eventOf(state, group, event);
    if (found) this.show(found);
    else this.#handlers().reveal(group);
    if (event !== undefined && !found) this.#panel.replaceChildren(notHere(group, event, state));
    else if (step !== undefined && at < 0) this.#panel.replaceChildren(notRecorded(step, state));
    this.redraw();
    return true;
  }

  /** The keyboard goes on here; the row that it is at is marked. */
  focus(): void {
    this.#canvas.focus({ preventScroll: true });
  }

  #buttons(): Element[] {
    const { view } = this.state;
    const act = (label: string, title: string, does: () => void): Element =>
      h("button", { type: "button", title, "aria-label": title, click: () => (does(), this.redraw()) }, label);
    const taller = (by: number) => () => {
      this.state.taller += by;
      this.state.laidOut();
      this.#changed();
    };
    return [
      act("−", "Zoom out (s)", () => view.zoom(1.5)),
      act("+", "Zoom in (w)", () => view.zoom(1 / 1.5)),
      act("◂", "Earlier (a)", () => view.pan(-0.25 * view.width)),
      act("▸", "Later (d)", () => view.pan(0.25 * view.width)),
      act("All", "Show everything (0 or double-click)", () => view.reset()),
      ...(this.state.model.strips ? [act("↕+", "Taller rows", taller(3)), act("↕−", "Shorter rows", taller(-3))] : []),
    ];
  }

  #handlers(): Handlers {
    const { state } = this;
    return {
      redraw: () => this.redraw(),
      targetAt: (x, y) => targetAt(state, this.#painter, this.#body.scrollTop, [x, y]),
      select: (target) => this.#select(target),
      hover: (target, x, y) => this.#hover(target, x, y),
      fold: (group) => {
        state.fold(group);
        state.cursor = group;
        this.#changed();
      },
      scroll: (pixels) => this.#body.scrollBy(0, pixels),
      reveal: (group) => {
        const row = state.layout.rows.find((one) => one.group === group)!;
        const { scrollTop } = this.#body;
        if (row.top < scrollTop) this.#body.scrollTop = row.top;
        const over = row.top + row.height - scrollTop - this.#painter.height;
        if (over > 0) this.#body.scrollTop = scrollTop + over;
      },
    };
  }

  #select(target: Target | null): void {
    this.state.selected = target;
    if (target) this.state.cursor = target.group;
    this.#tell();
    this.redraw();
  }

  #tell(): void {
    const zoom = (target: Target): void => {
      const [start, stop] = edges(this.state, target);
      this.state.view.show(start - 0.3 * (stop - start), stop + 0.3 * (stop - start));
      this.redraw();
    };
    this.#panel.replaceChildren(panel(this.state, this.glossary, { show: (target) => this.show(target), zoom }));
  }

  #hover(target: Target | null, x: number, y: number): void {
    const said = target && x >= this.#painter.labels ? this.#short(target) : "";
    this.#tip.hidden = !said;
    if (!said) return;
    this.#tip.textContent = said;
    this.#place(x, y + this.#body.offsetTop);
  }

  /** Beside a point of the frame, which cuts what sticks out: above it where there is no room below. */
  #place(x: number, y: number): void {
    const { style } = this.#tip;
    style.setProperty("left", "0");
    const { offsetWidth: wide, offsetHeight: high } = this.#tip;
    const { clientWidth, clientHeight } = this.#tip.parentElement!;
    const top = y + 16 + high <= clientHeight ? y + 16 : y - 8 - high;
    style.setProperty("left", `${Math.max(0, Math.min(x + 12, clientWidth - wide))}px`);
    style.setProperty("top", `${Math.max(0, top)}px`);
  }

  #short(target: Target): string {
    const { model } = this.state;
    const group = model.groups[target.group]!;
    const [start, stop] = edges(this.state, target);
    if (target.item !== null) {
      const { items } = target.lane!;
      return `${items.names[items.name[target.item]!]} · ${formatNs(stop - start)} · ${group.name}`;
    }
    const code = model.strips!.level(group.strip!, 0)[model.strips!.binAt(target.time / model.span)];
    const kind = code ? model.kinds[code - 1]! : "nothing recorded";
    return [kind, formatNs(stop - start), group.name, meaning(kind, this.glossary)].filter(Boolean).join(" · ");
  }

  #changed(): void {
    this.#fit();
    this.redraw();
  }

  #fit(): void {
    const width = this.#body.clientWidth;
    if (!width) return;
    const labels = width < NARROW ? 92 : 128;
    const height = Math.min(TALLEST, this.state.layout.height + 2);
    const foot = this.state.model.marks.length ? FOOT : 0;
    this.#body.style.setProperty("height", `${height + AXIS + foot}px`);
    this.#spacer.style.setProperty("height", `${Math.max(0, this.state.layout.height + 2 - height)}px`);
    if (width !== this.#painter.width + this.#painter.labels || height !== this.#painter.height) {
      this.#painter.resize(width, height, labels, foot);
      this.#minimap.resize(width, labels, this.#palette);
    }
    this.redraw();
  }

  #recolour(): void {
    this.#palette = new Palette();
    this.#legend.replaceChildren(legend(this.state, this.glossary, () => this.redraw()));
    this.#painter.width = 0;
    this.#fit();
    // At once: a page that goes to a printer has no further frame.
    if (this.element.isConnected) this.#paint();
  }
}

function notRecorded(step: number, { model }: State): Element {
  if (!model.marks.length) return h("p", {}, "This timeline has no step marks.");
  const known = formatValues(model.marks.map(([number]) => number), "");
  return h("p", {}, `Step ${step} does not start on this timeline. Steps that do: ${known}.`);
}

function notHere(group: number, event: number, { model }: State): Element {
  const name = model.groups[group]!.name;
  const why = model.leftOut ? "A file keeps only the longest events of each lane; lostflops serve shows all of them." : "";
  return h("p", {}, `Event ${event} of ${name} is not shown here. ${why}`);
}

// A timeline as an element: rows on a canvas, with what moves, searches and explains them around it.

import "./timeline.css";
import { onTheme } from "../colours";
import { h } from "../dom";
import type { Live } from "../live";
import { predictionOf } from "../predictions";
import { NOTHING, type Selection, beforeSelection } from "../selection";
import type { Block } from "../types";
import { formatNs } from "../units";
import { Controls, type Handlers } from "./controls";
import { counterAt } from "./counters";
import { AXIS, FOOT, edges, rowOf } from "./furniture";
import { eventKindsOf, legend, meaning } from "./legend";
import type { Row } from "./layout";
import { type Heard, LiveEvents } from "./live";
import { Minimap } from "./minimap";
import type { Model } from "./model";
import { Painter } from "./paint";
import { Palette } from "./palette";
import { Pane } from "./pane";
import { targetAt } from "./pick";
import { Search } from "./search";
import { State, type Area, type Target } from "./state";
import { Toolbar } from "./toolbar";
import { type Wanted, find, follow, stepsOf } from "./chosen";
import type { Totals } from "./totals";

/** Rows take at most this part of the window, so that the pane below them is in sight. */
const TALLEST = 0.5;
const LEAST_TALL = 280;
const NARROW = 600;
/** Room for notes at the bottom of the rows. */
const FLAGS = 40;
const SETTLED_MS = 300;

export interface Surroundings {
  glossary: Record<string, string>;
  live: Live | undefined;
  /** Exact sums of an area, where there are any. */
  totals: Totals | null;
  draw(block: Block): Element;
}

export class Timeline {
  readonly state: State;
  readonly element: HTMLElement;
  /** Called when somebody chose something here; `quietly` for moves that nobody would undo. */
  choose: (part: Partial<Selection>, quietly?: boolean) => void = (part) => this.#keep(part);
  readonly #canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": "Timeline" }) as HTMLCanvasElement;
  readonly #body: HTMLElement;
  readonly #spacer = h("div", { class: "spacer" });
  readonly #tip = h("div", { class: "tip", role: "tooltip", hidden: true });
  readonly #pane: Pane;
  readonly #legend = h("div");
  /** Which events are not there, and why. */
  readonly #unloaded = h("p", { class: "muted", role: "status", hidden: true });
  readonly #painter: Painter;
  readonly #minimap: Minimap;
  readonly #toolbar: Toolbar;
  readonly #search: Search;
  readonly #live: LiveEvents | null;
  #palette = new Palette();
  #waiting = 0;
  #settling = 0;
  #wanted: Wanted = { ...NOTHING };
  /** Whether something may have moved that is not selected yet. */
  #isMoved = false;
  #eventKinds = "";
  /** Whether rows were ever as large as they are on the page: before that, nothing scrolls. */
  #isPlaced = false;

  readonly around: Surroundings;

  constructor(model: Model, given: Surroundings) {
    const hasRanks = model.groups.some((group) => group.rank !== null);
    // A server knows rows by their ranks.
    const around = given.live && !hasRanks ? { ...given, live: undefined, totals: null } : given;
    this.around = around;
    this.state = new State(model, around.live !== undefined);
    this.#painter = new Painter(this.#canvas);
    this.#minimap = new Minimap(this.state, () => this.redraw());
    this.#live = around.live ? new LiveEvents(around.live, this.state, this.#heard()) : null;
    this.#pane = new Pane(this.state, around, {
      show: (target) => this.show(target),
      zoom: (start, stop) => this.#zoom(start, stop),
      choose: (part) => this.#choose({ zoom: this.#zoomed(), ...part }),
    });
    this.#body = h("div", { class: "rows", scroll: () => this.redraw() }, this.#canvas, this.#spacer);
    this.#search = new Search(
      this.state,
      (target) => this.show(target),
      () => this.redraw(),
      (search) => hasRanks && this.#choose({ zoom: this.#zoomed(), search }, true),
    );
    const framed = h("div", { class: "framed" }, model.strips ? this.#minimap.canvas : null, this.#body, this.#tip);
    this.#toolbar = new Toolbar(this.state, this.#search, {
      arrange: (wanted) => this.#choose({ zoom: this.#zoomed(), top: null, ...wanted }),
      redraw: () => this.redraw(),
      relayout: () => this.#changed(),
    });
    this.element = h("div", { class: "timeline" }, this.#toolbar.element, this.#legend, framed, this.#unloaded, this.#pane.element);
    new Controls(this.#canvas, this.state, this.#painter, this.#handlers());
    new ResizeObserver(() => this.#fit()).observe(framed);
    onTheme(() => this.#recolour());
    this.#recolour();
    this.#pane.tell();
    if (hasRanks) beforeSelection(() => this.#isMoved && this.#settle());
  }

  redraw(): void {
    this.#isMoved = true;
    if (this.#waiting) return;
    this.#say(true);
    this.#waiting = requestAnimationFrame(() => this.#paint());
  }

  /** For scripts that take pictures: whether a frame, or the address of what it shows, is still to come. */
  #say(isMoving: boolean): void {
    this.element.toggleAttribute("data-moving", isMoving);
  }

  #paint(): void {
    this.#waiting = 0;
    this.#say(true);
    this.#painter.paint(this.state, this.#palette, this.#body.scrollTop);
    this.#minimap.paint(this.#palette);
    this.#live?.look();
    clearTimeout(this.#settling);
    this.#settling = window.setTimeout(() => this.#settle(), SETTLED_MS);
  }

  /** What is in sight is part of the selection once nothing moves any more, in whole ns: a link shows the same pixels. */
  #settle(): void {
    clearTimeout(this.#settling);
    this.#isMoved = false;
    this.#keepSight();
    // To select it may have asked for a frame.
    if (!this.#waiting) this.#say(false);
  }

  #keepSight(): void {
    if (!this.#hasRanks || !this.#isPlaced || !this.element.isConnected) return;
    const { zoom, top } = this.#sight();
    if (zoom) this.state.view.show(...zoom);
    if (String(zoom) !== String(this.#wanted.zoom) || top !== this.#wanted.top) this.#choose({ zoom, top }, true);
  }

  /** What was moved here is part of what is chosen here. */
  #choose(part: Partial<Selection>, quietly = false): void {
    this.#isMoved = false;
    this.choose(part, quietly);
  }

  /** Rows that are not ranks mean nothing to other views: what is chosen here stays here. */
  #keep(part: Partial<Selection>): void {
    this.#wanted = { ...this.#wanted, ...part };
    const { order, filter, notes } = this.#wanted;
    this.state.arrange({ order, filter });
    this.state.notes = notes;
    if (part.time === null) this.state.area = this.state.selected = null;
    this.#toolbar.update();
    this.#pane.tell(this.#wanted);
    this.#changed();
  }

  /** Whether rows are ranks, so that other views can mean the same ones. */
  get #hasRanks(): boolean {
    return this.state.model.groups.some((group) => group.rank !== null);
  }

  #zoomed(): [number, number] | null {
    const { start, stop, span } = this.state.view;
    // Without a zoom, steps are shown where there are any.
    const isUsual = start <= 0 && stop >= span && !stepsOf(this.state, this.#wanted.steps);
    return isUsual ? null : [Math.round(start), Math.round(stop)];
  }

  /** What is in sight of time and rows. */
  #sight(): { zoom: [number, number] | null; top: number | null } {
    return { zoom: this.#zoomed(), top: Math.round(this.#body.scrollTop) || null };
  }

  /** Shows what is selected elsewhere, or was when a link was copied. */
  follow(wanted: Wanted): void {
    const before = this.#wanted;
    // The same selection again: only what is predicted of it may be new.
    if (wanted === before) return this.#predict();
    this.#wanted = wanted;
    follow(this.state, wanted);
    this.#toolbar.update();
    this.#search.follow(wanted.search);
    this.#changed();
    this.#pane.tell(wanted);
    if (this.#isPlaced) this.#scroll(before);
  }

  #predict(): void {
    this.state.predicted = predictionOf(this.#wanted.changes);
    this.state.laidOut();
    this.#changed();
  }

  /** Scrolls the rows as is wanted now: to a place, to a new event, or back to the first. */
  #scroll(before: Wanted): void {
    const { top, event } = this.#wanted;
    if (top !== before.top) this.#body.scrollTop = top ?? 0;
    if (top === null && event && String(event) !== String(before.event)) this.#revealSelected();
  }

  #revealSelected(): void {
    const row = this.state.selected && rowOf(this.state, this.state.selected);
    if (row) this.#reveal(row);
  }

  /** Selects something and brings it into sight, unfolded where it is an event. */
  show(wanted: Target): void {
    const { state } = this;
    const target = state.renewed(wanted);
    const { rank } = state.model.groups[target.group]!;
    const [start, stop] = edges(state, target);
    const width = Math.max(1.6 * (stop - start), Math.min(state.view.width, Math.max(12 * (stop - start), 2000)));
    if (start < state.view.start || stop > state.view.stop || stop - start < state.view.width / 400) {
      state.view.show((start + stop) / 2 - width / 2, (start + stop) / 2 + width / 2);
    }
    const open = target.item !== null && rank !== null && !this.#wanted.open.includes(rank) ? [...this.#wanted.open, rank] : this.#wanted.open;
    if (target.item !== null && rank === null) {
      state.fold(target.group, true);
      this.#changed();
    }
    this.#select(target, { open });
    const row = rowOf(state, target);
    if (row && !row.fixed) this.#body.scrollTop = Math.max(0, row.top - state.layout.fixed - this.#painter.height / 3);
  }

  #handlers(): Handlers {
    const { state } = this;
    return {
      redraw: () => this.redraw(),
      targetAt: (x, y) => targetAt(state, this.#painter, this.#body.scrollTop, [x, y]),
      select: (target) => this.#select(target),
      area: (area, done) => this.#select(null, {}, area, done),
      hover: (target, x, y) => this.#hover(target, x, y),
      fold: (group) => this.#fold(group),
      pin: (group) => this.#pin(group),
      scroll: (pixels) => this.#body.scrollBy(0, pixels),
      reveal: (group) => {
        const row = state.layout.rows.find((one) => one.group === group);
        if (row) this.#reveal(row);
      },
      groupsBetween: (top, bottom) => this.#groupsBetween(top, bottom),
    };
  }

  #reveal({ top, height, fixed }: Row): void {
    const { scrollTop } = this.#body;
    if (fixed) return;
    const free = top - this.state.layout.fixed;
    if (free < scrollTop) this.#body.scrollTop = free;
    const over = top + height + FLAGS - scrollTop - this.#painter.height;
    if (over > 0) this.#body.scrollTop = scrollTop + over;
  }

  #groupsBetween(top: number, bottom: number): readonly number[] {
    const { layout, arranged } = this.state;
    if (bottom < AXIS) return arranged.groups;
    const [uppermost] = layout.rows;
    const above = uppermost?.fixed ? uppermost.top : layout.fixed;
    if (!uppermost || bottom < AXIS + above || top > AXIS + this.#painter.height) return [];
    const [first, last] = [top, bottom].map((y) => layout.under(Math.max(0, y - AXIS), this.#body.scrollTop)) as [number, number];
    return [...new Set(layout.rows.slice(first, last + 1).map((row) => row.group))];
  }

  #fold(group: number): void {
    const { rank } = this.state.model.groups[group]!;
    this.state.cursor = group;
    if (rank === null) {
      this.state.fold(group);
      return this.#changed();
    }
    const { open } = this.#wanted;
    this.#choose({ ...this.#sight(), open: open.includes(rank) ? open.filter((one) => one !== rank) : [...open, rank] }, true);
  }

  #pin(group: number): void {
    const { rank } = this.state.model.groups[group]!;
    if (rank === null) return;
    const { pinned } = this.#wanted;
    this.#choose({ ...this.#sight(), pinned: pinned.includes(rank) ? pinned.filter((one) => one !== rank) : [...pinned, rank] });
  }

  /** An event, a stretch of a row, an area, or nothing; an area that is not `done` is only drawn. */
  #select(target: Target | null, more: Partial<Selection> = {}, drawn: Area | null = null, done = true): void {
    const { state } = this;
    const area = drawn ?? (target && target.item === null ? stretchOf(state, target) : null);
    state.selected = target;
    state.area = area;
    if (target) state.cursor = target.group;
    if (done && !this.#hasRanks) this.#pane.tell(this.#wanted);
    else if (done) {
      const ranks = area ? area.groups.flatMap((group) => state.model.groups[group]!.rank ?? []) : [];
      const { rank } = target ? state.model.groups[target.group]! : { rank: null };
      const event = target?.item !== null && target && rank !== null ? ([rank, target.lane!.items.event[target.item]!] as [number, number]) : null;
      const time = area ? ([Math.round(area.start), Math.round(area.stop)] as [number, number]) : null;
      this.#choose({ ...this.#sight(), event, time, ranks, steps: null, ...more });
    }
    this.redraw();
  }

  #zoom(start: number, stop: number): void {
    this.state.view.show(start - 0.3 * (stop - start), stop + 0.3 * (stop - start));
    this.redraw();
  }

  #hover(target: Target | null, x: number, y: number): void {
    const counter = (): string => counterAt(this.state, this.#painter, this.#body.scrollTop, [x, y]);
    const said = x < this.#painter.labels ? "" : target ? this.#short(target) : counter();
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
    return [kind, formatNs(stop - start), group.name, meaning(kind, this.around.glossary)].filter(Boolean).join(" · ");
  }

  #heard(): Heard {
    return {
      changed: () => this.#arrived(),
      say: (text) => {
        this.#unloaded.textContent = text;
        this.#unloaded.hidden = !text;
      },
      first: () => {
        const { layout } = this.state;
        return layout.rows[layout.under(layout.fixed, this.#body.scrollTop)]?.group ?? 0;
      },
    };
  }

  /** Events that were asked for are there: what a link selects or somebody searches for may be among them. */
  #arrived(): void {
    const { selected } = this.state;
    find(this.state, this.#wanted);
    this.#pane.tell(this.#wanted);
    this.#search.renew();
    if (eventKindsOf(this.state).join() !== this.#eventKinds) this.#explain();
    this.#changed();
    if (this.state.selected && !selected && this.#wanted.top === null) this.#revealSelected();
  }

  #changed(): void {
    this.#fit();
    this.redraw();
  }

  #fit(): void {
    const width = this.#body.clientWidth;
    if (!width) return;
    const labels = width < NARROW ? 92 : 128;
    const height = Math.min(Math.max(LEAST_TALL, Math.round(TALLEST * innerHeight)), this.state.layout.height + 2);
    const foot = this.state.model.marks.length ? FOOT : 0;
    this.#body.style.setProperty("height", `${height + AXIS + foot}px`);
    this.#spacer.style.setProperty("height", `${Math.max(0, this.state.layout.height + 2 - height)}px`);
    if (width !== this.#painter.width + this.#painter.labels || height !== this.#painter.height) {
      this.#painter.resize(width, height, labels, foot);
      this.#minimap.resize(width, labels, this.#palette);
    }
    if (!this.#isPlaced) {
      this.#isPlaced = true;
      this.#scroll(NOTHING);
    }
    this.redraw();
  }

  /** Says what the colours mean. */
  #explain(): void {
    this.#eventKinds = eventKindsOf(this.state).join();
    this.#legend.replaceChildren(legend(this.state, this.around.glossary, () => this.redraw()));
  }

  #recolour(): void {
    this.#palette = new Palette();
    this.#explain();
    this.#painter.width = 0;
    this.#fit();
    // At once: a page that goes to a printer has no further frame.
    if (this.element.isConnected) this.#paint();
  }
}

function stretchOf(state: State, target: Target): Area | null {
  if (!state.model.strips) return null;
  const [start, stop] = edges(state, target);
  return { start, stop, groups: [target.group] };
}

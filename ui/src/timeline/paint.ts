// One frame of a timeline. What it costs depends on the pixels, not on how many events there are: a row is one line of
// pixels that is then repeated, and of events that share a pixel only the first is looked at.

import { firstOver } from "./columns";
import { type Arrow, arrowsOf } from "./arrows";
import { counters } from "./counters";
import { AXIS, type Frame, axis, outline, rowNames } from "./furniture";
import type { Layout, Row } from "./layout";
import { middleCut } from "./names";
import { overlay } from "./overlay";
import { type Palette, plain } from "./palette";
import { PixelLine } from "./pixel-line";
import { Pyramid } from "./pyramid";
import type { State } from "./state";

const SMALL = "10px ui-monospace, monospace";
const LETTER = 6.1;

export class Painter {
  readonly #context: CanvasRenderingContext2D;
  readonly #buffer = document.createElement("canvas");
  readonly #drawn: CanvasRenderingContext2D;
  #image = new ImageData(1, 1);
  #pixels = new Uint32Array(1);
  #line = new PixelLine(1);
  #texts: [text: string, ink: string, x: number, y: number][] = [];
  #foot = 0;
  #arrowsFor: unknown[] = [];
  #found: Arrow[] = [];
  width = 1;
  height = 1;
  labels = 100;

  constructor(readonly canvas: HTMLCanvasElement) {
    this.#context = canvas.getContext("2d", { alpha: false })!;
    this.#drawn = this.#buffer.getContext("2d", { alpha: false })!;
  }

  /** For rows of so much height in all; `foot` is what stands below them. */
  resize(width: number, height: number, labels: number, foot: number): void {
    const ratio = devicePixelRatio || 1;
    this.labels = labels;
    this.width = Math.max(1, Math.floor(width) - labels);
    this.height = Math.max(1, Math.floor(height));
    this.#foot = foot;
    this.canvas.width = Math.floor((this.width + labels) * ratio);
    this.canvas.height = Math.floor((this.height + AXIS + foot) * ratio);
    this.#context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.#buffer.width = this.width;
    this.#buffer.height = this.height;
    this.#image = new ImageData(this.width, this.height);
    this.#pixels = new Uint32Array(this.#image.data.buffer);
    this.#line = new PixelLine(this.width);
  }

  paint(state: State, palette: Palette, scroll: number): void {
    this.#pixels.fill(palette.ground);
    this.#texts = [];
    const rows = this.#visible(state.layout, scroll);
    for (const row of rows) this.#row(row, state, palette, scroll);
    this.#drawn.putImageData(this.#image, 0, 0);
    const context = this.#context;
    context.imageSmoothingEnabled = false;
    context.fillStyle = palette.page;
    context.fillRect(0, 0, this.labels + this.width, this.height + AXIS + this.#foot);
    context.drawImage(this.#buffer, this.labels, AXIS);
    this.#names();
    const frame: Frame = { context, width: this.width, height: this.height, labels: this.labels, scroll, palette };
    counters(frame, state, rows);
    axis(frame, state);
    rowNames(frame, state, rows, document.activeElement === this.canvas || state.pointed !== null);
    outline(frame, state);
    overlay(frame, state, this.#arrows(state));
  }

  /** Rows in sight: those that stay on top, then the others. */
  #visible(layout: Layout, scroll: number): Row[] {
    const { rows, fixed } = layout;
    const stay = rows.filter((row) => row.fixed);
    const first = Math.max(stay.length, layout.at(scroll + fixed));
    let last = first;
    while (last < rows.length && rows[last]!.top < scroll + this.height) last++;
    return [...stay, ...rows.slice(first, last)];
  }

  /** Looked for once for a selection: a frame of a moving picture has no time for it. */
  #arrows(state: State): Arrow[] {
    const key = [state.selected, state.area, state.selected?.lane?.items ?? null];
    if (!key.every((part, place) => part === this.#arrowsFor[place])) {
      this.#arrowsFor = key;
      this.#found = arrowsOf(state);
    }
    return this.#found;
  }

  #row(row: Row, state: State, palette: Palette, scroll: number): void {
    this.#line.clear(row.level || row.counter ? palette.card : palette.ground);
    if (row.level) this.#events(row, state, palette, scroll);
    else if (!row.counter) this.#strip(row, state, palette);
    const gap = row.height >= 6 ? 1 : 0;
    const y = state.layout.y(row, scroll);
    const top = Math.max(row.fixed ? 0 : state.layout.fixed, Math.floor(y));
    const bottom = Math.min(this.height, Math.floor(y + row.height - gap));
    this.#line.repeat(this.#pixels, top, bottom);
  }

  #strip(row: Row, state: State, palette: Palette): void {
    const { model, view } = state;
    const pyramid = model.strips!;
    const bare = plain(palette.card);
    const colours = [bare, ...model.kinds.map((kind) => (state.hidden.has(kind) ? bare : palette.of(kind)))];
    const bins = (pyramid.bins * view.width) / model.span / this.width;
    const level = Pyramid.levelFor(bins);
    const codes = pyramid.level(model.groups[row.group]!.strip!, level);
    const scale = 2 ** level;
    const step = bins / scale;
    this.#line.sample(codes, (pyramid.bins * view.start) / model.span / scale + step / 2, step, colours);
  }

  #events(row: Row, state: State, palette: Palette, scroll: number): void {
    const { start, stop, item } = row.level!;
    const { items } = row.lane!;
    const { view } = state;
    const line = this.#line;
    const named = state.named(items);
    const scale = this.width / view.width;
    const wait = palette.of("comm.wait");
    const bare = plain(palette.card);
    const colours = items.kinds.map((kind) => (state.hidden.has(kind) ? null : palette.of(kind)));
    const y = AXIS + row.top - scroll + row.height / 2 + 3;
    let place = firstOver(stop, view.start);
    while (place < start.length && start[place]! < view.stop) {
      const one = item[place]!;
      const left = (start[place]! - view.start) * scale;
      const right = (stop[place]! - view.start) * scale;
      const x = Math.max(0, left | 0);
      const end = Math.min(this.width, Math.max(x + 1, right | 0));
      const colour = colours[items.kind[one]!];
      const dim = named !== null && !named[items.name[one]!];
      if (colour) {
        line.fill(dim ? plain(colour.faint) : colour, x, end);
        const met = dim ? x : Math.max(x, Math.min(end, (left + items.wait[one]! * scale) | 0));
        if (met > x) line.fill(wait, x, met);
        if (end - x > 3 && right <= this.width) line.fill(bare, end - 1, end);
        // Where there is more room: no ink reads well on both.
        const [from, to, ink] = met - x > end - met ? [x, met, wait.ink] : [met, end, colour.ink];
        if (to - from > 12 && !dim && y > AXIS + state.layout.fixed + 8) this.#text(items.names[items.name[one]!]!, ink, from, to, y);
      }
      place = right - left >= 1 ? place + 1 : Math.max(place + 1, firstOver(stop, view.start + (x + 1) / scale, place));
    }
  }

  #text(name: string, ink: string, x: number, end: number, y: number): void {
    if (y > this.height + AXIS) return;
    const letters = Math.floor((end - x - 4) / LETTER);
    if (letters < Math.min(4, name.length)) return;
    this.#texts.push([middleCut(name, letters), ink, this.labels + x + 3, y]);
  }

  #names(): void {
    const context = this.#context;
    context.font = SMALL;
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    for (const [text, ink, x, y] of this.#texts) {
      context.fillStyle = ink;
      context.fillText(text, x, y);
    }
  }
}

// The whole time in one strip of all rows together, with the part that is shown: drag it to go elsewhere.

import { h } from "../dom";
import { capture } from "./capture";
import { type Palette, pixelAt, plain } from "./palette";
import type { State } from "./state";

const HEIGHT = 26;
const MOST_ROWS = 64;

export class Minimap {
  readonly canvas = h("canvas", { class: "minimap", "aria-hidden": "true" }) as HTMLCanvasElement;
  readonly #context = this.canvas.getContext("2d", { alpha: false })!;
  #picture: ImageData | null = null;
  #labels = 0;

  constructor(
    readonly state: State,
    redraw: () => void,
  ) {
    const go = (event: PointerEvent): void => {
      const box = this.canvas.getBoundingClientRect();
      const share = (event.clientX - box.left - this.#labels) / Math.max(1, box.width - this.#labels);
      const middle = share * state.model.span;
      state.view.show(middle - state.view.width / 2, middle + state.view.width / 2);
      redraw();
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      capture(this.canvas, event);
      go(event);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) go(event);
    });
  }

  resize(width: number, labels: number, palette: Palette): void {
    this.#labels = labels;
    this.canvas.width = Math.max(1, width);
    this.canvas.height = HEIGHT;
    this.#picture = this.#shares(Math.max(1, width - labels), palette);
  }

  paint(palette: Palette): void {
    const context = this.#context;
    const { view, model } = this.state;
    const width = this.canvas.width - this.#labels;
    context.fillStyle = palette.page;
    context.fillRect(0, 0, this.canvas.width, HEIGHT);
    if (this.#picture) context.putImageData(this.#picture, this.#labels, 0);
    const x = this.#labels + (view.start / model.span) * width;
    const size = Math.max(3, (view.width / model.span) * width);
    context.globalAlpha = 0.6;
    context.fillRect(this.#labels, 0, x - this.#labels, HEIGHT);
    context.fillRect(x + size, 0, width, HEIGHT);
    context.globalAlpha = 1;
    context.strokeStyle = palette.text;
    context.lineWidth = 2;
    context.strokeRect(x + 1, 1, size - 2, HEIGHT - 2);
  }

  /** For each column what rows were doing, as shares of its height, in the order of kinds from below. */
  #shares(width: number, palette: Palette): ImageData {
    const { model } = this.state;
    const image = new ImageData(width, HEIGHT);
    const pixels = new Uint32Array(image.data.buffer).fill(palette.card);
    const strips = model.strips;
    if (!strips) return image;
    const every = Math.ceil(strips.rows / MOST_ROWS);
    const colours = [plain(palette.card), ...model.kinds.map((kind) => palette.of(kind))];
    for (let x = 0; x < width; x++) {
      const tally = new Float64Array(colours.length);
      const first = strips.binAt(x / width);
      const last = Math.max(first + 1, strips.binAt((x + 1) / width));
      for (let row = 0; row < strips.rows; row += every) {
        const codes = strips.level(row, 0);
        for (let bin = first; bin < last; bin++) tally[codes[bin]!]!++;
      }
      const whole = tally.reduce((a, b) => a + b);
      let sum = 0;
      for (const kind of [...colours.keys()].slice(1)) {
        const from = Math.round((sum / whole) * HEIGHT);
        sum += tally[kind]!;
        for (let y = HEIGHT - 1 - from; y > HEIGHT - 1 - Math.round((sum / whole) * HEIGHT); y--) {
          pixels[y * width + x] = pixelAt(colours[kind]!, x, y);
        }
      }
    }
    return image;
  }
}

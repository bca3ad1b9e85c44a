// One line of pixels that a row of a timeline repeats downwards. Where it is hatched, stripes shift from line to line.

import { PERIOD, isStripe } from "../hatching";
import type { Colour } from "./palette";

export class PixelLine {
  readonly #pixels: Uint32Array;
  /** Hatched stretches from left to right, without overlaps. A frame has thousands: they are no objects. */
  readonly #from: Uint32Array;
  readonly #to: Uint32Array;
  readonly #colours: Colour[] = [];
  #count = 0;

  constructor(readonly width: number) {
    this.#pixels = new Uint32Array(width);
    this.#from = new Uint32Array(width);
    this.#to = new Uint32Array(width);
  }

  clear(pixel: number): void {
    this.#count = 0;
    this.#pixels.fill(pixel);
  }

  /** Fills a stretch that begins no further left than those before it. */
  fill(colour: Colour, from: number, to: number): void {
    if (to <= from) return;
    this.#pixels.fill(colour.pixel, from, to);
    this.#mark(colour, from, to);
  }

  /** Takes all pixels from codes, which stand for colours: that at `at` is the first, the next is `step` after it. */
  sample(codes: Uint8Array, at: number, step: number, colours: Colour[]): void {
    const pixels = this.#pixels;
    let from = 0;
    let code = 0;
    let colour = colours[code]!;
    let { pixel } = colour;
    for (let x = 0; x < pixels.length; x++, at += step) {
      const next = codes[at | 0] ?? 0;
      if (next !== code) {
        this.#mark(colour, from, x);
        from = x;
        code = next;
        colour = colours[code] ?? colours[0]!;
        pixel = colour.pixel;
      }
      pixels[x] = pixel;
    }
    this.#mark(colour, from, pixels.length);
  }

  #mark(colour: Colour, from: number, to: number): void {
    const last = this.#count - 1;
    if (last >= 0 && this.#to[last]! > from) this.#to[last] = from;
    if (last >= 0 && this.#to[last] === this.#from[last]) this.#count--;
    if (colour.ground === colour.pixel || from === to) return;
    this.#from[this.#count] = from;
    this.#to[this.#count] = to;
    this.#colours[this.#count++] = colour;
  }

  /** Writes the lines from `top` up to `bottom` of a picture that is as wide. */
  repeat(picture: Uint32Array, top: number, bottom: number): void {
    const { width } = this;
    for (let y = top; y < bottom; y++) {
      const start = y * width;
      if (this.#count && y - top >= PERIOD) {
        picture.copyWithin(start, start - PERIOD * width, start - (PERIOD - 1) * width);
      } else {
        picture.set(this.#pixels, start);
        this.#hatch(picture, y);
      }
    }
  }

  /** Leaves stripes of what is in a line. */
  #hatch(picture: Uint32Array, y: number): void {
    const start = y * this.width;
    for (let place = 0; place < this.#count; place++) {
      const { ground, isFalling } = this.#colours[place]!;
      const to = this.#to[place]!;
      for (let x = this.#from[place]!; x < to; x++) if (!isStripe(x, y, isFalling)) picture[start + x] = ground;
    }
  }
}

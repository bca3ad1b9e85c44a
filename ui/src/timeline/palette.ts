// Colours of kinds as pixels: lines of the ledger as everywhere, kinds of events by what they would be on a line.

import { backgroundOf, colourOf, resolved } from "../colours";
import { hatchOf, isStripe } from "../hatching";
import { channels, inkOn } from "../palette";

const LIKE: Record<string, string> = {
  kernel: "compute",
  comm: "comm.transfer",
  host_comm: "comm.transfer",
  memcpy: "copy",
  memset: "copy",
  sync: "idle.dependency",
  overhead: "idle",
};
const EVENTS: Record<string, string> = {
  op: "--event-op",
  runtime: "--event-runtime",
  annotation: "--event-annotation",
  device_annotation: "--event-annotation",
  module: "--event-module",
  python: "--event-python",
};

/** What CSS takes as a background. */
export function backgroundOfKind(kind: string): string {
  return Object.hasOwn(EVENTS, kind) ? `var(${EVENTS[kind]})` : backgroundOf(lineOf(kind));
}

function lineOf(kind: string): string {
  return Object.hasOwn(LIKE, kind) ? LIKE[kind]! : kind;
}

export interface Colour {
  pixel: number;
  /** Between the stripes of a wait; the same pixel for all else. */
  ground: number;
  /** Whether stripes fall to the right. */
  isFalling: boolean;
  /** For what is not searched for. */
  faint: number;
  /** Black or white, whichever is read better on it. */
  ink: string;
}

/** A colour without stripes. */
export function plain(pixel: number): Colour {
  return { pixel, ground: pixel, isFalling: false, faint: pixel, ink: "" };
}

/** A colour at a place of the screen. */
export function pixelAt(colour: Colour, x: number, y: number): number {
  return isStripe(x, y, colour.isFalling) ? colour.pixel : colour.ground;
}

function pixelOf(css: string): number {
  const [red, green, blue] = channels(css);
  // Canvases keep red in the lowest byte on all machines that browsers run on.
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function faded(pixel: number, ground: number): number {
  const mix = (shift: number): number => Math.round(0.22 * ((pixel >>> shift) & 255) + 0.78 * ((ground >>> shift) & 255));
  return ((255 << 24) | (mix(16) << 16) | (mix(8) << 8) | mix(0)) >>> 0;
}

/** All colours of one theme, each looked up once. */
export class Palette {
  readonly #known = new Map<string, Colour>();
  readonly ground = pixelOf(resolved("--page"));
  readonly card = pixelOf(resolved("--card"));
  readonly page = resolved("--page");
  readonly text = resolved("--text");
  readonly muted = resolved("--muted");
  readonly rule = resolved("--rule");
  readonly accent = resolved("--accent");
  /** For what is predicted. */
  readonly good = resolved("--good");
  /** For arrows from who is late. */
  readonly cause = resolved("--bad");

  of(kind: string): Colour {
    let found = this.#known.get(kind);
    if (!found) this.#known.set(kind, (found = this.#made(kind)));
    return found;
  }

  #made(kind: string): Colour {
    const event = Object.hasOwn(EVENTS, kind);
    const colour = event ? resolved(EVENTS[kind]!) : colourOf(lineOf(kind));
    const hatch = event ? null : hatchOf(lineOf(kind));
    const pixel = pixelOf(colour);
    const ground = hatch ? pixelOf(hatch.ground) : pixel;
    return { pixel, ground, isFalling: hatch?.isFalling ?? false, faint: faded(pixel, this.card), ink: inkOn(colour, hatch?.ground ?? colour) };
  }
}

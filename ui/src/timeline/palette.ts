// Colours of kinds as pixels: lines of the ledger as everywhere, kinds of events by what they would be on a line.

import { colourOf, resolved } from "../colours";
import { channels, inkOn } from "../palette";

const LIKE: Record<string, string> = {
  kernel: "compute",
  comm: "comm.transfer",
  host_comm: "comm.transfer",
  memcpy: "copy",
  memset: "copy",
  sync: "idle.sync",
  overhead: "idle.host",
  other: "idle.host",
};
const OWN: Record<string, string> = {
  op: "#3c9d84",
  runtime: "#8d8fb3",
  annotation: "#b58bb0",
  device_annotation: "#b58bb0",
  module: "#c9a8d8",
  python: "#c9bf4a",
  // Not the colours of waits and bubbles, which stand between them.
  forward: "#0072b2",
  backward: "#009e73",
};

export function colourOfKind(kind: string): string {
  if (Object.hasOwn(OWN, kind)) return OWN[kind]!;
  return colourOf(Object.hasOwn(LIKE, kind) ? LIKE[kind]! : kind);
}

export interface Colour {
  pixel: number;
  /** For what is not searched for. */
  faint: number;
  /** Black or white, whichever is read better on it. */
  ink: string;
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

  of(kind: string): Colour {
    let found = this.#known.get(kind);
    if (!found) {
      const colour = colourOfKind(kind);
      const pixel = pixelOf(colour);
      this.#known.set(kind, (found = { pixel, ink: inkOn(colour), faint: faded(pixel, this.card) }));
    }
    return found;
  }
}

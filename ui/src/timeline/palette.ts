// Colours of kinds as pixels: lines of the ledger as everywhere, kinds of events by what they would be on a line.

import { colourOf, resolved } from "../colours";

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

const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

function pixelOf(css: string): Pick<Colour, "pixel" | "ink"> {
  if (!probe) return { pixel: 0xff808080, ink: "#000" };
  probe.clearRect(0, 0, 1, 1);
  probe.fillStyle = css;
  probe.fillRect(0, 0, 1, 1);
  const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data as unknown as [number, number, number];
  // Canvases keep red in the lowest byte on all machines that browsers run on.
  const pixel = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  return { pixel, ink: 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#10141a" : "#ffffff" };
}

function faded(pixel: number, ground: number): number {
  const mix = (shift: number): number => Math.round(0.22 * ((pixel >>> shift) & 255) + 0.78 * ((ground >>> shift) & 255));
  return ((255 << 24) | (mix(16) << 16) | (mix(8) << 8) | mix(0)) >>> 0;
}

/** All colours of one theme, each looked up once. */
export class Palette {
  readonly #known = new Map<string, Colour>();
  readonly ground = pixelOf(resolved("--page")).pixel;
  readonly card = pixelOf(resolved("--card")).pixel;
  readonly page = resolved("--page");
  readonly text = resolved("--text");
  readonly muted = resolved("--muted");
  readonly rule = resolved("--rule");
  readonly accent = resolved("--accent");

  of(kind: string): Colour {
    let found = this.#known.get(kind);
    if (!found) {
      const { pixel, ink } = pixelOf(colourOfKind(kind));
      this.#known.set(kind, (found = { pixel, ink, faint: faded(pixel, this.card) }));
    }
    return found;
  }
}

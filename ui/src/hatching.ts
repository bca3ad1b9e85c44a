// Hatching, the look of waits: stripes on a tint, on SVG, in CSS and on canvases alike. Of 8 pixels in a line 3 are stripe.
// Stripes of waits rise to the right; those of bubbles fall, so that the two differ without any colour, too.

import { HATCHED, resolved, variableOf } from "./colours";
import { s } from "./dom";
import { inkOn } from "./palette";

/** Pixels from one stripe to the next, along a line and down a column: a power of two. */
export const PERIOD = 8;
const STRIPE = 3;
const FALLING = "--bubble";

/** The patterns that paintOf names. A page holds them once; a picture that leaves the page takes a copy. */
export function hatches(): SVGElement {
  return s("svg", { class: "hatches", "aria-hidden": "true" }, s("defs", {}, ...[...HATCHED].map(pattern)));
}

function pattern(variable: string): SVGElement {
  // Turned by 45 degrees, so that the period along a line of pixels is that of canvases.
  const width = PERIOD * Math.SQRT1_2;
  const place = { width, height: width, patternUnits: "userSpaceOnUse" };
  return s(
    "pattern",
    { id: `hatch${variable}`, ...place, patternTransform: `rotate(${variable === FALLING ? -45 : 45})` },
    s("rect", { width, height: width, fill: `var(${variable}-ground)` }),
    s("rect", { width: STRIPE * Math.SQRT1_2, height: width, fill: `var(${variable})` }),
  );
}

/** Whether a pixel is on a stripe. */
export function isStripe(x: number, y: number, isFalling: boolean): boolean {
  return ((isFalling ? x - y : x + y) & (PERIOD - 1)) < STRIPE;
}

/** The colour between stripes, and whether these fall; null for a kind that is not hatched. */
export function hatchOf(kind: string): { ground: string; isFalling: boolean } | null {
  const variable = variableOf(kind);
  return HATCHED.has(variable) ? { ground: resolved(`${variable}-ground`), isFalling: variable === FALLING } : null;
}

/** What a canvas fills with, and what it writes on that with. */
export function fillOf(pen: CanvasRenderingContext2D, kind: string): { fill: string | CanvasPattern; ink: string } {
  const colour = resolved(variableOf(kind));
  const hatch = hatchOf(kind);
  if (!hatch) return { fill: colour, ink: inkOn(colour) };
  const tile = new OffscreenCanvas(PERIOD, PERIOD);
  const brush = tile.getContext("2d")!;
  for (let y = 0; y < PERIOD; y++) {
    for (let x = 0; x < PERIOD; x++) {
      brush.fillStyle = isStripe(x, y, hatch.isFalling) ? colour : hatch.ground;
      brush.fillRect(x, y, 1, 1);
    }
  }
  return { fill: pen.createPattern(tile, "repeat")!, ink: inkOn(colour, hatch.ground) };
}

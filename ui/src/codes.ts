// The colours of a flame graph: whose code each frame is.

import { h, s } from "./dom";
import { colourAt } from "./palette";

/** As in show/report/colours.py; kinds of another vocabulary get colours by their place. */
const CODES: Record<string, string> = { program: "#d3cc80", torch: "#8dc3fd", library: "#9fa3a8", lostflops: "#81a586" };

/** A colour or the variable of one, by kind. Lines of the ledger have colours of their own. */
export function coloursOf(kinds: string[]): Map<string, string> {
  const found = [...new Set(kinds)].filter((kind) => kind && kind !== "line").sort();
  return new Map(found.map((kind, place) => [kind, Object.hasOwn(CODES, kind) ? CODES[kind]! : colourAt(place)]));
}

export function legend(kinds: string[]): Element {
  const entries = [...coloursOf(kinds)].map(([kind, colour]) => {
    const fill = colour.startsWith("--") ? `var(${colour})` : colour;
    const square = s("path", { d: "M0 0h12v12h-12z", fill });
    return h("li", {}, s("svg", { width: 12, height: 12, "aria-hidden": "true" }, square), kind);
  });
  const how = h("li", { class: "muted" }, "Width is the time in a frame and everything it calls. Click to zoom in, press Escape to zoom out.");
  return h("ul", { class: "chart-legend" }, ...entries, how);
}

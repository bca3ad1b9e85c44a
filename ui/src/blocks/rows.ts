// The rows of a long table that are in sight, in a box of its own that scrolls.

import { h } from "../dom";

const HEIGHT = 28;
const BEYOND = 20;

/** Fills `body` with the rows near the scroll position of `box`, and room for the others. Call it again after scrolling. */
export function windowed(box: HTMLElement, body: HTMLElement, count: number, row: (place: number) => HTMLElement): void {
  const first = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - BEYOND);
  const last = Math.min(count, first + Math.ceil((box.clientHeight || 600) / HEIGHT) + 2 * BEYOND);
  const rows = Array.from({ length: last - first }, (_, place) => row(first + place));
  body.replaceChildren(room(first), ...rows, room(count - last));
}

function room(rows: number): HTMLElement {
  const element = h("tr", { "aria-hidden": true, class: "room" });
  element.style.setProperty("height", `${rows * HEIGHT}px`);
  return element;
}

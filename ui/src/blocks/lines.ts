import type { Lines } from "../types";
import { h } from "../dom";

export function drawLines(block: Lines): Element {
  return h("p", { class: "muted" }, `${block.kind} is not drawn yet.`);
}

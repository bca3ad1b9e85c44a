import type { Plot } from "../types";
import { h } from "../dom";

export function drawPlot(block: Plot): Element {
  return h("p", { class: "muted" }, `${block.kind} is not drawn yet.`);
}

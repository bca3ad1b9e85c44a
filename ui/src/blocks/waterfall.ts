import type { Waterfall } from "../types";
import { h } from "../dom";

export function drawWaterfall(block: Waterfall): Element {
  return h("p", { class: "muted" }, `${block.kind} is not drawn yet.`);
}

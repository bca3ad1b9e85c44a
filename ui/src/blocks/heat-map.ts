import type { HeatMap } from "../types";
import { h } from "../dom";

export function drawHeatMap(block: HeatMap): Element {
  return h("p", { class: "muted" }, `${block.kind} is not drawn yet.`);
}

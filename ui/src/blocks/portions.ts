import type { Portions } from "../types";
import { h } from "../dom";

export function drawPortions(block: Portions): Element {
  return h("p", { class: "muted" }, `${block.kind} is not drawn yet.`);
}

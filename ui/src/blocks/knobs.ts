import type { Knobs } from "../types";
import { h } from "../dom";

export function drawKnobs(block: Knobs): Element {
  return h("p", { class: "muted" }, `${block.kind} is not drawn yet.`);
}

import type { Stacks } from "../types";
import { h } from "../dom";

export function drawStacks(block: Stacks): Element {
  return h("p", { class: "muted" }, `${block.kind} is not drawn yet.`);
}

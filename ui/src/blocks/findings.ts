import type { Findings } from "../types";
import { h } from "../dom";

export function drawFindings(block: Findings): Element {
  return h("p", { class: "muted" }, `${block.kind} is not drawn yet.`);
}

import type { Strips } from "../types";
import { h } from "../dom";

export function drawStrips(block: Strips): Element {
  return h("p", { class: "muted" }, `${block.kind} is not drawn yet.`);
}

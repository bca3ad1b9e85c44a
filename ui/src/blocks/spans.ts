import type { Spans } from "../types";
import { h } from "../dom";

export function drawSpans(block: Spans): Element {
  return h("p", { class: "muted" }, `${block.kind} is not drawn yet.`);
}

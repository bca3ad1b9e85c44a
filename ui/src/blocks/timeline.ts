import type { Timeline } from "../types";
import { h } from "../dom";

export function drawTimeline(block: Timeline): Element {
  return h("p", { class: "muted" }, `${block.kind} is not drawn yet.`);
}

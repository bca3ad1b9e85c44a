import { h } from "../dom";
import type { Live } from "../timeline/live";
import { ofStrips } from "../timeline/model";
import { Timeline } from "../timeline/timeline";
import type { Strips } from "../types";
import type { Context } from "./index";

export function drawStrips(block: Strips, context: Context): Element {
  if (!block.rows.length || block.span <= 0) return h("p", { class: "muted" }, "There is nothing to show.");
  const { live } = context.source as { live?: Live };
  const model = ofStrips(block, (blob) => context.source.numbers(blob));
  const timeline = new Timeline(model, context.source.page.glossary, live);
  document.addEventListener("lostflops:show", (event) => {
    const { rank, event: number, step } = (event as CustomEvent<{ rank: number; event?: number; step?: number }>).detail;
    if (timeline.showRank(rank, number, step)) timeline.element.scrollIntoView({ block: "center" });
  });
  return timeline.element;
}

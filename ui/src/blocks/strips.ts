import { h } from "../dom";
import { ofStrips } from "../timeline/model";
import { Timeline } from "../timeline/timeline";
import type { Strips } from "../types";
import { SHOW, type Place } from "./evidence";
import type { Context } from "./index";

export function drawStrips(block: Strips, context: Context): Element {
  if (!block.rows.length || block.span <= 0) return h("p", { class: "muted" }, "Nothing to show.");
  const model = ofStrips(block, (blob) => context.source.numbers(blob));
  const timeline = new Timeline(model, context.source.page.glossary, context.source.live);
  document.addEventListener(SHOW, (event) => {
    if (!timeline.showRank((event as CustomEvent<Place>).detail)) return;
    timeline.focus();
    timeline.element.scrollIntoView({ block: "center" });
  });
  return timeline.element;
}

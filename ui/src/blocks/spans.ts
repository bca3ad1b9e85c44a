import { h } from "../dom";
import { ofSpans } from "../timeline/model";
import { Timeline } from "../timeline/timeline";
import type { Spans } from "../types";
import { draw } from "./index";
import type { Context } from "./index";

export function drawSpans(block: Spans, context: Context): Element {
  if (!block.items.length) return h("p", { class: "muted" }, "Nothing to show.");
  const { element } = new Timeline(ofSpans(block), { glossary: context.source.page.glossary, live: undefined, totals: null, draw: (one) => draw(one, context) });
  const rest = block.left_out ? h("p", { class: "muted" }, `${block.left_out.toLocaleString("en-US")} more are not on this page.`) : null;
  return h("div", {}, element, rest);
}

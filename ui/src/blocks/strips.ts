import { h } from "../dom";
import { onPrediction } from "../predictions";
import { onSelection, select, selected } from "../selection";
import { fileTotals } from "../timeline/file-totals";
import { type Model, ofStrips } from "../timeline/model";
import { Timeline } from "../timeline/timeline";
import { liveTotals } from "../timeline/totals";
import type { Strips } from "../types";
import { draw as drawBlock } from "./index";
import type { Context } from "./index";

export function drawStrips(block: Strips, context: Context): Element {
  if (!block.rows.length || block.span <= 0) return h("p", { class: "muted" }, "Nothing to show.");
  const { page, live } = context.source;
  const model = ofStrips(block, (blob) => context.source.numbers(blob));
  const timeline = new Timeline(model, {
    glossary: page.glossary,
    live,
    // A server sums ranks of its own run. Rows of a comparison are not ranks, so it does not know them.
    totals: live && hasRanks(model) ? liveTotals(model, live) : fileTotals(block, model, (blob) => context.source.numbers(blob)),
    draw: (one) => drawBlock(one, context),
  });
  if (hasRanks(model)) link(timeline);
  return timeline.element;
}

function hasRanks(model: Model): boolean {
  return model.groups.every((group) => group.rank !== null);
}

/** Shows what is selected anywhere on the page, and selects for all of it. */
function link(timeline: Timeline): void {
  timeline.choose = select;
  onSelection((now) => timeline.follow(now));
  onPrediction(() => timeline.follow(selected()));
  timeline.follow(selected());
}

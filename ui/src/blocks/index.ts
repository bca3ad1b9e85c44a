// How each kind of block is drawn. A page knows kinds of blocks and no analysis by name.

import type { Source } from "../source";
import type { Block } from "../types";
import { h } from "../dom";
import { label } from "../glossary";
import { saveMenu } from "../take/save";
import { drawFindings } from "./findings";
import { drawHeatMap } from "./heat-map";
import { drawKnobs } from "./knobs";
import { drawLines } from "./lines";
import { drawPairs, drawSection } from "./pairs";
import { drawPlot } from "./plot";
import { drawPortions } from "./portions";
import { drawSpans } from "./spans";
import { drawSql } from "./sql";
import { drawStacks } from "./stacks";
import { drawStrips } from "./strips";
import { drawTable } from "./table";
import { drawTimeline } from "./timeline";
import { drawTrace } from "./trace";
import { drawWaterfall } from "./waterfall";

export interface Context {
  source: Source;
}

type Draw<B extends Block> = (block: B, context: Context) => Element;
type Drawings = { [K in Block["kind"]]: Draw<Extract<Block, { kind: K }>> };

const DRAWINGS: Drawings = {
  Findings: drawFindings,
  HeatMap: drawHeatMap,
  Knobs: drawKnobs,
  Lines: drawLines,
  Pairs: drawPairs,
  Plot: drawPlot,
  Portions: drawPortions,
  Section: drawSection,
  Spans: drawSpans,
  Sql: drawSql,
  Stacks: drawStacks,
  Strips: drawStrips,
  Table: drawTable,
  Timeline: drawTimeline,
  Trace: drawTrace,
  Waterfall: drawWaterfall,
};

export function draw(block: Block, context: Context): Element {
  const title = block.title ? h("h3", {}, ...label(block.title)) : null;
  const drawing = drawn(block, context);
  const save = saveMenu(block, drawing, context.source);
  return h("section", { class: `block ${block.kind}`, "data-block": block.name }, title, save, drawing);
}

/** One block that cannot be drawn must not take the page with it. */
function drawn(block: Block, context: Context): Element {
  try {
    return (DRAWINGS[block.kind] as Draw<Block>)(block, context);
  } catch (error) {
    console.error(error);
    return h("p", { class: "undrawn" }, `Could not draw this: ${String(error)}`);
  }
}

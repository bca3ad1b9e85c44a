import type { Pair, Pairs, Section } from "../types";
import { h } from "../dom";
import { formatValue } from "../units";
import { drawTable } from "./table";

export function drawPairs(block: Pick<Pairs, "items">): Element {
  const shown = block.items.filter((pair) => pair.shown);
  return h("dl", {}, ...shown.flatMap((pair) => [h("dt", {}, pair.label || pair.name), h("dd", {}, said(pair))]));
}

export function drawSection(block: Section): Element {
  return h("div", {}, drawPairs(block), drawTable(block.table));
}

function said(pair: Pair): string {
  const values = Array.isArray(pair.value) ? pair.value : [pair.value];
  return values.map((value) => formatValue(value, pair.unit)).join(", ") || "-";
}

// Single figures, each below its name.

import { h } from "../dom";
import { label, term } from "../glossary";
import type { Pair, Pairs, Section } from "../types";
import { formatValue, formatValues } from "../units";
import { headOf } from "./table-cells";
import { drawTable } from "./table";
import "./pairs.css";

export function drawPairs(block: Pick<Pairs, "items">): Element {
  const shown = block.items.filter((pair) => pair.shown);
  return h("dl", { class: "pairs" }, ...shown.map((pair) => figure(pair)));
}

export function drawSection(block: Section): Element {
  return h("div", {}, drawPairs(block), drawTable(block.table));
}

function figure(pair: Pair): HTMLElement {
  const value = Array.isArray(pair.value) ? formatValues(pair.value, pair.unit) : formatValue(pair.value, pair.unit);
  return h("div", {}, h("dt", {}, ...label(headOf(pair))), h("dd", { "data-name": pair.name }, term(value)));
}

// Files of what a block shows: a picture of a chart, and the exact values of a table. All is made inside of the page.

import { h } from "../dom";
import type { Source } from "../source";
import type { Block, Table } from "../types";
import { rowsOf } from "./block-rows";
import type { Rows } from "./csv";
import { formatCsv } from "./csv";
import { menu } from "./menu";
import type { Item } from "./menu";
import { formatSvg, paintPng, pictureOf } from "./picture";

const KEPT_MS = 10_000;
const LONGEST_NAME = 120;
/** Kinds of blocks that are no charts, though they may have drawings inside. */
const NO_PICTURE: readonly Block["kind"][] = ["Findings", "Pairs", "Section", "Sql", "Table", "Trace"];

/** The menu of a block; null where there is nothing to save. */
export function saveMenu(block: Block, drawing: Element, source: Source): HTMLElement | null {
  const isDrawn = !NO_PICTURE.includes(block.kind) && !drawing.matches("p");
  if (!isDrawn && !isTable(block)) return null;
  const made = menu("Save", `Save ${block.title || block.name}`, () => {
    const result = made.closest("article")?.id ?? "";
    const file = (kind: string): string => fileName([source.page.title, result, block.name], kind);
    // Only now: a large heat map has many values.
    const rows = rowsOf(block, source);
    return [...(isDrawn ? pictureItems(made.closest("[data-block]")!, file) : []), ...(rows ? [csvItem(rows, file)] : [])];
  });
  made.classList.add("save");
  return made;
}

function isTable(block: Block): boolean {
  if (block.kind === "Table") return block.rows.length > 0;
  return block.kind === "Section" && block.table.rows.length > 0;
}

/** The menu of a table that is no block, such as what SQL gave. */
export function saveTableMenu(table: Table, source: Source, name: [string, string]): HTMLElement {
  const file = (kind: string): string => fileName([source.page.title, ...name], kind);
  return menu("Save", `Save ${table.title || name.join(" ")}`, () => [csvItem(table, file)]);
}

function pictureItems(section: Element, file: (kind: string) => string): Item[] {
  const png: Item = { text: "PNG", act: async () => download(await paintPng(pictureOf(section)), file("png")) };
  const svg: Item = {
    text: "SVG",
    act: () => download(new Blob([formatSvg(pictureOf(section))], { type: "image/svg+xml" }), file("svg")),
  };
  return section.querySelector("canvas") ? [png] : [png, svg];
}

function csvItem(rows: Rows, file: (kind: string) => string): Item {
  const [here, all] = [rows.rows.length, rows.rows.length + rows.left_out].map((count) => count.toLocaleString("en-US"));
  return {
    text: rows.left_out ? `CSV (${here} of ${all} rows)` : "CSV",
    title: "Exact values, all columns",
    act: () => download(new Blob([formatCsv(rows)], { type: "text/csv;charset=utf-8" }), file("csv")),
  };
}

/** RUN-RESULT-BLOCK.ext, of letters that every system takes. */
export function fileName(parts: string[], kind: string): string {
  const plain = parts.map((part) => part.replace(/[^\p{L}\p{N}._]+/gu, "-").replace(/^[-.]+|[-.]+$/g, "")).filter(Boolean);
  return `${plain.join("-").slice(0, LONGEST_NAME)}.${kind}`;
}

export function download(blob: Blob, file: string): void {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), KEPT_MS);
}

import type { Table } from "../types";
import { h } from "../dom";
import { formatValue } from "../units";

export function drawTable(block: Omit<Table, "kind">): Element {
  const shown = block.fields.flatMap((field, place) => (field.shown ? [place] : []));
  const head = shown.map((place) => {
    const field = block.fields[place]!;
    return h("th", { scope: "col" }, field.label || field.name.replaceAll("_", " "));
  });
  const rows = block.rows.map((row) =>
    h("tr", {}, ...shown.map((place) => cell(row[place] ?? null, block.fields[place]!.unit))),
  );
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows)));
}

function cell(value: Table["rows"][number][number], unit: Table["fields"][number]["unit"]): Element {
  return h("td", { class: typeof value === "number" ? "number" : "" }, formatValue(value, unit));
}

// The numbers of a block as rows of a table, for those kinds that are tables or are drawn from few numbers.

import { Cells } from "../heat-cells";
import type { Source } from "../source";
import type { Block, Field, HeatMap, Knobs, Plot, Timeline, Unit, Value } from "../types";
import type { Rows } from "./csv";

export function rowsOf(block: Block, source: Source): Rows | null {
  switch (block.kind) {
    case "Table":
      return block;
    case "Section":
      return block.table;
    case "Lines":
      return makeRows(["line", "part", ["ns", "ns"], ["share", "share"]], flatten(block.items, (line) => [line.ns, line.share]));
    case "Portions":
      return makeRows([block.key, "part", ["bytes", "bytes"], "count"], flatten(block.items, (part) => [part.bytes, part.count]));
    case "Waterfall":
      return makeRows(["name", "points"], block.bars.map((bar) => [bar.name, bar.points]));
    case "Plot":
      return pointsOf(block);
    case "HeatMap":
      return cellsOf(block, source);
    case "Timeline":
      return memoryOf(block);
    case "Knobs":
      return settingsOf(block);
    default:
      return null;
  }
}

function makeRows(columns: (string | [string, Unit])[], values: Value[][]): Rows {
  const fields = columns.map((column): Field => {
    const [name, unit] = typeof column === "string" ? ([column, ""] as const) : column;
    return { name, unit, label: "", shown: true };
  });
  return { fields, rows: values, left_out: 0 };
}

interface Nested<Part> {
  name: string;
  parts: Part[];
}

/** Each item, and after it its parts by their path inside of it. */
function flatten<Part extends Nested<Part>>(items: Part[], figures: (part: Part) => Value[]): Value[][] {
  const inside = (owner: string, path: string, part: Part): Value[][] => [
    [owner, path, ...figures(part)],
    ...part.parts.flatMap((one) => inside(owner, path ? `${path} / ${one.name}` : one.name, one)),
  ];
  return items.flatMap((item) => inside(item.name, "", item));
}

function pointsOf({ x, y, series }: Plot): Rows {
  const points = series.flatMap(({ name, points }) => points.map(([across, up]): Value[] => [name, across, up]));
  const named = makeRows(["series"], points);
  return { ...named, fields: [...named.fields, x, y] };
}

function cellsOf(block: HeatMap, source: Source): Rows {
  const cells = new Cells(block, source);
  const column = (place: number): Value => block.columns?.[place] ?? place;
  const values = block.rows.flatMap((name, row) =>
    Array.from({ length: block.widths[row]! }, (_, place): Value[] => [name, column(place), cells.at(row, place) ?? null]),
  );
  return makeRows([block.down || "row", block.across || "column", ["value", block.unit]], values);
}

function memoryOf(block: Timeline): Rows {
  const columns = block.rows.map(([name]): [string, Unit] => [name, "bytes"]);
  const values = block.at.map((at, place) => [at, block.total[place]!, ...block.rows.map(([, held]) => held[place]!)]);
  return makeRows([["at", "ns"], ["total", "bytes"], ...columns], values);
}

function settingsOf(block: Knobs): Rows {
  const times: [string, Unit][] = ["predicted_ns", "low_ns", "high_ns"].map((name) => [name, "ns"]);
  const values = block.items.flatMap(({ change, settings, now }) =>
    settings.map((one, place): Value[] => {
      return [change, one.value, place === now, one.predicted_ns, one.low_ns, one.high_ns, one.work, one.why_not];
    }),
  );
  return makeRows(["change", "value", "is_now", ...times, "work", "why_not"], values);
}

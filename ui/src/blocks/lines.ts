import "./lines.css";
import type { Line, Lines } from "../types";
import type { Row } from "../unfolding";
import { h, s } from "../dom";
import { readout } from "../readout";
import { shareAxis } from "../share-axis";
import { folded, placed, stretch, unfolding } from "../unfolding";
import { formatNs, formatShare } from "../units";

export function drawLines(block: Lines): Element {
  if (!block.total_ns) return h("p", { class: "muted" }, "No time was recorded.");
  const full = block.items.filter((line) => line.ns > 0);
  const empty = block.items.filter((line) => line.ns === 0).map((line) => line.name);
  const rows = placed(full, {
    figure: (line) => formatNs(line.ns / block.per),
    share: (line) => line.share,
    parts: (line) => folded(line.parts, rest),
  });
  const time = formatNs(block.total_ns / block.per);
  const per = block.unit ? `per ${block.unit}` : "time";
  return h("div", { class: "lines" }, ...stacked(rows, per), unfolding(per, rows, time, [empty, "line"]));
}

function rest(name: string, left: Line[]): Line {
  const sum = (of: (line: Line) => number) => left.reduce((total, line) => total + of(line), 0);
  return { name, ns: sum((line) => line.ns), share: sum((line) => line.share), parts: [] };
}

function stacked(rows: Row[], per: string): Element[] {
  const words = readout("Each part is one ledger line; together they add up to the total time.");
  const parts = rows.map((row) => {
    const part = s("g", { "data-line": row.name }, ...stretch(row.from, row.share, row.paint));
    const meaning = row.said ? `: ${row.said}` : "";
    words.tells(part, row.name, `${row.figure} ${per === "time" ? "" : `${per}, `}${formatShare(row.share)}${meaning}`);
    return part;
  });
  return [s("svg", { class: "whole" }, ...parts), shareAxis("the time of all ranks"), words.element];
}

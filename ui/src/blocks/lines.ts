import type { Line, Lines } from "../types";
import { h } from "../dom";
import { folded, placed, unfolding } from "../unfolding";
import { formatNs } from "../units";

export function drawLines(block: Lines): Element {
  if (!block.total_ns) return h("p", { class: "muted" }, "No time was recorded.");
  const full = block.items.filter((line) => line.ns > 0);
  const empty = block.items.filter((line) => line.ns === 0).map((line) => line.name);
  const rows = placed(full, {
    figure: (line) => formatNs(line.ns / block.per),
    exact: (line) => line.ns,
    share: (line) => line.share,
    parts: (line) => folded(line.parts, rest),
  });
  const time = formatNs(block.total_ns / block.per);
  const per = block.unit ? `per ${block.unit}` : "time";
  return h("div", { class: "lines" }, unfolding(per, rows, time, [empty, "line"]));
}

function rest(name: string, left: Line[]): Line {
  const sum = (of: (line: Line) => number) => left.reduce((total, line) => total + of(line), 0);
  return { name, ns: sum((line) => line.ns), share: sum((line) => line.share), parts: [] };
}

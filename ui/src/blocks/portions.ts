import "./portions.css";
import type { Portion, Portions } from "../types";
import type { Readout } from "../readout";
import type { Box } from "../treemap";
import { onTheme, paintOf } from "../colours";
import { h, s } from "../dom";
import { beginning, ending, fitting } from "../fitting";
import { readout } from "../readout";
import { squarified } from "../treemap";
import { folded, placed, unfolding } from "../unfolding";
import { formatBytes, formatShare } from "../units";

const LINE = 16;
const MARGIN = 5;
const FONT = "12px system-ui, sans-serif";
const BOLD = `600 ${FONT}`;

export function drawPortions(block: Portions): Element {
  if (!block.total) return h("p", { class: "muted" }, "No memory in use.");
  const full = block.items.filter((item) => item.bytes > 0);
  const empty = block.items.filter((item) => item.bytes === 0).map((item) => item.name);
  const words = readout(`Area shows bytes; the total is ${formatBytes(block.total)}.`);
  const map = s("svg", { class: "map" });
  // Text is shown where it fits, so that the map is drawn for the width that it has.
  const fit = (): void => {
    const room = { x: 0, y: 0, width: map.clientWidth, height: map.clientHeight };
    if (!room.width) return;
    map.setAttribute("viewBox", `0 0 ${room.width} ${room.height}`);
    map.replaceChildren(...tiles(full, room, block.total, words));
  };
  new ResizeObserver(fit).observe(map);
  onTheme(fit);
  const rows = placed(full, {
    figure: (item) => formatBytes(item.bytes),
    exact: (item) => item.bytes,
    share: (item) => item.bytes / block.total,
    parts: (item) => folded(item.parts, rest),
  });
  const list = unfolding("bytes", rows, formatBytes(block.total), [empty, block.key]);
  return h("div", { class: "portions" }, map, words.element, list);
}

function tiles(items: Portion[], room: Box, total: number, words: Readout): SVGElement[] {
  const boxes = squarified(items.map((item) => item.bytes), room);
  return items.flatMap((item, place) => {
    const box = boxes[place]!;
    const parts = item.parts.length ? folded(item.parts, rest) : [item];
    const inner = squarified(parts.map((part) => part.bytes), box);
    const drawn = parts.map((part, at) => {
      const one = tile(item, part, inner[at]!, at === 0);
      words.tells(one, part === item ? item.name : `${item.name}, ${part.name}`, said(part, total));
      return one;
    });
    const edge = s("rect", { class: "owner", ...box });
    edge.style.setProperty("stroke", paintOf(item.name));
    return [s("g", { "data-portion": item.name }, ...drawn), edge];
  });
}

/** The first of an owner bears the owner's name. */
function tile(owner: Portion, part: Portion, box: Box, isFirst: boolean): SVGElement {
  const area = s("rect", { width: "100%", height: "100%" });
  area.style.setProperty("fill", paintOf(owner.name));
  const room = box.width - 2 * MARGIN;
  const names = [
    isFirst ? fitting(owner.name, room, BOLD, beginning) : "",
    part === owner ? "" : fitting(part.name, room, FONT, ending),
    fitting(formatBytes(part.bytes), room, FONT),
  ];
  const lines = names.filter(Boolean).slice(0, Math.max(0, Math.floor((box.height - MARGIN) / LINE)));
  const texts = lines.map((line, place) =>
    s("text", { x: MARGIN, y: LINE * (place + 1), class: line === names[0] ? "owned" : "" }, line),
  );
  return s("svg", { class: "tile", "data-part": part.name, ...box }, area, ...texts);
}

function said(part: Portion, total: number): string {
  const blocks = part.count === 1 ? "1 block" : `${part.count.toLocaleString("en-US")} blocks`;
  return `${formatBytes(part.bytes)}, ${formatShare(part.bytes / total)}, ${blocks}`;
}

function rest(name: string, left: Portion[]): Portion {
  const sum = (of: (part: Portion) => number) => left.reduce((total, part) => total + of(part), 0);
  return { name, bytes: sum((part) => part.bytes), count: sum((part) => part.count), parts: [] };
}

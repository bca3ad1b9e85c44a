import "./waterfall.css";
import type { Waterfall } from "../types";
import { paintOf } from "../colours";
import { h, s } from "../dom";
import { meaningOf, prose } from "../glossary";
import { readout } from "../readout";
import { shareAxis } from "../share-axis";
import { stretch } from "../unfolding";
import { formatShare } from "../units";

type Bar = Waterfall["bars"][number];

/** Bars lie, so that names stand beside them unturned: each begins where the one above ends, from 100% down. */
export function drawWaterfall(block: Waterfall): Element {
  const known = block.value !== null;
  const whole = known ? "device peak" : "the time of all ranks";
  const words = readout(known ? block.convention : "Hover over a bar, or reach it with Tab, to see what it means.");
  let left = 100;
  const rows = block.bars.map((bar, place) => {
    left -= bar.points;
    const row = drawn(bar, left, place, block);
    words.tells(row, bar.name, said(bar, whole));
    return row;
  });
  return h("div", { class: "waterfall" }, reached(block), ...rows, below(rows.length > 0, whole), words.element);
}

function reached(block: Waterfall): Element {
  if (block.value === null) return h("p", { class: "reached" }, ...prose(block.reason));
  const share = h("b", { class: "value" }, formatShare(block.value));
  return h("p", { class: "reached" }, share, ` ${block.bars.at(-1)?.name.toUpperCase() ?? ""}`);
}

function said(bar: Bar, whole: string): string {
  const meaning = meaningOf(bar.name) ?? meaningOf(bar.name.toUpperCase());
  return `${formatShare(bar.points / 100)} of ${whole}${meaning ? `: ${meaning}` : ""}`;
}

function drawn(bar: Bar, left: number, place: number, block: Waterfall): Element {
  const from = Math.max(left, 0) / 100;
  const [share, start, end] = [bar.points / 100, `${100 * from}%`, `${left + bar.points}%`];
  const isLast = place === block.bars.length - 1;
  const links = [
    place ? s("line", { class: "link", x1: end, x2: end, y1: 0, y2: "20%" }) : null,
    isLast ? null : s("line", { class: "link", x1: start, x2: start, y1: "80%", y2: "100%" }),
  ];
  const body = s("svg", { y: "20%", height: "60%" }, ...stretch(from, share, paint(bar.name, isLast, block)));
  return h(
    "div",
    { class: "fall", "data-bar": bar.name },
    h("span", { class: "name" }, bar.name),
    h("span", { class: "points" }, formatShare(share)),
    s("svg", { class: "track" }, ...links, body),
  );
}

/** What is lost inside of compute is paler than compute; what is left after all is the one good colour. */
function paint(name: string, isLast: boolean, block: Waterfall): string {
  if (isLast && block.value !== null) return "var(--good)";
  return name.startsWith("compute.") ? "color-mix(in srgb, var(--compute) 55%, var(--page))" : paintOf(name);
}

function below(isDrawn: boolean, whole: string): Element | null {
  return isDrawn ? h("div", { class: "fall axis" }, h("span"), h("span"), shareAxis(whole)) : null;
}

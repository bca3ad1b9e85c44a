// Rows that are parts of a whole, each with its bar, and unfolding into its definition and its own parts.

import "./unfolding.css";
import type { Child } from "./dom";
import { paintOf } from "./colours";
import { h, s } from "./dom";
import { meaningOf } from "./glossary";
import { formatShare } from "./units";

export interface Row {
  name: string;
  figure: string;
  /** The figure in whole ns or bytes. */
  exact: number;
  share: number;
  /** Where its bar begins, as a part of the whole: that of a part lies in that of its row. */
  from: number;
  paint: string;
  said: string;
  parts: Row[];
}

const MOST_PARTS = 40;

/** The first, which are the largest, and the rest as one, so that parts still sum. */
export function folded<Part>(parts: Part[], rest: (name: string, left: Part[]) => Part): Part[] {
  const left = parts.slice(MOST_PARTS);
  if (left.length < 2) return parts;
  return [...parts.slice(0, MOST_PARTS), rest(`${left.length.toLocaleString("en-US")} more`, left)];
}

/** What rows show of parts of a whole: how much it is in words and as a share, and what it is made of. */
export interface Shown<Part> {
  figure(part: Part): string;
  exact(part: Part): number;
  share(part: Part): number;
  parts(part: Part): Part[];
}

/** Rows one after the other, and those of their parts inside of them in the same colour. */
export function placed<Part extends { name: string }>(items: Part[], of: Shown<Part>, start = 0, paint?: string): Row[] {
  let from = start;
  return items.map((item) => {
    const [share, own] = [of.share(item), paint ?? paintOf(item.name)];
    const parts = placed(of.parts(item), of, from, own);
    const row: Row = { name: item.name, figure: of.figure(item), exact: of.exact(item), share, from, paint: own, said: meaningOf(item.name) ?? "", parts };
    from += share;
    return row;
  });
}

/** `empty` are names of what holds nothing: `N lines at zero`. */
export function unfolding(figure: string, rows: Row[], total: string, empty: [string[], string]): Element {
  const [names, noun] = empty;
  return h(
    "div",
    { class: "unfolding" },
    plain("head", ["", figure, "share"]),
    ...rows.map(shown),
    plain("total", ["total", total, formatShare(rows.length ? 1 : 0)]),
    names.length ? nothing(names, noun) : null,
  );
}

function plain(kind: string, [name, figure, share]: [string, string, string]): Element {
  return h(
    "div",
    { class: `row ${kind}` },
    h("span"),
    h("span", { class: "name" }, name),
    h("span", { class: "no-track" }),
    h("span", { class: "figure" }, figure),
    h("span", { class: "share" }, share),
  );
}

function shown(row: Row): Element {
  if (!row.said && !row.parts.length) return h("div", { class: "row", "data-row": row.name, "data-exact": row.exact }, ...cells(row));
  return h(
    "details",
    { "data-row": row.name, "data-exact": row.exact },
    h("summary", { class: "row" }, ...cells(row)),
    h(
      "div",
      { class: "inside" },
      row.said ? h("p", { class: "said" }, row.said) : null,
      ...row.parts.map(shown),
    ),
  );
}

function cells(row: Row): Child[] {
  return [
    h("span", { class: row.said || row.parts.length ? "mark" : "" }),
    h("span", { class: "name" }, word(row)),
    s("svg", { class: "track", "aria-hidden": "true" }, ...stretch(row.from, row.share, row.paint)),
    h("span", { class: "figure" }, row.figure),
    h("span", { class: "share" }, formatShare(row.share)),
  ];
}

/** Its meaning shows where it is pointed at; the keyboard unfolds it with the row. */
function word(row: Row): Child {
  return row.said ? h("span", { class: "term", "data-term": row.name }, row.name) : row.name;
}

/** A bar in shares of the width, with a hairline so that what holds anything is never invisible. */
export function stretch(from: number, share: number, paint: string): SVGElement[] {
  const [x, width] = [`${100 * from}%`, `${100 * share}%`];
  const bar = s("rect", { class: "bar", x, width, height: "100%" });
  const hair = s("line", { x1: x, x2: x, y1: 0, y2: "100%" });
  bar.style.setProperty("fill", paint);
  hair.style.setProperty("stroke", paint);
  return [hair, bar];
}

function nothing(names: string[], noun: string): Element {
  const counted = `${names.length} ${noun}${names.length === 1 ? "" : "s"} at zero`;
  return h("details", { class: "nothing" }, h("summary", {}, h("span", { class: "mark" }), ` ${counted}`), h("p", { class: "said" }, names.join(", ")));
}

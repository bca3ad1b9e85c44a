// A cell of a table: what it says, and what it sorts by.

import { h, s } from "../dom";
import { term, unbroken } from "../glossary";
import { type Selection, select } from "../selection";
import type { Field, Value } from "../types";
import { formatValue } from "../units";

/** Columns whose numbers are ranks. */
export const RANKS: readonly string[] = ["rank", "slowest_rank", "late_rank"];
/** Beside four figures a name of this length fits half of a laptop's screen. */
const LONGEST_NAME = 44;
const END = 19;
/** Sentences have short words and marks between them; names of kernels have neither. */
const LONGEST_MEAN_WORD = 12;
const SENTENCE = /[.:;] /;
const LIST = /^\S+(, \S+)+$/;
/** Of the bars of a column, in pixels. */
const BARS = 96;
const UNITS: Partial<Record<Field["unit"], string>> = { gbs: "GB/s", time: "UTC" };
const SUFFIXES: Partial<Record<Field["unit"], string>> = { ns: "_ns", bytes: "_bytes", gbs: "_gbs" };

export function headOf(field: Field): string {
  const suffix = SUFFIXES[field.unit];
  const bare = suffix && field.name.endsWith(suffix) ? field.name.slice(0, -suffix.length) : field.name;
  const text = field.label || (field.name === "ns" ? "time" : bare.replaceAll("_", " "));
  const unit = UNITS[field.unit];
  return unit && !text.includes(unit) ? `${text} ${unit}` : text;
}

/** Columns of numbers stand to the right; one that holds nothing at all is taken as such. */
export function isNumeric(rows: Value[][], place: number): boolean {
  return rows.every((row) => row[place] === null || typeof row[place] === "number");
}

/** A column that says nothing is shown only with those that a table leaves out. */
export function isEmpty(rows: Value[][], place: number): boolean {
  return rows.every((row) => row[place] === null || row[place] === "");
}

/** Names of kernels and functions, at least one of them a long one: all are written alike. */
export function holdsNames(rows: Value[][], place: number): boolean {
  return rows.some((row) => typeof row[place] === "string" && isName(wholeName(row[place], row)));
}

export interface Column {
  place: number;
  field: Field;
  /** Whether it is shown without being asked for. */
  shown: boolean;
  numeric: boolean;
  names: boolean;
  /** The least and the largest value that bars are drawn for; null where there are no bars. */
  bars: [number, number] | null;
}

export function cell(row: Value[], column: Column): HTMLElement {
  const made = plainCell(row, column);
  const chosen = choiceOf(row, column, made.classList.contains("name"));
  if (!chosen) return made;
  const [title, part] = chosen;
  made.replaceChildren(h("button", { type: "button", class: "choice", title, click: () => select(part) }, ...made.childNodes));
  return made;
}

/** A timeline has no more of a name. */
const LONGEST_SEARCH = 299;

/** What a cell selects for the whole page, and in words. */
function choiceOf(row: Value[], { place, field }: Column, isName: boolean): [string, Partial<Selection>] | null {
  const value = row[place];
  if (typeof value === "number" && RANKS.includes(field.name)) return [`Select rank ${value}`, { ranks: [value], event: null, time: null }];
  if (typeof value === "number" && field.name === "step") return [`Select step ${value}`, { steps: [value, value], event: null, time: null, zoom: null }];
  if (typeof value !== "string" || !isName) return null;
  const whole = wholeName(value, row);
  return [`${whole}\nClick to find it on the timeline`, { search: whole.slice(0, LONGEST_SEARCH) }];
}

/** The ends of the bars of a column: zero is always among them. */
export function barsOf(rows: Value[][], place: number): [number, number] {
  const values = rows.map((row) => Number(row[place] ?? 0)).filter(Number.isFinite);
  return [Math.min(0, ...values), Math.max(0, ...values)];
}

function plainCell(row: Value[], { place, field, numeric, names, bars }: Column): HTMLElement {
  const text = formatValue(row[place] ?? null, field.unit);
  if (bars && bars[1] > bars[0]) return h("td", { class: "number bars" }, text, bar(Number(row[place] ?? 0), bars));
  if (numeric || typeof row[place] !== "string") return h("td", { class: numeric ? "number" : "" }, text);
  const whole = wholeName(text, row);
  if (whole !== text || isName(whole)) return h("td", { class: "name", title: whole }, cut(whole));
  if (names && LIST.test(text)) return h("td", { class: "name list" }, text);
  if (names && text.length <= LONGEST_NAME) return h("td", { class: "name" }, term(text));
  if (text.length > LONGEST_NAME) return h("td", { class: "prose" }, ...unbroken(text));
  return h("td", { class: text.includes(" ") ? "words" : "" }, term(text));
}

function bar(value: number, [low, high]: [number, number]): SVGElement {
  const at = (one: number): number => (BARS * (one - low)) / (high - low);
  const [from, to] = [at(Math.min(0, value)), at(Math.max(0, value))];
  return s(
    "svg",
    { class: "bar", width: BARS, height: 12, "aria-hidden": "true" },
    s("rect", { class: value < 0 ? "less" : "more", x: from, width: Math.max(value ? 1 : 0, to - from), y: 1, height: 10 }),
    s("line", { class: "zero", x1: at(0), x2: at(0), y1: 0, y2: 12 }),
  );
}

/** All that a cell says: of a name that it shows cut, the whole. */
export function textOf(row: Value[], { place, field }: Column): string {
  return wholeName(formatValue(row[place] ?? null, field.unit), row);
}

export function compare(one: Value, other: Value): number {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), "en", { numeric: true });
}

/** A name that was shortened for terminals is in another column of its row in full. See kernel_names.py. */
function wholeName(text: string, row: Value[]): string {
  const [begin = "", end = ""] = text.split("...");
  const isCut = text.includes("...");
  const isWhole = (other: Value): boolean => {
    if (typeof other !== "string" || other === text) return false;
    const name = simplified(other);
    return isCut ? begin !== "" && name.includes(begin) && name.endsWith(end) : other !== name && name === text;
  };
  return (row.find(isWhole) as string) ?? text;
}

function simplified(name: string): string {
  return name.replace(/^void |\(anonymous namespace\)::|\b(?:at::native|at|c10)::/g, "");
}

function isName(text: string): boolean {
  const meanWord = text.length / text.split(" ").length;
  return text.length > 2 * LONGEST_MEAN_WORD && meanWord > LONGEST_MEAN_WORD && !SENTENCE.test(text);
}

/** Ends distinguish instances of templates. */
function cut(whole: string): string {
  const name = simplified(whole);
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - END - 1)}…${name.slice(-END)}` : name;
}

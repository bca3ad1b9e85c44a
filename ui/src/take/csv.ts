// A table as CSV (RFC 4180) with exact values: whole numbers of the base unit, which is part of the heading.

import type { Field, Value } from "../types";

export interface Rows {
  fields: Field[];
  rows: Value[][];
  /** Rows that the page does not have. */
  left_out: number;
}

const END = "\r\n";
const SPECIAL = /["\r\n,]/;
/** Spreadsheets take text that begins so for a formula, and names in traces are hostile. */
const FORMULA = /^[=+\-@\t\r]/;
/** Integers that a number of JavaScript cannot hold are text. */
const INTEGER = /^-?\d+$/;
const UNITS: Partial<Record<Field["unit"], string>> = {
  ns: "ns",
  bytes: "bytes",
  flop: "flop",
  share: "share",
  time: "utc",
  gbs: "gbs",
};

export function formatCsv({ fields, rows }: Rows): string {
  const lines = [fields.map((field) => quote(headingOf(field))), ...rows.map((row) => row.map(formatCell))];
  return lines.map((cells) => cells.join(",") + END).join("");
}

/** Its key in JSON, with the unit at the end where the key does not name it: `wait_ns`, `compute_share`. */
export function headingOf({ name, unit, within }: Field): string {
  const key = within ? `${within}.${name}` : name;
  const suffix = UNITS[unit];
  return !suffix || name.split("_").includes(suffix) ? key : `${key}_${suffix}`;
}

function formatCell(value: Value): string {
  if (value === null) return "";
  if (typeof value !== "string") return String(value);
  return quote(FORMULA.test(value) && !INTEGER.test(value) ? `'${value}` : value);
}

function quote(text: string): string {
  return SPECIAL.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

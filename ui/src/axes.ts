// The axes of a chart: where a value lies, and which values are written beside it. The same rules as show/report/axes.py.

import type { Field, Unit } from "./types";
import { formatValue } from "./units";

export interface Axis {
  unit: Unit;
  title: string;
  log: boolean;
  low: number;
  high: number;
  /** Numbers of things (ranks, hosts) are written themselves where they are few. */
  own: number[];
}

export interface Tick {
  value: number;
  label: string;
}

const MOST_OWN_TICKS = 8;
const MARGIN = 0.03;
const LARGEST = 1e100;
/** Relative: values that are closer than this are drawn as one. */
const CLOSEST = 1e-9;
const HUGE = 1e24;
const DIGITS = 3;
/** That a number of JavaScript tells apart from its neighbours. */
const MOST_DIGITS = 15;
const DURATIONS: Record<string, number> = { ns: 1, us: 1e3, ms: 1e6, s: 1e9, min: 60e9, h: 3600e9 };
const PREFIXES = "kMGTPEZ";
const HINTS: Partial<Record<Unit, string>> = { gbs: "GB/s", rate: "per s" };

/** From 0 at the low end to 1 at the high one. */
export function placeOn(axis: Axis, value: number): number {
  const scale = axis.log ? Math.log10 : (one: number) => one;
  return (scale(value) - scale(axis.low)) / (scale(axis.high) - scale(axis.low));
}

/** Round values in the axis, each as it is written. */
export function ticks(axis: Axis, most: number): Tick[] {
  const found = axis.own.length && axis.own.length <= most ? axis.own : axis.log ? decades(axis, most) : even(axis, most);
  const inside = found.filter((value) => axis.low <= value && value <= axis.high);
  const [base, name] = long(axis);
  const digits = digitsOf(found.map((value) => value / base));
  const label = (value: number): string =>
    name && value ? `${brief(value / base, digits)} ${name}` : written(value, axis.unit, digits);
  return inside.map((value) => ({ value, label: label(value) }));
}

export function axisOf(field: Field, values: number[], log: boolean): Axis {
  const distinct = [...new Set(values)].sort((a, b) => a - b);
  const [low, high] = log ? logEnds(distinct) : linearEnds(distinct);
  const own = (field.unit === "" || field.unit === "count") && distinct.length <= MOST_OWN_TICKS ? distinct : [];
  return { unit: field.unit, title: axisTitle(field), log, low, high, own };
}

/** From zero to a moment or an amount. */
export function fromZero(unit: Unit, title: string, high: number): Axis {
  return between(unit, title, 0, high > 0 ? high : 1);
}

export function between(unit: Unit, title: string, low: number, high: number): Axis {
  return { unit, title, log: false, low, high, own: [] };
}

/** A logarithmic axis has no place for zero and what is below, and none has for what no quantity is. */
export function drawable(value: number | null, log: boolean): value is number {
  return value !== null && Math.abs(value) <= LARGEST && (!log || value >= 1 / LARGEST);
}

/** A value beside an axis, without zeros that say nothing. */
export function written(value: number, unit: Unit, digits = DIGITS): string {
  if (Math.abs(value) >= HUGE) return value.toExponential(2);
  if (unit === "share") return `${brief(100 * value, digits)}%`;
  if (unit === "" || unit === "count") return writtenCount(value, digits);
  if (unit !== "ns" && unit !== "bytes" && unit !== "flop") return brief(value, digits);
  if (Math.abs(value) < 1) return unit === "ns" && value ? `${brief(value, digits)} ns` : brief(value, digits);
  const name = formatValue(value, unit).split(" ")[1] as string;
  return `${brief(value / factor(name, unit), digits)} ${name}`;
}

/** A value with its unit, for a readout. */
export function said(value: number, field: Field): string {
  const hint = HINTS[field.unit];
  return formatValue(value, field.unit) + (hint ? ` ${hint}` : "");
}

function axisTitle(field: Field): string {
  const title = field.label || field.name.replaceAll("_", " ");
  const hint = HINTS[field.unit];
  return hint && !title.includes(hint) ? `${title} (${hint})` : title;
}

function writtenCount(value: number, digits: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 100_000) return String(value);
  return Math.abs(value) < 1000 ? brief(value, digits) : written(value, "flop", digits).replace("FLOP", "");
}

function factor(name: string, unit: Unit): number {
  return unit === "ns" ? (DURATIONS[name] as number) : 1000 ** (PREFIXES.indexOf(name[0] as string) + 1);
}

function brief(value: number, digits: number): string {
  return String(Number(value.toPrecision(digits)));
}

function logEnds(sorted: number[]): [number, number] {
  const [low, high] = [sorted[0] as number, sorted[sorted.length - 1] as number];
  const ratio = high > low * (1 + CLOSEST) ? (high / low) ** MARGIN : 2;
  return [low / ratio, high * ratio];
}

function linearEnds(sorted: number[]): [number, number] {
  const [low, high] = [sorted[0] as number, sorted[sorted.length - 1] as number];
  const anchored = low >= 0 && low <= high / 2;
  const apart = high - low > Math.max(CLOSEST * Math.max(Math.abs(low), Math.abs(high)), 1 / LARGEST);
  const alone = Math.abs(high) > CLOSEST ? 0.5 * Math.abs(high) : 1;
  const margin = apart ? (high - low) * MARGIN : alone;
  return [anchored ? 0 : low - margin, high + margin];
}

function decades(axis: Axis, most: number): number[] {
  const first = Math.floor(Math.log10(axis.low));
  const powers = Array.from({ length: Math.ceil(Math.log10(axis.high)) - first + 1 }, (_, place) => first + place);
  const within = (values: number[]): number[] => values.filter((value) => axis.low <= value && value <= axis.high);
  const each = within(powers.map((power) => Number(`1e${power}`)));
  if (each.length > 2) {
    const every = Math.ceil(each.length / most);
    return each.filter((_, place) => place % every === 0);
  }
  const finer = within(powers.flatMap((power) => [1, 2, 5].map((digit) => Number(`${digit}e${power}`))));
  return finer.length >= 2 && finer.length <= most ? finer : even(axis, most);
}

/** Minutes and hours have no powers of ten: even steps are in them, and written so; short ones are in seconds. */
function long(axis: Axis): [number, string] {
  if (axis.log || axis.unit !== "ns" || axis.high < 1e12) return [1, ""];
  const range = axis.high - axis.low;
  return range >= 60e12 ? [3600e9, "h"] : range >= 1e12 ? [60e9, "min"] : [1e9, "s"];
}

/** So many that the smallest step between values shows: what is close together must be told apart, and truly. */
function digitsOf(values: number[]): number {
  const power = (value: number): number => Math.floor(Math.log10(value) + CLOSEST);
  const least = Math.min(...values.slice(1).map((value, place) => value - (values[place] as number)));
  const largest = Math.max(...values.map(Math.abs));
  return values.length < 2 ? DIGITS : Math.min(MOST_DIGITS, Math.max(DIGITS, power(largest) - power(least) + 1));
}

/** Multiples of 1, 2 or 5 times a power of ten: those in the axis, and one before and one behind it. */
function even(axis: Axis, most: number): number[] {
  const [base] = long(axis);
  const [low, high] = [axis.low / base, axis.high / base];
  const rough = (high - low) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((digit) => power * digit >= rough * (1 - 1e-9)) ?? 10);
  const first = Math.ceil(low / step - 1e-9) - 1;
  const count = Math.floor(high / step + 1e-9) - first + 2;
  return Array.from({ length: count }, (_, place) => Number(((first + place) * step * base).toPrecision(MOST_DIGITS)));
}

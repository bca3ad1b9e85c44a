// The axes of a chart: where a value lies, and which values are written beside it. The same rules as show/report/axes.py.

import { max, min, pairs, ticks as evenTicks, tickStep } from "d3-array";
import { scaleLinear, scaleLog } from "d3-scale";
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
  /** From 0 at the low end to 1 at the high one. */
  place(value: number): number;
}

export interface Tick {
  value: number;
  label: string;
}

const MOST_OWN_TICKS = 8;
/** On a logarithmic axis even steps get closer and closer. */
const MOST_UNEVEN_STEPS = 5;
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

/** Values to write beside an axis, and the smallest step between them. */
interface Rungs {
  values: number[];
  step: number;
}

/** Round values in the axis, each as it is written. */
export function ticks(axis: Axis, most: number): Tick[] {
  const isOwn = axis.own.length > 0 && axis.own.length <= most;
  const { values, step } = isOwn ? rungsAt(axis.own) : axis.log ? decades(axis, most) : even(axis, most);
  const [base, name] = long(axis);
  const digits = digitsOf(values, step);
  const label = (value: number): string =>
    name && value ? `${brief(value / base, digits)} ${name}` : written(value, axis.unit, digits);
  return values.map((value) => ({ value, label: label(value) }));
}

export function axisOf(field: Field, values: number[], log: boolean): Axis {
  const distinct = [...new Set(values)].sort((a, b) => a - b);
  const [low, high] = log ? logEnds(distinct) : linearEnds(distinct);
  const isNumbered = (field.unit === "" || field.unit === "count") && distinct.every(Number.isInteger);
  const own = isNumbered && distinct.length <= MOST_OWN_TICKS ? distinct : [];
  return scaled({ unit: field.unit, title: axisTitle(field), log, low, high, own });
}

/** From zero to a moment or an amount. */
export function fromZero(unit: Unit, title: string, high: number): Axis {
  return between(unit, title, 0, high > 0 ? high : 1);
}

export function between(unit: Unit, title: string, low: number, high: number): Axis {
  return scaled({ unit, title, log: false, low, high, own: [] });
}

/** An axis from what is known of it. */
export function scaled(axis: Omit<Axis, "place">): Axis {
  const scale = axis.log ? scaleLog() : scaleLinear();
  return { ...axis, place: scale.domain([axis.low, axis.high]).range([0, 1]) };
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
  if (unit !== "ns" && unit !== "bytes" && unit !== "flop" && unit !== "flops") return brief(value, digits);
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

/** Powers of ten if there are at least three, else 1, 2 and 5 times one; in less than that, some even steps. */
function decades({ low, high, ...axis }: Axis, most: number): Rungs {
  const many = Math.ceil(Math.log10(high / low)) + 1;
  const inside = scaleLog().domain([low, high]).ticks(many);
  const startingWith = (digits: RegExp): number[] => inside.filter((value) => digits.test(value.toExponential()));
  const powers = startingWith(/^1e/);
  if (powers.length > 2) return rungsAt(powers.filter((_, place) => place % Math.ceil(powers.length / most) === 0));
  const finer = startingWith(/^[125]e/);
  return finer.length >= 2 && finer.length <= most ? rungsAt(finer) : even({ low, high, ...axis }, Math.min(most, MOST_UNEVEN_STEPS));
}

function rungsAt(values: number[]): Rungs {
  return { values, step: min(pairs(values, (one, next) => next - one)) ?? 0 };
}

/** Minutes and hours have no powers of ten: even steps are in them, and written so; short ones are in seconds. */
function long(axis: Axis): [number, string] {
  if (axis.log || axis.unit !== "ns" || axis.high < 1e12) return [1, ""];
  const range = axis.high - axis.low;
  return range >= 60e12 ? [3600e9, "h"] : range >= 1e12 ? [60e9, "min"] : [1e9, "s"];
}

/** So many that the smallest step between values shows: what is close together must be told apart, and truly. */
function digitsOf(values: number[], step: number): number {
  const power = (value: number): number => Math.floor(Math.log10(value) + CLOSEST);
  const largest = max(values, Math.abs) ?? 0;
  return largest && step ? Math.min(MOST_DIGITS, Math.max(DIGITS, power(largest) - power(step) + 1)) : DIGITS;
}

/** Multiples of 1, 2 or 5 times a power of ten; as many steps as there is room for, or fewer. */
function even(axis: Axis, most: number): Rungs {
  const [base] = long(axis);
  const [low, high] = [axis.low / base, axis.high / base];
  let count = Math.max(1, Math.floor(most));
  while (count > 1 && tickStep(low, high, count) < ((high - low) / most) * (1 - CLOSEST)) count--;
  const values = evenTicks(low, high, count).map((value) => Number((value * base).toPrecision(MOST_DIGITS)));
  return { values, step: tickStep(low, high, count) * base };
}

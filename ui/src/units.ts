// Values as people read them; the same words as lostflops/core/units.py and show/report/values.py, to the last digit.
//
// JSON does not tell 5.0 from 5. Where Python would show a float without its unit, because its column is one of whole
// numbers, it is rounded and shown with the unit here.

import { divided, fixed, general, grouped, withPoint } from "./rounding";
import type { Unit, Value } from "./types";

type Scale = [string, bigint][];

const MOST_VALUES = 8;
const DURATIONS: Scale = [
  ["ns", 1n],
  ["us", 1_000n],
  ["ms", 1_000_000n],
  ["s", 1_000_000_000n],
  ["min", 60_000_000_000n],
  ["h", 3_600_000_000_000n],
];
const PREFIXES = ["", "k", "M", "G", "T", "P", "E", "Z"];
const BYTES = prefixed("B");
const FLOPS = prefixed("FLOP");
const FLOP_RATES = prefixed("FLOP/s");
const WHOLE: readonly Unit[] = ["ns", "bytes", "flop", "flops", "count", "time"];
const UNPRINTABLE = /(?! )[\p{C}\p{Z}]/gu;
const SHORT: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const LONG_INTEGER = /^-?\d{16,}$/;
const WHOLE_PERCENT = /^\d+%$/;

export function formatNs(ns: number | bigint): string {
  return scaled(whole(ns), DURATIONS);
}

export function formatBytes(count: number | bigint): string {
  return scaled(whole(count), BYTES);
}

export function formatShare(share: number): string {
  if (share > 0.9995 && share < 1) return ">99.9%";
  if (Math.abs(share) > 0 && Math.abs(share) < 0.0005) return share > 0 ? "<0.1%" : "0.0%";
  return `${fixed(100 * share, 1)}%`;
}

/** A share in a sentence: whole percents, with a digit after the point below 1%. */
export function formatPercent(share: number): string {
  if (share >= 0.995 && share < 1) return ">99%";
  return share === 0 || Math.abs(share) >= 0.0095 ? `${fixed(100 * share, 0)}%` : formatShare(share);
}

/** Two shares as an interval: 7 to 35%, or 0.4% to 3%; with a digit after the point if both would read the same. */
export function formatInterval(low: number, high: number): string {
  const isOne = formatPercent(low) === formatPercent(high);
  const [first, last] = isOne ? [formatShare(low), formatShare(high)] : [formatPercent(low), formatPercent(high)];
  return `${[first, last].every((text) => WHOLE_PERCENT.test(text)) ? first.slice(0, -1) : first} to ${last}`;
}

export function formatValue(value: Value, unit: Unit): string {
  if (value === null) return "-";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") {
    // Integers that a number of JavaScript cannot hold are sent as text.
    return WHOLE.includes(unit) && LONG_INTEGER.test(value) ? formatWhole(BigInt(value), unit) : printable(value);
  }
  if (!Number.isFinite(value)) return "-";
  if (WHOLE.includes(unit)) return formatWhole(whole(value), unit);
  if (unit === "share") return formatShare(value);
  if (unit === "rate" || unit === "gbs") return formatRate(value);
  return Number.isSafeInteger(value) && !Object.is(value, -0) ? String(value) : general(value, 10);
}

/** Several values; numbers that follow each other are drawn together: 0-3, 8. */
export function formatValues(values: Value[], unit: Unit): string {
  const runs: Value[][] = [];
  for (const value of values) {
    const run = runs[runs.length - 1];
    const last = run?.[run.length - 1];
    if (run && Number.isInteger(value) && Number.isInteger(last) && value === (last as number) + 1) run.push(value);
    else runs.push([value]);
  }
  const texts = runs.map((run) =>
    run.length > 1 ? `${formatValue(run[0]!, unit)}-${formatValue(run[run.length - 1]!, unit)}` : formatValue(run[0]!, unit),
  );
  if (texts.length > MOST_VALUES) {
    texts.splice(MOST_VALUES, Infinity, `... ${grouped(String(values.length))} in all`);
  }
  return texts.join(", ") || "-";
}

/** Control codes, marks of direction and the like are written out, as in a terminal. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) => {
    const code = character.codePointAt(0)!;
    const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return SHORT[character] ?? `\\${mark}${code.toString(16).padStart(digits as number, "0")}`;
  });
}

function formatWhole(value: bigint, unit: Unit): string {
  if (unit === "ns") return scaled(value, DURATIONS);
  if (unit === "bytes") return scaled(value, BYTES);
  if (unit === "flop") return scaled(value, FLOPS);
  if (unit === "flops") return scaled(value, FLOP_RATES);
  return grouped(value.toString());
}

function formatRate(value: number): string {
  if (value > 0 && value < 0.001) return "<0.001";
  return value >= 1000 ? grouped(fixed(value, 0)) : general(value, 3);
}

function prefixed(unit: string): Scale {
  return PREFIXES.map((prefix, power) => [`${prefix}${unit}`, 1000n ** BigInt(power)]);
}

function whole(value: number | bigint): bigint {
  return typeof value === "bigint" ? value : BigInt(Number.isInteger(value) ? value : fixed(value, 0));
}

function scaled(value: bigint, scale: Scale): string {
  const sign = value < 0n ? "-" : "";
  const magnitude = value < 0n ? -value : value;
  if (magnitude < 1000n) return `${sign}${magnitude} ${scale[0]![0]}`;
  for (const [unit, factor] of scale.slice(1)) {
    const text = threeDigits(magnitude, factor);
    if (text !== null) return `${sign}${text} ${unit}`;
  }
  const [largest, factor] = scale[scale.length - 1]!;
  return `${sign}${divided(magnitude, factor)} ${largest}`;
}

/** The quotient with three digits, or null when that needs a larger unit. */
function threeDigits(magnitude: bigint, factor: bigint): string | null {
  for (const places of [2, 1, 0]) {
    const found = divided(magnitude * 10n ** BigInt(places), factor);
    if (found < 1000n) return withPoint(found, places);
  }
  return null;
}

// Values as people read them; the same words as lostflops/units.py and report/values.py.

import type { Unit, Value } from "./types";

type Scale = [string, number][];

const DURATIONS: Scale = [
  ["ns", 1],
  ["us", 1e3],
  ["ms", 1e6],
  ["s", 1e9],
  ["min", 60e9],
  ["h", 3600e9],
];
const PREFIXES = ["", "k", "M", "G", "T", "P", "E", "Z"];
const BYTES: Scale = PREFIXES.map((prefix, power) => [`${prefix}B`, 1000 ** power]);
const FLOPS: Scale = PREFIXES.map((prefix, power) => [`${prefix}FLOP`, 1000 ** power]);

export function formatNs(ns: number): string {
  return scaled(ns, DURATIONS);
}

export function formatBytes(count: number): string {
  return scaled(count, BYTES);
}

export function formatShare(share: number): string {
  if (share > 0.9995 && share < 1) return ">99.9%";
  if (Math.abs(share) > 0 && Math.abs(share) < 0.0005) return share > 0 ? "<0.1%" : ">-0.1%";
  return `${(100 * share).toFixed(1)}%`;
}

export function formatValue(value: Value, unit: Unit): string {
  if (value === null) return "-";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return value;
  if (unit === "ns") return formatNs(value);
  if (unit === "bytes") return formatBytes(value);
  if (unit === "flop") return scaled(value, FLOPS);
  if (unit === "share") return formatShare(value);
  if (unit === "count") return value.toLocaleString("en-US");
  if (unit === "rate" || unit === "gbs") return formatRate(value);
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(10)));
}

function formatRate(value: number): string {
  if (value > 0 && value < 0.001) return "<0.001";
  return value >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3)));
}

function scaled(value: number, scale: Scale): string {
  const sign = value < 0 ? "-" : "";
  const magnitude = Math.abs(value);
  const [smallest] = scale[0] as [string, number];
  if (magnitude < 1000) return `${sign}${Math.round(magnitude)} ${smallest}`;
  for (const [unit, factor] of scale.slice(1)) {
    const text = threeDigits(magnitude / factor);
    if (text !== null) return `${sign}${text} ${unit}`;
  }
  const [largest, factor] = scale[scale.length - 1] as [string, number];
  return `${sign}${Math.round(magnitude / factor)} ${largest}`;
}

function threeDigits(quotient: number): string | null {
  for (const places of [2, 1, 0]) if (Math.round(quotient * 10 ** places) < 1000) return quotient.toFixed(places);
  return null;
}

// Kernels and communication inside an area, from the events that a file holds; exact only where it holds all of them.

import type { Field, Table, Unit, Value } from "../types";
import type { Lane, Model } from "./model";

const MOST_ROWS = 50;

interface Sum {
  count: number;
  ns: number;
  wait: number;
}

/** A row of the timeline and the part of it that counts. */
export type Cut = [row: number, start: number, stop: number];

/** Tables of what ran inside, without those that are empty. */
export function eventTables(model: Model, cuts: Cut[]): Table[] {
  const kernels = summed(model, cuts, ["kernel"]);
  const calls = summed(model, cuts, ["comm", "host_comm"]);
  return [
    ...(kernels.length ? [table("kernels", "Kernels", kernels, false)] : []),
    ...(calls.length ? [table("collectives", "Communication", calls, true)] : []),
  ];
}

/** By number and not by text: two long names may be cut to the same. */
function summed(model: Model, cuts: Cut[], kinds: string[]): [string, Sum][] {
  const sums = new Map<number, Sum>();
  for (const [row, start, stop] of cuts) for (const lane of model.groups[row]!.lanes) addLane(lane, kinds, start, stop, sums);
  const names = model.groups.flatMap((group) => group.lanes)[0]?.items.names ?? [];
  return [...sums].map(([name, sum]) => [names[name]!, sum]);
}

function addLane({ items, first, count }: Lane, kinds: string[], start: number, stop: number, sums: Map<number, Sum>): void {
  const wanted = items.kinds.map((kind) => kinds.includes(kind));
  for (let item = first; item < first + count; item++) {
    const [from, dur] = [items.start[item]!, items.dur[item]!];
    if (!wanted[items.kind[item]!] || from >= stop || from + dur <= start) continue;
    const name = items.name[item]!;
    const sum = sums.get(name) ?? { count: 0, ns: 0, wait: 0 };
    sum.count++;
    sum.ns += Math.min(from + dur, stop) - Math.max(from, start);
    sum.wait += Math.max(0, Math.min(from + items.wait[item]!, stop) - Math.max(from, start));
    sums.set(name, sum);
  }
}

function table(name: string, title: string, sums: [string, Sum][], waits: boolean): Table {
  const field = (key: string, unit: Unit, label: string): Field => ({ name: key, unit, label, shown: true });
  const order = [...sums].sort(([one, { ns }], [other, more]) => more.ns - ns || (one < other ? -1 : 1));
  const rows = order.slice(0, MOST_ROWS).map(([key, { count, ns, wait }]): Value[] => [key, count, Math.round(ns), ...(waits ? [Math.round(wait)] : [])]);
  const fields = [field("name", "", waits ? "call" : "kernel"), field("count", "count", ""), field("ns", "ns", "time")];
  if (waits) fields.push(field("wait_ns", "ns", "wait"));
  return { kind: "Table", name, title, fields, rows, left_out: Math.max(0, order.length - MOST_ROWS), most_shown: null };
}

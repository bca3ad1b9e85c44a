// Kernels and communication inside an area, from the events that a file holds; exact only where it holds all of them.

import type { Field, Table, Unit, Value } from "../types";
import type { Lane, Model } from "./model";

const MOST_ROWS = 50;

interface Sum {
  count: number;
  ns: number;
  wait: number;
}

/** Tables of what ran inside, without those that are empty. */
export function eventTables(model: Model, rows: number[], start: number, stop: number): Table[] {
  const kernels = summed(model, rows, ["kernel"], [start, stop]);
  const calls = summed(model, rows, ["comm", "host_comm"], [start, stop]);
  return [
    ...(kernels.size ? [table("kernels", "Kernels", kernels, false)] : []),
    ...(calls.size ? [table("collectives", "Collectives", calls, true)] : []),
  ];
}

function summed(model: Model, rows: number[], kinds: string[], [start, stop]: [number, number]): Map<string, Sum> {
  const sums = new Map<string, Sum>();
  for (const row of rows) for (const lane of model.groups[row]!.lanes) addLane(lane, kinds, start, stop, sums);
  return sums;
}

function addLane({ items, first, count }: Lane, kinds: string[], start: number, stop: number, sums: Map<string, Sum>): void {
  const wanted = items.kinds.map((kind) => kinds.includes(kind));
  for (let item = first; item < first + count; item++) {
    const [from, dur] = [items.start[item]!, items.dur[item]!];
    if (!wanted[items.kind[item]!] || from >= stop || from + dur <= start) continue;
    const name = items.names[items.name[item]!]!;
    const sum = sums.get(name) ?? { count: 0, ns: 0, wait: 0 };
    sum.count++;
    sum.ns += Math.min(from + dur, stop) - Math.max(from, start);
    sum.wait += Math.max(0, Math.min(from + items.wait[item]!, stop) - Math.max(from, start));
    sums.set(name, sum);
  }
}

function table(name: string, title: string, sums: Map<string, Sum>, waits: boolean): Table {
  const field = (key: string, unit: Unit, label: string): Field => ({ name: key, unit, label, shown: true });
  const order = [...sums].sort(([one, { ns }], [other, more]) => more.ns - ns || (one < other ? -1 : 1));
  const rows = order.slice(0, MOST_ROWS).map(([key, { count, ns, wait }]): Value[] => [key, count, Math.round(ns), ...(waits ? [Math.round(wait)] : [])]);
  const fields = [field("name", "", waits ? "call" : "kernel"), field("count", "count", ""), field("ns", "ns", "time")];
  if (waits) fields.push(field("wait_ns", "ns", "wait"));
  return { kind: "Table", name, title, fields, rows, left_out: Math.max(0, order.length - MOST_ROWS), most_shown: null };
}

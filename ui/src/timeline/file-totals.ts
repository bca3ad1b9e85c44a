// Sums of an area from what a file holds: exact stretches of rows, or, where those are too many, whole steps. The same
// words as explain/analyze/selection.py.

import type { Blob as BlobRef, Lines, Result, Strips, Table } from "../types";
import { formatNs, formatPercent, formatValues } from "../units";
import { varints } from "./columns";
import { eventTables } from "./event-sums";
import type { Model } from "./model";
import type { Area } from "./state";
import { type LineSums, Stretches } from "./stretches";
import type { Totals } from "./totals";

const MOST_PARTS = 3;
/** Less than this share of the time is not in the sentence. */
const LEAST_PART = 0.005;
/** Ranks times time and recorded time may differ by this share: clocks do. */
const NEARLY = 0.001;
const LEFT_OUT = "This file holds only the longest events: lostflops serve also sums kernels and collectives.";
const WAITS: readonly string[] = ["comm.wait", "comm.bubble"];
const IN_WORDS: Record<string, string> = {
  compute: "compute",
  "comm.transfer": "transfer",
  copy: "copies",
  "idle.data": "waiting for data",
  "idle.sync": "idle after a sync",
  "idle.alloc": "allocating memory",
  "idle.compile": "compiling",
  "idle.host": "launch overhead",
  "idle.python": "Python",
  "idle.dependency": "idle between kernels",
  "idle.bubble": "pipeline bubble",
  unexplained: "unexplained",
};

/** None where the file has neither. */
export function fileTotals(block: Strips, model: Model, numbers: (blob: BlobRef) => ArrayLike<number>): Totals | null {
  const waits = new Set([...block.kinds.keys()].filter((kind) => WAITS.includes(block.kinds[kind]!)));
  if (block.stretches) {
    const stretches = new Stretches(block.stretches, numbers, block.span);
    return async (area) => {
      const sums = noSums(block);
      const rows = rowsOf(model, area);
      const [start, stop] = [Math.round(area.start), Math.round(area.stop)];
      for (const row of rows) stretches.add(row, start, stop, waits, sums);
      const result = resultOf(block, sums, { words: sizeOf(model, rows, stop - start, total(sums)), time: formatNs(stop - start), waits, notes: [] });
      const tables = model.leftOut ? [] : eventTables(model, rows, start, stop);
      return { ...result, notes: model.leftOut ? [LEFT_OUT] : [], blocks: [...result.blocks, ...tables] };
    };
  }
  if (!block.step_lines || !block.marks.length) return null;
  const lines = varints(numbers(block.step_lines) as Uint8Array);
  return async (area) => stepSums(block, model, lines, area, waits);
}

function noSums(block: Strips): LineSums {
  return { lines: new Float64Array(block.kinds.length), waits: new Map() };
}

function total({ lines }: LineSums): number {
  return lines.reduce((sum, ns) => sum + ns, 0);
}

function rowsOf(model: Model, { groups }: Area): number[] {
  return groups.length ? [...groups] : [...model.groups.keys()];
}

/** Whole steps whose middle is in the area, else the one that the middle of the area is in. */
function stepSums(block: Strips, model: Model, lines: Float64Array, area: Area, waits: Set<number>): Result {
  const ends = block.marks.map(([, at], place) => [at, block.marks[place + 1]?.[1] ?? block.span] as const);
  const inside = ends.flatMap(([from, to], place) => ((from + to) / 2 >= area.start && (from + to) / 2 < area.stop ? [place] : []));
  const middle = (area.start + area.stop) / 2;
  const steps = inside.length ? inside : [Math.max(0, ends.filter(([from]) => from <= middle).length - 1)];
  const [sums, rows] = [noSums(block), rowsOf(model, area)];
  for (const row of rows) {
    for (const step of steps) {
      const first = (row * block.marks.length + step) * block.kinds.length;
      block.kinds.forEach((_, kind) => (sums.lines[kind]! += lines[first + kind]!));
    }
  }
  const waited = [...waits].reduce((sum, kind) => sum + sums.lines[kind]!, 0);
  if (waited) sums.waits.set(-1, waited);
  const named = formatValues(steps.map((step) => block.marks[step]![0]), "");
  const words = `${block.marked}${steps.length > 1 ? "s" : ""} ${named} of ${ranksOf(model, rows)}`;
  const notes = [`This file sums whole ${block.marked}s: it is too small for all stretches of this run. lostflops serve sums any time.`];
  return resultOf(block, sums, { words: words.charAt(0).toUpperCase() + words.slice(1), time: `${block.marked}s`, waits, notes });
}

function ranksOf(model: Model, rows: number[]): string {
  if (rows.length === 1) return model.groups[rows[0]!]!.name;
  return `${rows.length.toLocaleString("en-US")} ranks`;
}

function sizeOf(model: Model, rows: number[], length: number, recorded: number): string {
  const ranks = ranksOf(model, rows);
  const time = rows.length === 1 ? formatNs(recorded) : formatNs(recorded).replace(" ", " rank-");
  if (Math.abs(recorded - length * rows.length) > NEARLY * recorded) return `${formatNs(length)} on ${ranks}, ${time} of it recorded`;
  return `${formatNs(length)} on ${ranks}${rows.length > 1 ? ` = ${time}` : ""}`;
}

interface Said {
  words: string;
  /** What is summed, after "in these". */
  time: string;
  waits: Set<number>;
  notes: string[];
}

function resultOf(block: Strips, sums: LineSums, { words, time, waits, notes }: Said): Result {
  const whole = total(sums);
  const verdict = whole ? `${words}: ${parts(block, sums, waits, whole).join(", ")}.` : `Nothing was recorded in these ${time}.`;
  return { name: "selection", title: "Selection", verdict, notes, next_command: "", blocks: [ledger(block, sums, whole), lateRanks(sums, whole)] };
}

/** The largest parts. A late rank is named if most waits are for it. */
function parts(block: Strips, sums: LineSums, waits: Set<number>, whole: number): string[] {
  const found: [number, string][] = block.kinds.flatMap((kind, place) =>
    waits.has(place) || !sums.lines[place] ? [] : [[sums.lines[place]!, IN_WORDS[kind] ?? kind]],
  );
  const late = [...sums.waits].sort(([one, ns], [other, more]) => more - ns || one - other);
  const waited = late.reduce((sum, [, ns]) => sum + ns, 0);
  const [rank, most] = late[0] ?? [-1, 0];
  if (waited && (rank < 0 || 2 * most < waited)) found.push([waited, "waiting for other ranks"]);
  else if (waited) found.push([most, `waiting for rank ${rank}`], ...(most < waited ? [[waited - most, "waiting for others"] as [number, string]] : []));
  const shares = found.sort(([one, name], [other, second]) => other - one || (name < second ? 1 : -1)).slice(0, MOST_PARTS);
  return shares.filter(([ns]) => ns / whole >= LEAST_PART).map(([ns, text]) => `${formatPercent(ns / whole)} ${text}`);
}

function ledger(block: Strips, sums: LineSums, whole: number): Lines {
  const items = block.kinds.map((name, place) => ({ name, ns: sums.lines[place]!, share: sums.lines[place]! / (whole || 1), parts: [] }));
  return { kind: "Lines", name: "ledger", title: "Time by line", items, total_ns: whole, per: 1, unit: "" };
}

function lateRanks({ waits }: LineSums, whole: number): Table {
  const field = (name: string, unit: "" | "ns" | "share", label: string) => ({ name, unit, label, shown: true });
  const rows = [...waits].sort(([, one], [, other]) => other - one).map(([late, ns]) => [late < 0 ? null : late, ns, ns / whole]);
  const fields = [field("late_rank", "", "late rank"), field("ns", "ns", "time"), field("share", "share", "")];
  return { kind: "Table", name: "waits", title: "Waits by late rank", fields, rows, left_out: 0, most_shown: null };
}

// Sums of an area from what a file holds: exact stretches of rows, or, where those are too many, whole steps. The same
// words as explain/analyze/selection.py.

import type { Blob as BlobRef, Lines, Result, Strips, Table } from "../types";
import { formatNs, formatPercent, formatValues } from "../units";
import { deltas, varints } from "./columns";
import { type Cut, eventTables } from "./event-sums";
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
    const edges = block.step_edges ? deltas(numbers(block.step_edges) as Uint8Array) : null;
    return async (area) => {
      const sums = noSums(block);
      const cuts = area.steps && edges ? ownSteps(block, model, edges, area) : null;
      const result = cuts ? sumSteps(cuts) : sumTime(area);
      const tables = model.leftOut ? [] : eventTables(model, cuts ? cuts.map(inCommon) : timeOf(area));
      return { ...result, notes: model.leftOut ? [LEFT_OUT] : [], blocks: [...result.blocks, ...tables] };

      function sumTime(of: Area): Result {
        const rows = rowsOf(model, of);
        const [start, stop] = [Math.round(of.start), Math.round(of.stop)];
        for (const row of rows) stretches.add(row, start, stop, waits, sums);
        return resultOf(block, sums, { words: sizeOf(model, rows, stop - start, total(sums)), time: formatNs(stop - start), waits, notes: [] });
      }

      function sumSteps(own: Cut[]): Result {
        for (const [row, start, stop] of own) stretches.addOwn(row, start, stop, waits, sums);
        const words = `${nameSteps(area.steps!)} on ${ranksOf(model, own.map(([row]) => row))} = ${rankTime(own.length, total(sums))}`;
        return resultOf(block, sums, { words, time: `${block.marked}s`, waits, notes: [] });
      }
    };

    function timeOf(area: Area): Cut[] {
      return rowsOf(model, area).map((row) => [row, Math.round(area.start), Math.round(area.stop)]);
    }

    function inCommon([row, start, stop]: Cut): Cut {
      return [row, stretches.common(row, start), stretches.common(row, stop)];
    }
  }
  if (!block.step_lines || !block.marks.length) return null;
  const lines = varints(numbers(block.step_lines) as Uint8Array);
  return async (area) => stepSums(block, model, lines, area, waits);
}

/** Rows that have any of the selected steps, each cut where it starts and ends them itself. */
function ownSteps(block: Strips, model: Model, edges: Float64Array, area: Area): Cut[] {
  const [first, last] = area.steps!;
  const places = [...block.marks.keys()].filter((place) => block.marks[place]![0] >= first && block.marks[place]![0] <= last);
  return rowsOf(model, area).flatMap((row): Cut[] => {
    const own = places.map((place) => edges.subarray(2 * (row * block.marks.length + place)).subarray(0, 2)).filter(([from, to]) => from! < to!);
    return own.length ? [[row, Math.min(...own.map(([from]) => from!)), Math.max(...own.map(([, to]) => to!))]] : [];
  });
}

function nameSteps([first, last]: [number, number]): string {
  return first === last ? `Step ${first}` : `Steps ${first} to ${last}`;
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
  const time = rankTime(rows.length, recorded);
  if (Math.abs(recorded - length * rows.length) > NEARLY * recorded) return `${formatNs(length)} on ${ranks}, ${time} of it recorded`;
  return `${formatNs(length)} on ${ranks}${rows.length > 1 ? ` = ${time}` : ""}`;
}

function rankTime(ranks: number, ns: number): string {
  return ranks === 1 ? formatNs(ns) : formatNs(ns).replace(" ", " rank-");
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

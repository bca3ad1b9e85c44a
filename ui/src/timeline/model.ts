// What a timeline shows: groups of rows, each a strip of kinds with lanes of events below it, or lanes alone.

import type { Blob as BlobRef, Counters, Events, Spans, Strips, Unit } from "../types";
import { deltas, varints } from "./columns";
import { Pyramid } from "./pyramid";

type Numbers = (blob: BlobRef) => ArrayLike<number>;

/** Events as columns, lane by lane and in order of time. */
export interface Items {
  start: Float64Array;
  dur: Float64Array;
  kind: Float64Array;
  name: Float64Array;
  event: Float64Array;
  launch: Float64Array;
  wait: Float64Array;
  kinds: string[];
  names: string[];
  meetings: Meetings;
  said(item: number): [string, string][];
}

export interface Meetings {
  meeting: Float64Array;
  /** Place of the group; below 0 where it has no row. */
  row: Float64Array;
  event: Float64Array;
  arrived: Float64Array;
  dur: Float64Array;
  wait: Float64Array;
  said: Float64Array;
  sayings: string[];
  leftOut: number;
}

/** Events of one depth, none over another: `stop` is in order as `start` is. */
export interface Level {
  start: Float64Array;
  stop: Float64Array;
  item: Uint32Array;
}

export class Lane {
  #levels: Level[] | undefined;

  constructor(
    readonly name: string,
    readonly items: Items,
    readonly first: number,
    readonly count: number,
    /** The least number of levels; those without events are empty. */
    readonly depth = 0,
  ) {}

  get levels(): Level[] {
    return (this.#levels ??= levelsOf(this.items, this.first, this.count, this.depth));
  }
}

/** A quantity over time: each value holds from its point to the next. */
export interface Counter {
  name: string;
  unit: Unit;
  /** Which points are kept, where there are more than fit. */
  thinned: string;
  at: Float64Array;
  /** Below 0 where nothing is known. */
  value: Float64Array;
}

export interface Group {
  name: string;
  /** None where rows are not ranks. */
  rank: number | null;
  /** Row of the strips; none where there are only lanes. */
  strip: number | null;
  counters: Counter[];
  lanes: Lane[];
}

export interface Model {
  began: string;
  span: number;
  groups: Group[];
  strips: Pyramid | null;
  kinds: string[];
  marks: [number, number][];
  marked: string;
  leftOut: number;
  /** For each group the time that others waited for it, in ns; empty if unknown. */
  late: number[];
  /** Names of ways to group rows, each with the name of every row's group. */
  cohorts: [string, string[]][];
}

export function ofStrips(block: Strips, numbers: Numbers): Model {
  const codes = numbers(block.codes) as Uint8Array;
  const groups: Group[] = block.rows.map((name, strip) => ({ name, rank: rankOf(name), strip, counters: [], lanes: [] }));
  const model: Model = {
    began: block.began,
    span: block.span,
    groups,
    strips: new Pyramid(block.bins, block.rows.length, block.kinds.length, codes),
    kinds: block.kinds,
    marks: block.marks,
    marked: block.marked,
    leftOut: 0,
    late: block.late,
    cohorts: block.cohorts,
  };
  if (block.events) putBelow(model, block.events, numbers);
  return model;
}

function rankOf(row: string): number | null {
  const found = /^rank (\d+)$/.exec(row);
  return found ? Number(found[1]) : null;
}

/** Gives rows of the model these lanes and counters, in place of those that they had. */
export function putBelow(model: Model, events: Events, numbers: Numbers): void {
  const groups = new Map(model.groups.map((group) => [group.name, group]));
  // Events know all ranks, rows of the timeline only those that recorded any time.
  const items = itemsOf(events, numbers, (row) => model.groups.indexOf(groups.get(events.rows[row]!)!));
  const found = new Map<Group, Lane[]>();
  let first = 0;
  for (const [row, name, count] of events.lanes) {
    const group = groups.get(events.rows[row]!);
    if (group) found.set(group, [...(found.get(group) ?? []), new Lane(name, items, first, count)]);
    first += count;
  }
  for (const [group, lanes] of found) group.lanes = inTheirPlaces(group.lanes, lanes);
  for (const [row, counters] of countersOf(events.counters, numbers)) {
    const group = groups.get(events.rows[row]!);
    if (group) group.counters = counters;
  }
  model.leftOut = events.left_out;
}

/** Lanes that were there stay where they were and as deep: one that has no events in this window is empty. */
function inTheirPlaces(before: Lane[], found: Lane[]): Lane[] {
  const old = new Map(keyed(before));
  const now = new Map(keyed(found));
  const order = [...old.keys()];
  let place = 0;
  for (const key of now.keys()) {
    if (!old.has(key)) order.splice(place, 0, key);
    place = order.indexOf(key) + 1;
  }
  const { items } = found[0]!;
  return order.map((key) => {
    const lane = now.get(key);
    const depth = old.get(key)?.levels.length ?? 0;
    return new Lane((lane ?? old.get(key)!).name, items, lane?.first ?? 0, lane?.count ?? 0, depth);
  });
}

/** By name; of several that are called the same, the second is the second. */
function keyed(lanes: Lane[]): [string, Lane][] {
  const seen = new Map<string, number>();
  return lanes.map((lane) => {
    const nth = seen.get(lane.name) ?? 0;
    seen.set(lane.name, nth + 1);
    return [`${nth} ${lane.name}`, lane];
  });
}

export function ofSpans(block: Spans): Model {
  const names = [...new Set(block.items.map((one) => one.name))];
  const kinds = [...new Set(block.items.map((one) => one.kind))];
  const places = new Map(names.map((name, place) => [name, place]));
  const order = [...block.items].sort((a, b) => a.row - b.row || a.start - b.start || b.stop - a.stop);
  const column = (value: (one: Spans["items"][number]) => number): Float64Array => Float64Array.from(order, value);
  const none = new Float64Array(order.length);
  const items: Items = {
    start: column((one) => one.start),
    dur: column((one) => one.stop - one.start),
    kind: column((one) => kinds.indexOf(one.kind)),
    name: column((one) => places.get(one.name)!),
    event: none,
    launch: none,
    wait: none,
    kinds,
    names,
    meetings: noMeetings(),
    said: (item) => order[item]!.said,
  };
  let first = 0;
  const groups = block.rows.map((name, row): Group => {
    const count = order.filter((one) => one.row === row).length;
    first += count;
    return { name, rank: null, strip: null, counters: [], lanes: [new Lane("", items, first - count, count)] };
  });
  return { began: block.began, span: block.span, groups, strips: null, kinds: [], marks: [], marked: "", leftOut: block.left_out, late: [], cohorts: [] };
}

function itemsOf(events: Events, numbers: Numbers, groupOf: (row: number) => number): Items {
  const { meetings } = events;
  const found = columns(meetings, numbers, ["meeting", "row", "event", "arrived"], ["dur", "wait", "said"]);
  return {
    ...columns(events, numbers, ["start", "event", "launch"], ["dur", "kind", "name", "wait"]),
    kinds: events.kinds,
    names: events.names,
    meetings: {
      ...found,
      row: found.row.map(groupOf),
      sayings: meetings.sayings,
      leftOut: meetings.left_out,
    },
    said: () => [],
  };
}

/** Counters of each row that has any. */
function countersOf(counters: Counters, numbers: Numbers): Map<number, Counter[]> {
  const [at, value] = [counters.at, counters.value].map((blob) => deltas(numbers(blob) as Uint8Array)) as [Float64Array, Float64Array];
  const found = new Map<number, Counter[]>();
  let first = 0;
  for (const [row, name, unit, per, thinned, points] of counters.each) {
    const own = value.subarray(first, first + points).map((one) => (one < 0 ? -1 : one / per));
    found.set(row, [...(found.get(row) ?? []), { name, unit, thinned, at: at.subarray(first, first + points), value: own }]);
    first += points;
  }
  return found;
}

/** Those that are stored as differences, and those that are stored as they are. */
function columns<D extends string, P extends string>(
  of: Record<D | P, BlobRef>,
  numbers: Numbers,
  differing: D[],
  plain: P[],
): Record<D | P, Float64Array> {
  const read = (name: D | P, decode: typeof deltas) => [name, decode(numbers(of[name]) as Uint8Array)];
  const found = [...differing.map((name) => read(name, deltas)), ...plain.map((name) => read(name, varints))];
  return Object.fromEntries(found) as Record<D | P, Float64Array>;
}

function noMeetings(): Meetings {
  const none = new Float64Array(0);
  const columns = { meeting: none, row: none, event: none, arrived: none, dur: none, wait: none, said: none };
  return { ...columns, sayings: [], leftOut: 0 };
}

/** An event goes to the first depth where nothing else runs, so that what overlaps without nesting is still shown. */
function levelsOf(items: Items, first: number, count: number, depth: number): Level[] {
  const members: number[][] = Array.from({ length: depth }, () => []);
  const ends: number[] = [];
  for (let item = first; item < first + count; item++) {
    const start = items.start[item]!;
    let at = 0;
    while (at < ends.length && ends[at]! > start) at++;
    (members[at] ??= []).push(item);
    ends[at] = start + items.dur[item]!;
  }
  return members.map((own) => ({
    start: Float64Array.from(own, (item) => items.start[item]!),
    stop: Float64Array.from(own, (item) => items.start[item]! + items.dur[item]!),
    item: Uint32Array.from(own),
  }));
}

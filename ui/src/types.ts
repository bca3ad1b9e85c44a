// What the page is given: the plain data of show/report/view.py. Units are those of results.py.

export type Unit = "" | "count" | "ns" | "bytes" | "flop" | "flops" | "share" | "time" | "rate" | "gbs";
export type Value = string | number | boolean | null;

export interface Blob {
  blob: number;
  type: "u1" | "u4" | "f8";
}

export interface Field {
  name: string;
  unit: Unit;
  label: string;
  shown: boolean;
  /** Name of the JSON object that holds the key; empty where the row itself does. */
  within?: string;
  /** Values are drawn as bars from zero. */
  has_bars?: boolean;
}

export interface Table {
  kind: "Table";
  name: string;
  title: string;
  fields: Field[];
  rows: Value[][];
  left_out: number;
  most_shown: number | null;
}

export interface Pair {
  name: string;
  value: Value | Value[];
  unit: Unit;
  label: string;
  shown: boolean;
}

export interface Pairs {
  kind: "Pairs";
  name: string;
  title: string;
  items: Pair[];
}

export interface Section {
  kind: "Section";
  name: string;
  title: string;
  items: Pair[];
  table: Omit<Table, "kind">;
}

export interface HeatMap {
  kind: "HeatMap";
  name: string;
  title: string;
  rows: string[];
  /** How many cells each row has. */
  widths: number[];
  columns?: string[];
  /** Cells of the longest row; shorter ones are filled up. */
  places: number;
  /** Row by row. Numbers of type u4 are counted from `least`, and all bits are set where there is no value. */
  values: Blob;
  least: number;
  unit: Unit;
  legend: string;
  /** What rows are, and what places of a row are. */
  down?: string;
  across?: string;
}

export interface Series {
  name: string;
  drawn: "marks" | "line";
  points: [number, number][];
}

export interface Plot {
  kind: "Plot";
  name: string;
  title: string;
  x: Field;
  y: Field;
  series: Series[];
  log_x: boolean;
  log_y: boolean;
  /** Shaded ranges of x, and values of x with a line. */
  bands?: { name: string; start: number; stop: number }[];
  marks?: { name: string; at: number }[];
}

export interface Stacks {
  kind: "Stacks";
  name: string;
  title: string;
  names: string[];
  /** What each name is. */
  kinds: string[];
  /** Branches of a tree, each after its parent: places of names, places of parents from 1 (0: none), and sums. */
  frames: Blob;
  parents: Blob;
  samples: Blob;
  ns: Blob;
}

export interface Line {
  name: string;
  ns: number;
  share: number;
  parts: Line[];
}

export interface Lines {
  kind: "Lines";
  name: string;
  title: string;
  items: Line[];
  total_ns: number;
  per: number;
  unit: string;
}

export interface Portion {
  name: string;
  bytes: number;
  count: number;
  parts: Portion[];
}

export interface Portions {
  kind: "Portions";
  name: string;
  title: string;
  key: string;
  items: Portion[];
  total: number;
}

export interface Timeline {
  kind: "Timeline";
  name: string;
  title: string;
  began: string;
  span: number;
  at: number[];
  total: number[];
  rows: [string, number[]][];
  marks: [number, number][];
  marked: string;
  top: number | null;
}

export interface Waterfall {
  kind: "Waterfall";
  name: string;
  title: string;
  value: number | null;
  reason: string;
  convention: string;
  bars: { name: string; points: number }[];
}

/** Share of the step that a fix saves; a guess has no range. */
export interface Estimate {
  value: number;
  low: number | null;
  high: number | null;
  kind: "measured" | "replayed" | "bound" | "guess";
  source: string;
}

/** The what-if that a saving comes from. */
export interface Prediction {
  id: string;
  change: string;
  measured_ns: number;
  predicted_ns: number;
  low_ns: number;
  high_ns: number;
  replay_error: number;
}

export interface Evidence {
  what: string;
  events: [number, number][];
  ranks: number[];
  steps: number[];
  sources: string[];
}

export interface Finding {
  id: string;
  level: "found" | "suspected";
  cause: string;
  what: string;
  lost_ns: number;
  lost_share: number;
  rank_hours: number;
  usd: number | null;
  ranks: number[];
  evidence: Evidence[];
  strength: "strong" | "fair" | "weak";
  probability: number | null;
  certain_if: string;
  fix: string;
  lines: Record<string, number>;
  saving: Estimate | null;
  prediction: Prediction | null;
  doubt: string;
  record: string;
}

/** Where to look for a finding; times are ns from the start of the timeline. */
export interface FindingPlace {
  rank: number;
  line: string;
  stall: [number, number];
  event: number | null;
  victim: number | null;
  wait: [number, number] | null;
  /** Ranks that the victim waited for, which in turn waited. */
  between: number[];
  /** ns that the rank spent more on the line than the rank that waited for it. */
  more: number | null;
}

export interface Findings {
  kind: "Findings";
  name: string;
  title: string;
  items: Finding[];
  most_shown: number | null;
  is_brief: boolean;
  places: (FindingPlace | null)[];
}

export interface Strips {
  kind: "Strips";
  name: string;
  title: string;
  began: string;
  span: number;
  bins: number;
  kinds: string[];
  rows: string[];
  codes: Blob;
  marks: [number, number][];
  marked: string;
  /** For each row the time that others waited for it, in ns. */
  late: number[];
  /** Ways to group rows, each with the name of every row's group. */
  cohorts: [string, string[]][];
  events: Events | null;
  /** Exact activity of each row; null if there are too many stretches. */
  stretches: RowStretches | null;
  /** Varints by row, mark and kind: ns of each row in its own steps. Null if there are stretches, or if unknown. */
  step_lines: Blob | null;
  /** Deltas by row and mark: start and end of each row's own step, as times of `stretches`. */
  step_edges: Blob | null;
}

/**
 * Columns are varints, as in Events: start and ahead as differences. `start`, `ahead`, `rate` and `count` have an item
 * for each row, the others one for each stretch, row by row; a stretch begins where the one before it ends.
 *
 * A time t of the timeline is t - round((t + ahead) * rate) on the clock of a row, with halves rounded to even. A
 * selection is cut there, except at 0 and at `span`, where nothing is cut. Then sums are exactly those of the server.
 */
export interface RowStretches {
  count: Blob;
  start: Blob;
  ahead: Blob;
  rate: number[];
  /** Places in `kinds` from 1; 0 where nothing was recorded. */
  kind: Blob;
  dur: Blob;
  /** Rank that was waited for, from 1; 0 if unknown, or if nothing waited. */
  late: Blob;
}

/** Columns are numbers of seven bits a byte: start, event and launch as differences, the others as they are. */
export interface Events {
  rows: string[];
  lanes: [number, string, number][];
  kinds: string[];
  names: string[];
  start: Blob;
  dur: Blob;
  kind: Blob;
  name: Blob;
  event: Blob;
  launch: Blob;
  wait: Blob;
  meetings: Meetings;
  left_out: number;
  counters: Counters;
}

/** What each counter is, with the number of its points; points of all, one after the other, as differences. */
export interface Counters {
  each: [row: number, name: string, unit: Unit, per: number, thinned: string, points: number][];
  at: Blob;
  value: Blob;
}

/** Columns as above; meeting, row, event and arrived are differences. */
export interface Meetings {
  meeting: Blob;
  row: Blob;
  event: Blob;
  arrived: Blob;
  dur: Blob;
  wait: Blob;
  said: Blob;
  sayings: string[];
  left_out: number;
}

export interface Span {
  row: number;
  start: number;
  stop: number;
  kind: string;
  name: string;
  said: [string, string][];
  meeting: number | null;
}

export interface Spans {
  kind: "Spans";
  name: string;
  title: string;
  began: string;
  span: number;
  rows: string[];
  items: Span[];
  left_out: number;
}

export interface Setting {
  value: string;
  predicted_ns: number | null;
  low_ns: number | null;
  high_ns: number | null;
  /** Range of the share of time that it saves. */
  gain_interval: [number, number] | null;
  lines: [string, number][];
  why_not: string;
  work: number;
  how: string;
  notes: string[];
}

export interface Knob {
  change: string;
  label: string;
  settings: Setting[];
  now: number | null;
  about: string;
  cost: string;
  /** No setting reaches it. */
  is_bound: boolean;
}

export interface Knobs {
  kind: "Knobs";
  name: string;
  title: string;
  measured_ns: number;
  lines: [string, number][];
  items: Knob[];
}

export interface TableDoc {
  name: string;
  doc: string;
  columns: { name: string; type: string; unit: string; doc: string }[];
}

/** A box to ask a server in SQL; pages make it themselves. */
export interface Sql {
  kind: "Sql";
  name: string;
  title: string;
  tables: TableDoc[];
}

/** The run as a file for the Perfetto UI; pages of a server make it themselves. */
export interface Trace {
  kind: "Trace";
  name: string;
  title: string;
}

export type Block =
  | Table
  | Pairs
  | Section
  | HeatMap
  | Plot
  | Stacks
  | Lines
  | Portions
  | Timeline
  | Waterfall
  | Findings
  | Strips
  | Spans
  | Knobs
  | Sql
  | Trace;

export interface Result {
  name: string;
  title: string;
  verdict: string;
  notes: string[];
  next_command: string;
  blocks: Block[];
}

export interface Page {
  schema: string;
  title: string;
  glossary: Record<string, string>;
  missing: [string, string][];
  /** The name of the result whose verdict stays in sight. */
  standing: string;
  results: Result[];
}

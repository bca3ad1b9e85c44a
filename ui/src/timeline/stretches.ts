// Exact stretches of rows as a file holds them, and their sums between two times.

import type { Blob as BlobRef, RowStretches } from "../types";
import { deltas, varints } from "./columns";

type Numbers = (blob: BlobRef) => ArrayLike<number>;

export interface LineSums {
  /** Time in ns by place in the kinds of the block. */
  lines: Float64Array;
  /** Time that was waited for each rank; -1 where it is unknown. */
  waits: Map<number, number>;
}

export class Stretches {
  readonly #first: Uint32Array;
  readonly #start: Float64Array;
  readonly #ahead: Float64Array;
  readonly #kind: Float64Array;
  readonly #dur: Float64Array;
  readonly #late: Float64Array;

  constructor(
    private readonly block: RowStretches,
    numbers: Numbers,
    private readonly span: number,
  ) {
    const read = (blob: BlobRef): Uint8Array => numbers(blob) as Uint8Array;
    const counts = varints(read(block.count));
    this.#first = new Uint32Array(counts.length + 1);
    counts.forEach((count, row) => (this.#first[row + 1] = this.#first[row]! + count));
    this.#start = deltas(read(block.start));
    this.#ahead = deltas(read(block.ahead));
    this.#kind = varints(read(block.kind));
    this.#dur = varints(read(block.dur));
    this.#late = varints(read(block.late));
  }

  /** Adds what a row did between two times of the timeline. */
  add(row: number, start: number, stop: number, waits: ReadonlySet<number>, sums: LineSums): void {
    this.addOwn(row, this.#own(row, start), this.#own(row, stop), waits, sums);
  }

  /** Adds what a row did between two times of its own clock. */
  addOwn(row: number, from: number, to: number, waits: ReadonlySet<number>, sums: LineSums): void {
    let at = this.#start[row]!;
    for (let place = this.#first[row]!; place < this.#first[row + 1]! && at < to; place++) {
      const end = at + this.#dur[place]!;
      const [kind, ns] = [this.#kind[place]!, Math.min(end, to) - Math.max(at, from)];
      if (kind && ns > 0) {
        sums.lines[kind - 1]! += ns;
        const late = this.#late[place]! - 1;
        if (waits.has(kind - 1)) sums.waits.set(late, (sums.waits.get(late) ?? 0) + ns);
      }
      at = end;
    }
  }

  /** A time of the row's own clock on that of the timeline, to a ns or so. */
  common(row: number, own: number): number {
    const [rate, ahead] = [this.block.rate[row]!, this.#ahead[row]!];
    return Math.round((own + ahead * rate) / (1 - rate));
  }

  /** A time on the row's own clock. Edges of the timeline cut nothing. */
  #own(row: number, time: number): number {
    if (time <= 0) return -Infinity;
    if (time >= this.span) return Infinity;
    return time - roundedToEven((time + this.#ahead[row]!) * this.block.rate[row]!);
  }
}

/** As numpy rounds. */
function roundedToEven(value: number): number {
  const low = Math.floor(value);
  const rest = value - low;
  if (rest !== 0.5) return Math.round(value);
  return low % 2 === 0 ? low : low + 1;
}

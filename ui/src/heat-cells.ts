// The cells of a heat map: what stands where, and how much of the scale that is.

import type { Source } from "./source";
import type { HeatMap } from "./types";

const NO_VALUE = 2 ** 32 - 1;

/** Values by row and place; null where there is none, undefined past the end of a short row. */
export class Cells {
  readonly low: number;
  readonly high: number;
  readonly unknown: number;
  private readonly numbers: ArrayLike<number>;

  constructor(
    private readonly block: HeatMap,
    source: Source,
  ) {
    this.numbers = source.numbers(block.values);
    let [low, high, unknown] = [Infinity, -Infinity, 0];
    block.rows.forEach((_, row) => {
      for (let place = 0; place < block.widths[row]!; place++) {
        const value = this.at(row, place);
        if (typeof value !== "number") unknown++;
        else [low, high] = [Math.min(low, value), Math.max(high, value)];
      }
    });
    this.low = Math.min(0, low);
    this.high = Math.max(high, this.low);
    this.unknown = unknown;
  }

  at(row: number, place: number): number | null | undefined {
    if (place >= (this.block.widths[row] ?? 0)) return undefined;
    const number = this.numbers[row * this.block.places + place] as number;
    if (this.block.values.type === "u4") return number === NO_VALUE ? null : number + this.block.least;
    return Number.isNaN(number) ? null : number;
  }

  share(value: number): number {
    return this.high > this.low ? (value - this.low) / (this.high - this.low) : 0;
  }

  /** The largest in a rectangle of cells. */
  most(rows: [number, number], places: [number, number]): number | null | undefined {
    let found: number | null | undefined = undefined;
    for (let row = rows[0]; row < rows[1]; row++)
      for (let place = places[0]; place < places[1]; place++) {
        const value = this.at(row, place);
        if (value !== undefined && (found === undefined || found === null || (value !== null && value > found))) found = value;
      }
    return found;
  }
}

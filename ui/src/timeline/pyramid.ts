// What took most of any stretch of a row: the row's bins, and wider ones of 2, 4, 8, ... bins, made when they are needed.

export class Pyramid {
  readonly #levels = new Map<number, Uint8Array>();
  readonly #tally: Uint32Array;

  constructor(
    readonly bins: number,
    readonly rows: number,
    kinds: number,
    readonly codes: Uint8Array,
  ) {
    this.#tally = new Uint32Array(kinds + 1);
  }

  /** The level with bins just below a width in bins of the row. */
  static levelFor(width: number): number {
    return Math.max(0, Math.floor(Math.log2(width)));
  }

  /** Kinds of a row in bins of 2 ** level; each counts the row's own bins, so that wide ones are as true as narrow ones. */
  level(row: number, level: number): Uint8Array {
    if (level === 0) return this.codes.subarray(row * this.bins, (row + 1) * this.bins);
    const key = row * 64 + level;
    let found = this.#levels.get(key);
    if (!found) this.#levels.set(key, (found = this.#made(row, 2 ** level)));
    return found;
  }

  /** The bin at a share of the whole. */
  binAt(share: number): number {
    return Math.max(0, Math.min(this.bins - 1, Math.floor(share * this.bins)));
  }

  /** The kind at a bin, and where its stretch begins and ends, in bins. */
  stretch(row: number, bin: number): [kind: number, first: number, last: number] {
    const own = this.level(row, 0);
    const kind = own[bin] ?? 0;
    let first = bin;
    let last = bin + 1;
    while (first > 0 && own[first - 1] === kind) first--;
    while (last < own.length && own[last] === kind) last++;
    return [kind, first, last];
  }

  #made(row: number, width: number): Uint8Array {
    const own = this.level(row, 0);
    const made = new Uint8Array(Math.ceil(own.length / width));
    for (let place = 0; place < made.length; place++) {
      this.#tally.fill(0);
      let best = 0;
      for (let bin = place * width; bin < Math.min((place + 1) * width, own.length); bin++) {
        const kind = own[bin]!;
        if (++this.#tally[kind]! > this.#tally[best]!) best = kind;
      }
      made[place] = best;
    }
    return made;
  }
}

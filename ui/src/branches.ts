// Stacks as a tree of branches in columns: where each lies, and which are wide enough to be drawn.

import type { Source } from "./source";
import type { Stacks } from "./types";

export interface Matched {
  ns: number;
  branches: number;
}

/** Branch 0 is all of it; the others follow their parents, with all that grows from one right after it. */
export class Branches {
  readonly count: number;
  readonly parent: Uint32Array;
  readonly level: Uint16Array;
  readonly ns: Float64Array;
  readonly samples: Float64Array;
  /** Time of all that stands before a branch. */
  readonly first: Float64Array;
  /** The next branch that does not grow from this one. */
  readonly after: Uint32Array;
  private readonly frame: Uint32Array;

  constructor(
    private readonly block: Stacks,
    source: Source,
  ) {
    const parents = source.numbers(block.parents);
    const size = (this.count = parents.length + 1);
    this.parent = new Uint32Array(size);
    this.parent.set(parents, 1);
    this.frame = new Uint32Array(size);
    this.frame.set(source.numbers(block.frames), 1);
    this.ns = new Float64Array(size);
    this.ns.set(source.numbers(block.ns), 1);
    this.samples = new Float64Array(size);
    this.samples.set(source.numbers(block.samples), 1);
    this.level = new Uint16Array(size);
    this.first = new Float64Array(size);
    this.after = new Uint32Array(size);
    this.place();
  }

  private place(): void {
    for (let one = 1; one < this.count; one++)
      if (!this.parent[one]) {
        this.ns[0]! += this.ns[one]!;
        this.samples[0]! += this.samples[one]!;
      }
    const free = new Float64Array(this.count);
    for (let one = 1; one < this.count; one++) {
      const parent = this.parent[one]!;
      this.level[one] = this.level[parent]! + 1;
      this.first[one] = free[one] = free[parent]!;
      free[parent]! += this.ns[one]!;
    }
    this.after.forEach((_, one) => (this.after[one] = one + 1));
    for (let one = this.count - 1; one > 0; one--) {
      const parent = this.parent[one]!;
      this.after[parent] = Math.max(this.after[parent]!, this.after[one]!);
    }
  }

  name(one: number): string {
    return one ? (this.block.names[this.frame[one]!] as string) : "all";
  }

  kind(one: number): string {
    return one ? (this.block.kinds[this.frame[one]!] as string) : "";
  }

  /** What a branch takes beyond all that grows from it. */
  own(one: number): number {
    let rest = this.ns[one]!;
    for (const child of this.children(one)) rest -= this.ns[child]!;
    return rest;
  }

  children(one: number): number[] {
    const found: number[] = [];
    for (let child = one + 1; child < this.after[one]!; child = this.after[child]!) found.push(child);
    return found;
  }

  /** From the outermost to a branch itself. */
  path(one: number): number[] {
    const found = [one];
    while (found[0]) found.unshift(this.parent[found[0]]!);
    return found;
  }

  /** Branches below `root` that take at least `least` ns, with their parents before them. */
  wide(root: number, least: number): number[] {
    const found: number[] = [];
    for (let one = root; one < this.after[root]!; ) {
      const enough = this.ns[one]! >= least;
      if (enough) found.push(one);
      one = enough ? one + 1 : this.after[one]!;
    }
    return found;
  }

  /** Which names hold a text. */
  search(text: string): Uint8Array {
    const wanted = text.toLowerCase();
    return Uint8Array.from(this.block.names, (name) => (name.toLowerCase().includes(wanted) ? 1 : 0));
  }

  holds(names: Uint8Array, one: number): boolean {
    return one > 0 && names[this.frame[one]!] === 1;
  }

  /** The time under matching branches; what matches inside of another counts once. */
  matched(names: Uint8Array, root: number): Matched {
    const found = { ns: 0, branches: 0 };
    let covered = root;
    for (let one = root; one < this.after[root]!; one++)
      if (this.holds(names, one)) {
        found.branches++;
        if (one < covered) continue;
        found.ns += this.ns[one]!;
        covered = this.after[one]!;
      }
    return found;
  }
}

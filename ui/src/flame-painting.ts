// A flame graph on its canvas: frames below the one that is zoomed to, as wide as their time.

import { coloursOf } from "./codes";
import { resolved } from "./colours";
import { Surface } from "./fitted";
import { fillOf } from "./hatching";
import { inkOn } from "./palette";
import type { Branches } from "./branches";

const ROW = 20;
const MOST_LEVELS = 80;
/** In pixels; what is narrower is not drawn until it is zoomed to. */
const NARROWEST = 0.7;
const FONT = "12px ui-monospace, monospace";

export class FlamePainting {
  visible: number[] = [];
  root = 0;
  private readonly surface = new Surface(() => this.draw());
  private readonly colours: Map<string, string>;
  private names: Uint8Array | null = null;
  private marked: number | null = null;
  private width = 0;

  constructor(
    private readonly branches: Branches,
    kinds: string[],
  ) {
    this.colours = coloursOf(kinds);
  }

  get element(): HTMLCanvasElement {
    return this.surface.element;
  }

  /** Draws what is below a frame; returns how many levels there is no room for. */
  lay(root: number, width = this.width): number {
    const { branches } = this;
    [this.root, this.width, this.marked] = [root, width, null];
    this.visible = branches.wide(root, (NARROWEST * branches.ns[root]!) / Math.max(1, width));
    const deepest = this.visible.reduce((most, one) => Math.max(most, branches.level[one]! - branches.level[root]!), 0);
    this.surface.resize(width, ROW * (Math.min(deepest, MOST_LEVELS - 1) + 1));
    this.draw();
    return Math.max(0, deepest + 1 - MOST_LEVELS);
  }

  /** Leaves only frames of these names in full colour; all without names. */
  highlight(names: Uint8Array | null): void {
    this.names = names;
    this.draw();
  }

  mark(one: number | null): void {
    const { pen } = this.surface;
    this.marked = one;
    this.surface.restore();
    if (one === null) return;
    const [x, y, width] = this.box(one);
    pen.strokeStyle = resolved("--text");
    pen.lineWidth = 2;
    pen.strokeRect(x + 1, y + 1, Math.max(width - 3, 1), ROW - 3);
  }

  at(event: MouseEvent): number | null {
    const place = this.element.getBoundingClientRect();
    const [left, top] = [event.clientX - place.left, event.clientY - place.top];
    for (const one of this.visible) {
      const [x, y, width] = this.box(one);
      if (x <= left && left < x + width && y <= top && top < y + ROW) return one;
    }
    return null;
  }

  /** Where words about a frame stand. */
  pointOf(one: number): [number, number] {
    const [x, y, width] = this.box(one);
    return [x + Math.min(width / 2, 120), y + ROW / 2];
  }

  private draw(): void {
    const { pen } = this.surface;
    pen.clearRect(0, 0, this.width, this.element.height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    const letter = pen.measureText("n").width;
    let drawn = 0;
    for (const one of this.visible) drawn += Number(this.bar(one, letter));
    this.element.dataset["drawn"] = String(drawn);
    this.surface.keep();
    this.mark(this.marked);
  }

  private bar(one: number, letter: number): boolean {
    const { pen } = this.surface;
    const [x, y, width] = this.box(one);
    if (y >= ROW * MOST_LEVELS) return false;
    const { fill, ink } = this.look(one);
    pen.globalAlpha = this.names && !this.branches.holds(this.names, one) ? 0.2 : 1;
    pen.fillStyle = fill;
    pen.fillRect(x, y, Math.max(width - (width > 2 ? 1 : 0), 0.5), ROW - 1);
    const letters = Math.floor((width - 8) / letter);
    if (letters >= 3) {
      const name = this.branches.name(one);
      pen.fillStyle = pen.globalAlpha < 1 ? resolved("--text") : ink;
      pen.globalAlpha = Math.max(pen.globalAlpha, 0.7);
      pen.fillText(name.length > letters ? `${name.slice(0, letters - 1)}…` : name, x + 4, y + ROW / 2);
    }
    pen.globalAlpha = 1;
    return true;
  }

  private look(one: number): ReturnType<typeof fillOf> {
    const kind = this.branches.kind(one);
    if (one && kind === "line") return fillOf(this.surface.pen, this.branches.name(one));
    const found = (one ? this.colours.get(kind) : null) ?? "--idle";
    const fill = found.startsWith("--") ? resolved(found) : found;
    return { fill, ink: inkOn(fill) };
  }

  private box(one: number): [number, number, number] {
    const { branches, root } = this;
    const each = this.width / branches.ns[root]!;
    const x = (branches.first[one]! - branches.first[root]!) * each;
    return [x, ROW * (branches.level[one]! - branches.level[root]!), branches.ns[one]! * each];
  }
}

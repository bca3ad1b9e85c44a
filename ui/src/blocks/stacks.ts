// A flame graph: stacks as a tree, the outermost frame on top, as wide as the time that each stands for.

import "./stacks.css";
import { Branches } from "../branches";
import { coloursOf, legend } from "../codes";
import { colourOf, resolved } from "../colours";
import { h } from "../dom";
import { fitted, Surface } from "../fitted";
import { inkOn } from "../palette";
import { onLeave, readout } from "../callout";
import { formatNs, formatShare } from "../units";
import type { Stacks } from "../types";
import type { Context } from ".";

const ROW = 20;
const MOST_LEVELS = 80;
const NARROWEST = 0.7;
const MOST_CRUMBS = 3;
const FONT = "12px ui-monospace, monospace";

export function drawStacks(block: Stacks, context: Context): Element {
  const branches = new Branches(block, context.source);
  if (!branches.ns[0]) return h("p", { class: "muted" }, "Nothing to draw.");
  const graph = new Graph(block, branches);
  const box = fitted("chart", (width) => graph.resize(width));
  box.append(graph.element, graph.told.element);
  return h("div", { class: "flame" }, graph.tools, graph.crumbs, box, graph.deeper, legend(block.kinds));
}

class Graph {
  readonly told = readout();
  readonly crumbs = h("div", { class: "crumbs", role: "navigation", "aria-label": "Frames above" });
  readonly deeper = h("p", { class: "muted", hidden: true });
  readonly tools: HTMLElement;
  private readonly surface = new Surface(() => this.draw());
  private readonly matches = h("output", { class: "muted" });
  private readonly colours: Map<string, string>;
  private names: Uint8Array | null = null;
  private root = 0;
  private visible: number[] = [];
  private selected: number | null = null;
  private width = 0;

  constructor(
    block: Stacks,
    private readonly branches: Branches,
  ) {
    this.colours = coloursOf(block.kinds);
    const canvas = this.surface.element;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", "Flame graph. Arrow keys move between frames, Enter zooms in, Escape zooms out.");
    canvas.addEventListener("pointermove", (event) => this.select(this.at(event)));
    canvas.addEventListener("pointerleave", onLeave(() => this.select(null)));
    canvas.addEventListener("click", (event) => this.zoom(this.at(event)));
    canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && this.select(this.selected ?? this.root));
    canvas.addEventListener("blur", () => this.select(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
    const search = h("input", {
      type: "search",
      placeholder: "Search frames",
      "aria-label": "Search frames",
      input: () => this.search((search as HTMLInputElement).value),
      keydown: (event) => (event as KeyboardEvent).key === "Escape" && event.stopPropagation(),
    });
    this.tools = h("div", { class: "tools" }, search, this.matches);
  }

  get element(): HTMLCanvasElement {
    return this.surface.element;
  }

  resize(width: number): void {
    this.width = width;
    this.show();
  }

  /** Lays out all again, as after a zoom; `draw` paints what is laid out. */
  private show(): void {
    const { branches, root } = this;
    this.visible = branches.wide(root, (NARROWEST * branches.ns[root]!) / Math.max(1, this.width));
    const deepest = this.visible.reduce((most, one) => Math.max(most, branches.level[one]! - branches.level[root]!), 0);
    const hidden = Math.max(0, deepest + 1 - MOST_LEVELS);
    this.deeper.hidden = !hidden;
    this.deeper.textContent = `${hidden} more levels below: click a frame to see what is under it.`;
    this.surface.resize(this.width, ROW * (Math.min(deepest, MOST_LEVELS - 1) + 1));
    this.crumbs.replaceChildren(...this.trail());
    this.told.hide();
    this.said();
    this.draw();
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
    this.mark();
  }

  private bar(one: number, letter: number): boolean {
    const { pen } = this.surface;
    const [x, y, width] = this.box(one);
    if (y >= ROW * MOST_LEVELS) return false;
    const colour = this.colour(one);
    pen.globalAlpha = this.names && !this.branches.holds(this.names, one) ? 0.2 : 1;
    pen.fillStyle = colour;
    pen.fillRect(x, y, Math.max(width - (width > 2 ? 1 : 0), 0.5), ROW - 1);
    const letters = Math.floor((width - 8) / letter);
    if (letters >= 3) {
      const name = this.branches.name(one);
      pen.fillStyle = pen.globalAlpha < 1 ? resolved("--text") : inkOn(colour);
      pen.globalAlpha = Math.max(pen.globalAlpha, 0.7);
      pen.fillText(name.length > letters ? `${name.slice(0, letters - 1)}…` : name, x + 4, y + ROW / 2);
    }
    pen.globalAlpha = 1;
    return true;
  }

  private mark(): void {
    const { pen } = this.surface;
    this.surface.restore();
    if (this.selected === null) return;
    const [x, y, width] = this.box(this.selected);
    pen.strokeStyle = resolved("--text");
    pen.lineWidth = 2;
    pen.strokeRect(x + 1, y + 1, Math.max(width - 3, 1), ROW - 3);
  }

  private colour(one: number): string {
    const kind = this.branches.kind(one);
    if (!one) return resolved("--idle");
    if (kind === "line") return colourOf(this.branches.name(one));
    const found = this.colours.get(kind) ?? "--idle";
    return found.startsWith("--") ? resolved(found) : found;
  }

  private box(one: number): [number, number, number] {
    const { branches, root } = this;
    const each = this.width / branches.ns[root]!;
    const x = (branches.first[one]! - branches.first[root]!) * each;
    return [x, ROW * (branches.level[one]! - branches.level[root]!), branches.ns[one]! * each];
  }

  private at(event: MouseEvent): number | null {
    const place = this.element.getBoundingClientRect();
    const [left, top] = [event.clientX - place.left, event.clientY - place.top];
    for (const one of this.visible) {
      const [x, y, width] = this.box(one);
      if (x <= left && left < x + width && y <= top && top < y + ROW) return one;
    }
    return null;
  }

  private select(one: number | null): void {
    if (one === this.selected) return;
    this.selected = one;
    this.mark();
    if (one === null) return this.told.hide();
    const { branches } = this;
    const [x, y, width] = this.box(one);
    const kind = branches.kind(one);
    const lines: [string, string][] = [
      ["time", formatNs(branches.ns[one]!)],
      ["share of all", formatShare(branches.ns[one]! / branches.ns[0]!)],
      ["samples", branches.samples[one]!.toLocaleString("en-US")],
      ["itself", formatNs(branches.own(one))],
    ];
    if (this.root) lines.splice(2, 0, ["share of shown", formatShare(branches.ns[one]! / branches.ns[this.root]!)]);
    if (kind) lines.push(["code", kind === "line" ? "line of the ledger" : kind]);
    this.told.show(x + Math.min(width / 2, 120), y + ROW / 2, branches.name(one), lines);
  }

  private zoom(one: number | null): void {
    if (one === null || one === this.root) return;
    this.root = one;
    this.selected = null;
    this.show();
  }

  private key(event: KeyboardEvent): void {
    const next = this.next(event.key, this.selected ?? this.root);
    if (next === undefined) return;
    event.preventDefault();
    if (event.key === "Enter" || event.key === "Escape" || event.key === "Home") this.zoom(next);
    this.select(next);
  }

  private next(key: string, at: number): number | undefined {
    const { branches } = this;
    if (key === "Enter") return at;
    if (key === "Escape") return branches.parent[this.root]!;
    if (key === "Home") return 0;
    if (key === "ArrowUp") return at === this.root ? at : branches.parent[at]!;
    if (key === "ArrowDown") return this.ifVisible(branches.children(at)[0]) ?? at;
    if (key !== "ArrowLeft" && key !== "ArrowRight") return undefined;
    const beside = at === this.root ? [at] : branches.children(branches.parent[at]!);
    return this.ifVisible(beside[beside.indexOf(at) + (key === "ArrowLeft" ? -1 : 1)]) ?? at;
  }

  private ifVisible(one: number | undefined): number | undefined {
    return one !== undefined && this.visible.includes(one) ? one : undefined;
  }

  private search(text: string): void {
    this.names = text.trim() ? this.branches.search(text.trim()) : null;
    this.said();
    this.draw();
  }

  private said(): void {
    const found = this.names && this.branches.matched(this.names, this.root);
    const share = found ? formatShare(found.ns / this.branches.ns[this.root]!) : "";
    this.matches.textContent = found ? `${share} of the time shown is under ${count(found.branches)}` : "";
  }

  private trail(): Node[] {
    const path = this.branches.path(this.root);
    const left = path.length > MOST_CRUMBS + 2 ? [path[0]!, null, ...path.slice(-MOST_CRUMBS)] : path;
    return left.flatMap((one, place) => {
      const before = place ? [document.createTextNode(" > ")] : [];
      if (one === null) return [...before, document.createTextNode("…")];
      if (one === this.root) return [...before, h("strong", {}, this.branches.name(one))];
      return [...before, h("button", { type: "button", click: () => this.zoom(one) }, this.branches.name(one))];
    });
  }
}

function count(frames: number): string {
  return `${frames.toLocaleString("en-US")} ${frames === 1 ? "frame that matches" : "frames that match"}`;
}

// A flame graph: stacks as a tree, the outermost frame on top, as wide as the time that each stands for.

import "./stacks.css";
import { Branches } from "../branches";
import { callout, onLeave } from "../callout";
import { legend } from "../codes";
import { h } from "../dom";
import { fitted } from "../fitted";
import { FlamePainting } from "../flame-painting";
import { formatNs, formatShare } from "../units";
import type { Stacks } from "../types";
import type { Context } from ".";

const MOST_CRUMBS = 3;

export function drawStacks(block: Stacks, context: Context): Element {
  const branches = new Branches(block, context.source);
  if (!branches.ns[0]) return h("p", { class: "muted" }, "No data to plot.");
  const graph = new Graph(block, branches);
  const box = fitted("chart", (width) => graph.resize(width));
  box.append(graph.painting.element, graph.told.element);
  return h("div", { class: "flame" }, graph.tools, graph.crumbs, box, graph.deeper, legend(block.kinds));
}

class Graph {
  readonly told = callout();
  readonly crumbs = h("div", { class: "crumbs", role: "navigation", "aria-label": "Parent frames" });
  readonly deeper = h("p", { class: "muted", hidden: true });
  readonly tools: HTMLElement;
  readonly painting: FlamePainting;
  private readonly matches = h("output", { class: "muted" });
  private names: Uint8Array | null = null;
  private selected: number | null = null;

  constructor(
    block: Stacks,
    private readonly branches: Branches,
  ) {
    this.painting = new FlamePainting(branches, block.kinds);
    const canvas = this.painting.element;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", "Flame graph. Arrow keys move between frames, Enter zooms in, Escape zooms out.");
    canvas.addEventListener("pointermove", (event) => this.select(this.painting.at(event)));
    canvas.addEventListener("pointerleave", onLeave(() => this.select(null)));
    canvas.addEventListener("click", (event) => this.zoom(this.painting.at(event)));
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

  resize(width: number): void {
    this.shown(this.painting.lay(this.root, width));
  }

  private get root(): number {
    return this.painting.root;
  }

  private shown(deeper: number): void {
    this.selected = null;
    this.deeper.hidden = !deeper;
    this.deeper.textContent = `${deeper} more ${deeper === 1 ? "level" : "levels"} below: click a frame to zoom in.`;
    this.crumbs.replaceChildren(...this.trail());
    this.told.hide();
    this.said();
  }

  private select(one: number | null): void {
    if (one === this.selected) return;
    this.selected = one;
    this.painting.mark(one);
    if (one === null) return this.told.hide();
    const { branches } = this;
    const kind = branches.kind(one);
    const lines: [string, string][] = [
      ["time", formatNs(branches.ns[one]!)],
      ["share of total", formatShare(branches.ns[one]! / branches.ns[0]!)],
      ["samples", branches.samples[one]!.toLocaleString("en-US")],
      ["self time", formatNs(branches.own(one))],
    ];
    if (this.root) lines.splice(2, 0, ["share of view", formatShare(branches.ns[one]! / branches.ns[this.root]!)]);
    if (kind) lines.push(["code", kind === "line" ? "ledger line" : kind]);
    this.told.show(...this.painting.pointOf(one), branches.name(one), lines);
  }

  private zoom(one: number | null): void {
    if (one === null || one === this.root) return;
    this.shown(this.painting.lay(one));
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
    return one !== undefined && this.painting.visible.includes(one) ? one : undefined;
  }

  private search(text: string): void {
    this.names = text.trim() ? this.branches.search(text.trim()) : null;
    this.said();
    this.painting.highlight(this.names);
  }

  private said(): void {
    const found = this.names && this.branches.matched(this.names, this.root);
    const share = found ? formatShare(found.ns / this.branches.ns[this.root]!) : "";
    this.matches.textContent = found ? `${count(found.branches)}, ${share} of the time shown` : "";
  }

  private trail(): Node[] {
    const path = this.branches.path(this.root);
    const left = path.length > MOST_CRUMBS + 2 ? [path[0]!, null, ...path.slice(-MOST_CRUMBS)] : path;
    return left.flatMap((one, place) => {
      const before = place ? [document.createTextNode(" > ")] : [];
      if (one === null) return [...before, document.createTextNode("…")];
      if (one === this.root) return [...before, h("strong", {}, this.branches.name(one))];
      return [...before, h("button", { type: "button", class: "link", click: () => this.zoom(one) }, this.branches.name(one))];
    });
  }
}

function count(frames: number): string {
  return `${frames.toLocaleString("en-US")} matching ${frames === 1 ? "frame" : "frames"}`;
}

// Values by row and place as colours, each told in words where the pointer or the keyboard is.

import "./heat-map.css";
import { callout, onLeave } from "../callout";
import { Cells } from "../heat-cells";
import { h } from "../dom";
import { fitted } from "../fitted";
import { Painting } from "../heat-painting";
import { scale } from "../scale";
import { type Selection, onSelection, select, selected } from "../selection";
import { formatValue } from "../units";
import type { Place } from "../heat-painting";
import type { HeatMap } from "../types";
import type { Context } from ".";

export function drawHeatMap(block: HeatMap, context: Context): Element {
  const cells = new Cells(block, context.source);
  if (!block.rows.length || !block.places) return h("p", { class: "muted" }, "No data to plot.");
  const view = new View(block, cells);
  const box = fitted("chart", (width) => view.painting.draw(width));
  box.append(view.painting.element, view.told.element);
  return h("div", { class: "heat-map" }, h("p", { class: "muted" }, `Colour: ${block.legend}.`), box, scale(block.unit, cells));
}

class View {
  readonly told = callout();
  readonly painting: Painting;
  private cell: Place | null = null;

  constructor(
    private readonly block: HeatMap,
    private readonly cells: Cells,
  ) {
    this.painting = new Painting(block, cells);
    const canvas = this.painting.element;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", `${block.title || block.name}: ${block.legend}. Arrow keys move between cells.`);
    canvas.addEventListener("pointermove", (event) => this.pointed(event));
    canvas.addEventListener("pointerdown", (event) => this.pointed(event));
    canvas.addEventListener("pointerleave", onLeave(() => this.select(null)));
    canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && this.select(this.cell ?? [0, 0]));
    canvas.addEventListener("blur", () => this.select(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("click", () => this.choose());
    onSelection(() => this.showChosen());
    this.showChosen();
  }

  /** Selects the rank of a cell, and its step where places are steps. */
  private choose(): void {
    const [row, place] = this.cell ?? [-1, -1];
    const rank = rankAt(this.block, row, place);
    if (rank === null) return;
    const step = this.block.across === "step" ? Number(this.block.columns?.[place]) : NaN;
    const when: Partial<Selection> = Number.isInteger(step) ? { steps: [step, step], zoom: null } : { steps: null };
    select({ ranks: [rank], event: null, time: null, ...when });
  }

  private showChosen(): void {
    const { ranks, steps } = selected();
    if (!ranks.length) return this.painting.choose([]);
    const isIn = (row: number, place: number): boolean => {
      const rank = rankAt(this.block, row, place);
      const step = this.block.across === "step" ? Number(this.block.columns?.[place]) : null;
      return rank !== null && ranks.includes(rank) && (!steps || step === null || (step >= steps[0] && step <= steps[1]));
    };
    this.painting.choose(this.block.rows.flatMap((_, row) => this.placesIn(row).filter((place) => isIn(row, place)).map((place): Place => [row, place])));
  }

  private placesIn(row: number): number[] {
    return [...Array(this.block.widths[row]!).keys()];
  }

  private pointed(event: PointerEvent): void {
    const box = this.painting.element.getBoundingClientRect();
    this.select(this.painting.cellAt(event.clientX - box.left, event.clientY - box.top));
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "Escape") return this.select(null);
    if (event.key === "Enter") return this.choose();
    const moves: Record<string, [number, number]> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      Home: [0, -Infinity],
      End: [0, Infinity],
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const [from, at] = this.cell ?? [0, 0];
    const row = Math.max(0, Math.min(this.block.rows.length - 1, from + move[0]));
    this.select([row, Math.max(0, Math.min(this.block.widths[row]! - 1, at + move[1]))]);
  }

  private select(cell: Place | null): void {
    if (String(cell) === String(this.cell)) return;
    this.cell = cell;
    this.painting.mark(cell);
    if (!cell) return this.told.hide();
    const [row, place] = cell;
    const value = this.cells.at(row, place);
    const column = this.block.columns?.[place] ?? `${place + 1} of ${this.block.widths[row]}`;
    const said = typeof value === "number" ? formatValue(value, this.block.unit) : "no value";
    this.told.show(...this.painting.pointOf(cell), said, [
      [this.block.down || "row", this.block.rows[row] as string],
      [this.block.across || "column", column],
    ]);
  }
}

/** Rows are ranks, such as `4` and `4 (dp0,pp1)`, or ranges of them, such as `0-3` and `0-6/2`. */
function rankAt(block: HeatMap, row: number, place: number): number | null {
  const [, first, last, stride] = /^(\d+)(?:-(\d+))?(?:\/(\d+))?(?= |$)/.exec(block.rows[row] ?? "") ?? [];
  if (first === undefined) return null;
  if (/^rank\b/.test(block.down ?? "")) return Number(first);
  if (block.down !== "ranks" || block.across !== "rank within the row") return null;
  const rank = Number(first) + place * Number(stride ?? 1);
  return rank <= Number(last ?? first) ? rank : null;
}

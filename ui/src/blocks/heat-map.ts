// Values by row and place as colours. Where there are more cells than pixels, the largest of those in a pixel shows.

import "./heat-map.css";
import { Cells } from "../cells";
import { h } from "../dom";
import { resolved } from "../colours";
import { fitted, Surface } from "../fitted";
import { inkOn } from "../palette";
import { hatch, shadeInto, shadeText } from "../ramp";
import { onLeave, readout } from "../callout";
import { scale } from "../scale";
import { formatValue } from "../units";
import type { HeatMap } from "../types";
import type { Context } from ".";

const TALLEST = 720;
const ROW = 26;
const WIDEST = 76;
const FONT = "12px system-ui, sans-serif";
const LABEL_ROOM = 18;
const BESIDE_NAMES = 40;
/** A name may be this much too wide: it is set narrower then. */
const SQUEEZED = 1.3;
const ROOM_FOR_VALUE = 56;

export function drawHeatMap(block: HeatMap, context: Context): Element {
  const cells = new Cells(block, context.source);
  if (!block.rows.length || !block.places) return h("p", { class: "muted" }, "Nothing to draw.");
  const view = new View(block, cells);
  const box = fitted("chart", (width) => view.draw(width));
  box.append(view.element, view.told.element);
  return h("div", { class: "heat-map" }, h("p", { class: "muted" }, `Colour: ${block.legend}.`), box, scale(block.unit, cells));
}

class View {
  readonly told = readout();
  private readonly surface = new Surface(() => this.paint());
  private cell: [number, number] | null = null;
  private left = 0;
  /** Room above, where the name of a thin row is taller than the row. */
  private top = 0;
  private size: [number, number] = [0, 0];
  private across = 0;
  private down = 0;

  constructor(
    private readonly block: HeatMap,
    private readonly cells: Cells,
  ) {
    const canvas = this.surface.element;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", `${block.title || block.name}: ${block.legend}. Arrow keys move between cells.`);
    canvas.addEventListener("pointermove", (event) => this.pointed(event));
    canvas.addEventListener("pointerdown", (event) => this.pointed(event));
    canvas.addEventListener("pointerleave", onLeave(() => this.select(null)));
    canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && this.select(this.cell ?? [0, 0]));
    canvas.addEventListener("blur", () => this.select(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  get element(): HTMLCanvasElement {
    return this.surface.element;
  }

  draw(width: number): void {
    const { rows, places } = this.block;
    const pen = this.surface.pen;
    pen.font = FONT;
    const names = this.labels(rows, rows.length).map((place) => pen.measureText(rows[place] as string).width);
    this.left = Math.min(Math.ceil(Math.max(...names)) + 8, Math.floor(width * 0.35));
    this.size = [
      Math.min(WIDEST, (width - this.left) / places),
      Math.min(ROW, TALLEST / rows.length),
    ];
    this.across = Math.round(this.size[0] * places);
    this.down = Math.max(1, Math.round(this.size[1] * rows.length));
    this.top = Math.max(0, Math.round((LABEL_ROOM - this.size[1]) / 2));
    const named = this.block.columns?.length;
    const right = Math.min(width, this.left + this.across + (named ? BESIDE_NAMES : 2));
    this.surface.resize(right, this.top + this.down + (named ? 22 : 8));
    this.paint();
  }

  private paint(): void {
    const { pen, element } = this.surface;
    pen.clearRect(0, 0, element.width, element.height);
    this.colours();
    pen.font = FONT;
    pen.textBaseline = "middle";
    pen.fillStyle = resolved("--muted");
    this.rowNames();
    this.columnNames();
    if (this.size[0] >= ROOM_FOR_VALUE && this.size[1] >= LABEL_ROOM) this.values();
    this.surface.keep();
    this.mark();
  }

  private mark(): void {
    this.surface.restore();
    if (this.cell) this.outline(this.cell);
  }

  /** Paints one pixel of an image for each cell, or for several where cells are smaller than pixels. */
  private colours(): void {
    const { rows, places } = this.block;
    const { pen, density } = this.surface;
    const wide = Math.min(places, Math.round(this.across * density));
    const high = Math.min(rows.length, Math.round(this.down * density));
    const image = new ImageData(wide, high);
    const none: [number, number][] = [];
    for (let y = 0; y < high; y++)
      for (let x = 0; x < wide; x++) {
        const value = this.cells.most(part(y, high, rows.length), part(x, wide, places));
        if (value === null) none.push([x, y]);
        if (typeof value === "number") shadeInto(image.data, 4 * (y * wide + x), this.cells.share(value));
      }
    const small = new OffscreenCanvas(wide, high);
    small.getContext("2d")!.putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, this.left, this.top, this.across, this.down);
    const [step, drop] = [this.across / wide, this.down / high];
    if (step >= 4 && drop >= 4) for (const [x, y] of none) hatch(pen, this.left + x * step, this.top + y * drop, step, drop);
    else {
      pen.fillStyle = resolved("--idle");
      for (const [x, y] of none) pen.fillRect(this.left + x * step, this.top + y * drop, step, drop);
    }
  }

  private middle(row: number): number {
    return this.top + (row + 0.5) * this.size[1];
  }

  private labels(names: readonly string[], count: number): number[] {
    const every = Math.ceil((LABEL_ROOM * count) / Math.max(1, this.down || TALLEST));
    return names.map((_, place) => place).filter((place) => place % every === 0);
  }

  private rowNames(): void {
    const pen = this.surface.pen;
    pen.textAlign = "right";
    for (const row of this.labels(this.block.rows, this.block.rows.length))
      pen.fillText(this.block.rows[row] as string, this.left - 6, this.middle(row), this.left - 6);
  }

  private columnNames(): void {
    const { pen } = this.surface;
    const names = this.block.columns ?? [];
    const room = Math.max(24, ...names.map((name) => pen.measureText(name).width + 10));
    const every = Math.max(1, Math.ceil(room / SQUEEZED / this.size[0]));
    pen.textAlign = "center";
    names.forEach((name, place) => {
      if (place % every) return;
      pen.fillText(name, this.left + (place + 0.5) * this.size[0], this.top + this.down + 12, every * this.size[0] - 4);
    });
  }

  private values(): void {
    const pen = this.surface.pen;
    pen.textAlign = "center";
    this.block.rows.forEach((_, row) => {
      for (let place = 0; place < this.block.widths[row]!; place++) {
        const value = this.cells.at(row, place);
        if (typeof value !== "number") continue;
        pen.fillStyle = inkOn(shadeText(this.cells.share(value)));
        const text = formatValue(value, this.block.unit);
        pen.fillText(text, this.left + (place + 0.5) * this.size[0], this.middle(row), this.size[0] - 4);
      }
    });
  }

  private outline([row, place]: [number, number]): void {
    const pen = this.surface.pen;
    const [wide, high] = [Math.max(4, this.size[0]), Math.max(4, this.size[1])];
    const [x, y] = [this.left + (place + 0.5) * this.size[0] - wide / 2, this.middle(row) - high / 2];
    pen.strokeStyle = resolved("--text");
    pen.lineWidth = 3;
    pen.strokeRect(x, y, wide, high);
    pen.strokeStyle = resolved("--page");
    pen.lineWidth = 1;
    pen.strokeRect(x, y, wide, high);
  }

  private pointed(event: PointerEvent): void {
    const box = this.element.getBoundingClientRect();
    const place = Math.floor((event.clientX - box.left - this.left) / this.size[0]);
    const row = Math.floor((event.clientY - box.top - this.top) / this.size[1]);
    const inside = place >= 0 && row >= 0 && this.cells.at(row, place) !== undefined;
    this.select(inside ? [row, place] : null);
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "Escape") return this.select(null);
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

  private select(cell: [number, number] | null): void {
    if (String(cell) === String(this.cell)) return;
    this.cell = cell;
    this.mark();
    if (!cell) return this.told.hide();
    const [row, place] = cell;
    const value = this.cells.at(row, place);
    const column = this.block.columns?.[place] ?? `${place + 1} of ${this.block.widths[row]}`;
    const said = typeof value === "number" ? formatValue(value, this.block.unit) : "no value";
    this.told.show(this.left + (place + 0.5) * this.size[0], this.middle(row), said, [
      ["row", this.block.rows[row] as string],
      [this.block.columns?.length ? "column" : "place", column],
    ]);
  }
}

/** Which of `count` cells fall on one of `pixels`. */
function part(pixel: number, pixels: number, count: number): [number, number] {
  return [Math.floor((pixel * count) / pixels), Math.floor(((pixel + 1) * count) / pixels)];
}

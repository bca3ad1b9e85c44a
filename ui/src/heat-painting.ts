// A heat map on its canvas. Where there are more cells than pixels, the largest of those in a pixel shows.

import { resolved } from "./colours";
import { Surface } from "./fitted";
import { inkOn } from "./palette";
import { hatch, shadeInto, shadeText } from "./ramp";
import { formatValue } from "./units";
import type { Cells } from "./heat-cells";
import type { HeatMap } from "./types";

/** A row, and a cell of it. */
export type Place = [number, number];

const TALLEST = 720;
const ROW = 26;
const WIDEST = 76;
const FONT = "12px system-ui, sans-serif";
const LABEL_ROOM = 18;
/** Of a title of an axis. */
const TITLE_LINE = 18;
const BESIDE_NAMES = 40;
/** A name may be this much too wide: it is set narrower then. */
const SQUEEZED = 1.3;
/** Names that are wider than their columns take turns on so many lines; numbers are left out instead. */
const MOST_NAME_LINES = 4;
const NAME_LINE = 15;
const ROOM_FOR_VALUE = 56;
const NUMBER = /^\d+$/;

export class Painting {
  private readonly surface = new Surface(() => this.paint());
  private marked: Place | null = null;
  private chosen: Place[] = [];
  private left = 0;
  /** Room above, where the name of a thin row is taller than the row. */
  private top = 0;
  private size: [number, number] = [0, 0];
  private across = 0;
  private down = 0;
  /** Room for one name of a column in each line is so many columns wide. */
  private every = 1;
  private nameLines = 1;

  constructor(
    private readonly block: HeatMap,
    private readonly cells: Cells,
  ) {}

  get element(): HTMLCanvasElement {
    return this.surface.element;
  }

  draw(width: number): void {
    const { rows, places } = this.block;
    const pen = this.surface.pen;
    pen.font = FONT;
    const names = this.labels(rows, rows.length).map((place) => pen.measureText(rows[place] as string).width);
    this.left = Math.min(Math.ceil(Math.max(...names)) + 8, Math.floor(width * 0.35));
    this.size = [Math.min(WIDEST, (width - this.left) / places), Math.min(ROW, TALLEST / rows.length)];
    this.across = Math.round(this.size[0] * places);
    this.down = Math.max(1, Math.round(this.size[1] * rows.length));
    this.top = (this.block.down ? TITLE_LINE : 0) + Math.max(0, Math.round((LABEL_ROOM - this.size[1]) / 2));
    const named = this.block.columns?.length;
    const titles = [this.block.down ?? "", this.block.across ?? ""].map((title) => Math.ceil(pen.measureText(title).width));
    const right = Math.min(width, Math.max(this.left + this.across + (named ? BESIDE_NAMES : 2), ...titles));
    this.every = this.namedEvery();
    this.nameLines = this.every <= MOST_NAME_LINES && !this.block.columns?.every((name) => NUMBER.test(name)) ? this.every : 1;
    const below = named ? 7 + NAME_LINE * this.nameLines : 8;
    this.surface.resize(right, this.top + this.down + below + (this.block.across ? TITLE_LINE : 0));
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
    this.titles();
    if (this.size[0] >= ROOM_FOR_VALUE && this.size[1] >= LABEL_ROOM) this.values();
    for (const cell of this.chosen) this.outline(cell, "--accent");
    this.surface.keep();
    this.mark(this.marked);
  }

  /** Outlines cells that are selected on the page. */
  choose(cells: Place[]): void {
    if (String(cells) === String(this.chosen)) return;
    this.chosen = cells;
    if (this.across) this.paint();
  }

  /** Outlines a cell, or none. */
  mark(cell: Place | null): void {
    this.marked = cell;
    this.surface.restore();
    if (cell) this.outline(cell);
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

  /** The place of the cell at a point of the canvas; null beside all cells. */
  cellAt(x: number, y: number): Place | null {
    const [row, place] = [Math.floor((y - this.top) / this.size[1]), Math.floor((x - this.left) / this.size[0])];
    return place >= 0 && row >= 0 && this.cells.at(row, place) !== undefined ? [row, place] : null;
  }

  /** The middle of a cell in pixels. */
  pointOf([row, place]: Place): [number, number] {
    return [this.left + (place + 0.5) * this.size[0], this.middle(row)];
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

  private namedEvery(): number {
    const { pen } = this.surface;
    const room = Math.max(24, ...(this.block.columns ?? []).map((name) => pen.measureText(name).width + 10));
    return Math.max(1, Math.ceil(room / SQUEEZED / this.size[0]));
  }

  private columnNames(): void {
    const { pen, element, density } = this.surface;
    const most = this.every * this.size[0] - 4;
    pen.textAlign = "center";
    pen.strokeStyle = resolved("--rule");
    (this.block.columns ?? []).forEach((name, place) => {
      const line = place % this.every;
      if (line >= this.nameLines) return;
      const [x, y] = [this.left + (place + 0.5) * this.size[0], this.top + this.down + 12 + NAME_LINE * line];
      const half = Math.min(most, pen.measureText(name).width) / 2;
      if (line) this.stem(x, y - 7);
      pen.fillText(name, Math.max(half, Math.min(x, element.width / density - half)), y, most);
    });
  }

  /** What rows are above their names, what columns are below theirs and at their end. */
  private titles(): void {
    const { pen, element, density } = this.surface;
    const [wide, high] = [element.width / density, element.height / density];
    const { down, across } = this.block;
    pen.fillStyle = resolved("--text");
    pen.textAlign = "left";
    if (down) pen.fillText(down, 0, TITLE_LINE / 2, wide);
    pen.textAlign = "right";
    const end = Math.max(this.left + this.across, pen.measureText(across ?? "").width);
    if (across) pen.fillText(across, Math.min(wide, end), high - TITLE_LINE / 2, wide);
  }

  /** From a column down to its name on a lower line. */
  private stem(x: number, to: number): void {
    const { pen } = this.surface;
    pen.beginPath();
    pen.moveTo(x, this.top + this.down);
    pen.lineTo(x, to);
    pen.stroke();
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

  private outline(cell: Place, colour = "--text"): void {
    const pen = this.surface.pen;
    const [wide, high] = [Math.max(4, this.size[0]), Math.max(4, this.size[1])];
    const [x, y] = this.pointOf(cell);
    pen.strokeStyle = resolved(colour);
    pen.lineWidth = 3;
    pen.strokeRect(x - wide / 2, y - high / 2, wide, high);
    pen.strokeStyle = resolved("--page");
    pen.lineWidth = 1;
    pen.strokeRect(x - wide / 2, y - high / 2, wide, high);
  }
}

/** Which of `count` cells fall on one of `pixels`. */
function part(pixel: number, pixels: number, count: number): [number, number] {
  return [Math.floor((pixel * count) / pixels), Math.floor(((pixel + 1) * count) / pixels)];
}

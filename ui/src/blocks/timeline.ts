// Bytes by owner over time: areas that stand on each other, so that the upper edge is the total.

import "./timeline.css";
import { fromZero } from "../axes";
import { h, s } from "../dom";
import { fitted } from "../fitted";
import { frameOf, grid, sizeOf, xOf, yOf } from "../grid";
import { paintOf } from "../colours";
import { callout, onLeave } from "../callout";
import { formatBytes, formatNs } from "../units";
import type { Callout } from "../callout";
import type { Frame } from "../grid";
import type { Timeline } from "../types";

const MARK_ROOM = 22;

interface Row {
  name: string;
  held: number[];
  colour: string;
}

export function drawTimeline(block: Timeline): Element {
  const columns = block.total.length;
  const rows = block.rows.flatMap(([name, held]) => (held.some(Boolean) ? [{ name, held, colour: paintOf(name) }] : []));
  if (!columns) return h("p", { class: "muted" }, "No data to plot.");
  const across = fromZero("ns", `time since ${block.began}`, block.span);
  const up = fromZero("bytes", "memory", 1.08 * Math.max(...block.total));
  const told = callout();
  const box = fitted("chart", (width, inside) => {
    const frame = frameOf(across, up, width, Math.round(Math.max(240, Math.min(360, width * 0.4))));
    inside.replaceChildren(new Picture(block, rows, frame, told).element, told.element);
  });
  const names = rows.map((row) => {
    const square = s("path", { d: "M0 0h12v12h-12z", fill: row.colour });
    return h("li", {}, s("svg", { width: 12, height: 12, "aria-hidden": "true" }, square), row.name);
  });
  const empty = block.rows.length - rows.length;
  const note = empty ? h("li", { class: "muted" }, `${empty} more at zero`) : null;
  return h("div", { class: "over-time" }, box, h("ul", { class: "chart-legend" }, ...names, note));
}

class Picture {
  readonly element: SVGElement;
  private readonly cursor = s("path", { class: "cursor" });
  private column: number | null = null;

  constructor(
    private readonly block: Timeline,
    private readonly rows: Row[],
    private readonly frame: Frame,
    private readonly told: Callout,
  ) {
    this.element = s(
      "svg",
      {
        ...sizeOf(frame),
        tabindex: 0,
        role: "application",
        "aria-label": `${block.title || block.name}: bytes by owner over time. Arrow keys move through time.`,
        pointermove: (event) => this.pointed(event as PointerEvent),
        pointerdown: (event) => this.pointed(event as PointerEvent),
        pointerleave: onLeave(() => this.tell(null)),
        focus: () => this.column === null && this.element.matches(":focus-visible") && this.tell(this.fullest()),
        blur: () => this.tell(null),
        keydown: (event) => this.key(event as KeyboardEvent),
      },
      grid(frame),
      ...this.areas(),
      ...this.marks(),
      this.top(),
      this.cursor,
    );
  }

  private edge(column: number): number {
    return xOf(this.frame, (column * this.block.span) / this.block.total.length);
  }

  private areas(): SVGElement[] {
    const below = this.block.total.map(() => 0);
    return this.rows.map((row) => {
      const above = below.map((bytes, column) => bytes + (row.held[column] ?? 0));
      const forth = above.map((bytes, column) => `${column ? "V" : ""}${this.y(bytes)}H${this.x(column + 1)}`).join("");
      const back = [...below.keys()].reverse().map((column) => `V${this.y(below[column]!)}H${this.x(column)}`).join("");
      const d = `M${this.x(0)} ${forth}${back}Z`;
      above.forEach((bytes, column) => (below[column] = bytes));
      return s("path", { class: "area", d, fill: row.colour });
    });
  }

  private x(column: number): string {
    return this.edge(column).toFixed(1);
  }

  private y(bytes: number): string {
    return yOf(this.frame, bytes).toFixed(1);
  }

  /** All steps as lines, and numbers where there is room. */
  private marks(): SVGElement[] {
    let free = -Infinity;
    return this.block.marks.flatMap(([number, at], place) => {
      const x = xOf(this.frame, at);
      const text = place ? String(number) : `${this.block.marked} ${number}`;
      const named = x >= free && x < this.frame.left + this.frame.width;
      if (named) free = x + 7 * text.length + MARK_ROOM;
      return [
        s("path", { class: "mark", d: `M${x} ${this.frame.top}v${this.frame.height}` }),
        named ? s("text", { class: "mark", x: x + 1, y: this.frame.top - 4 }, text) : s("g"),
      ];
    });
  }

  private top(): SVGElement {
    if (this.block.top === null) return s("g");
    const most = Math.max(...this.block.total);
    const [x, y] = [xOf(this.frame, this.block.top), yOf(this.frame, most)];
    const end = x > this.frame.left + this.frame.width / 2;
    return s(
      "g",
      { class: "top" },
      s("path", { d: `M${x} ${y}l-5 -8h10z` }),
      s("text", { x: end ? x - 8 : x + 8, y: y - 1, "text-anchor": end ? "end" : "start" }, `peak ${formatBytes(most)}`),
    );
  }

  private fullest(): number {
    return this.block.total.indexOf(Math.max(...this.block.total));
  }

  private pointed(event: PointerEvent): void {
    const x = event.clientX - this.element.getBoundingClientRect().left - this.frame.left;
    const column = Math.floor((x / this.frame.width) * this.block.total.length);
    this.tell(column >= 0 && column < this.block.total.length ? column : null);
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "Escape") return this.tell(null);
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    this.tell(Math.max(0, Math.min(this.block.total.length - 1, (this.column ?? this.fullest()) + by)));
  }

  private tell(column: number | null): void {
    this.column = column;
    if (column === null) {
      this.cursor.setAttribute("d", "");
      return this.told.hide();
    }
    const at = this.block.at[column] as number;
    const x = xOf(this.frame, at);
    this.cursor.setAttribute("d", `M${x} ${this.frame.top}v${this.frame.height}`);
    const held = this.rows.filter((row) => row.held[column]).reverse();
    const mark = this.block.marks.filter(([, began]) => began <= at).pop();
    this.told.show(x, this.frame.top, `${formatNs(at)}${mark ? `, ${this.block.marked} ${mark[0]}` : ""}`, [
      ...held.map((row): [string, string] => [row.name, formatBytes(row.held[column]!)]),
      ["total", formatBytes(this.block.total[column]!)],
    ]);
  }
}

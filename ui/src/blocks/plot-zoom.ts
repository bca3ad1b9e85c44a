// The part of the x axis that a plot shows: dragged over with the pointer, or changed by keys and buttons.

import { scaled } from "../axes";
import { h, s } from "../dom";
import { capture } from "../timeline/capture";
import type { Axis } from "../axes";
import type { Frame } from "../grid";

/** A shorter drag is a click. In pixels. */
const SHORTEST = 5;
const STEP = 2;
/** The least part of a whole axis; whole numbers are never shown closer than a few of them. */
const LEAST = 1e-6;
const FEWEST = 4;
/** A plot with fewer points needs no buttons: all of it can be seen. */
const MANY_POINTS = 40;

export class Zoom {
  /** Ends as places on the whole axis, from 0 to 1. */
  private range: [number, number] = [0, 1];

  constructor(
    private readonly whole: Axis,
    private readonly redraw: () => void,
  ) {}

  get isWhole(): boolean {
    return this.range[0] === 0 && this.range[1] === 1;
  }

  get axis(): Axis {
    if (this.isWhole) return this.whole;
    const [low, high] = this.range.map((place) => valueAt(this.whole, place)) as [number, number];
    return scaled({ ...this.whole, low, high, own: [] });
  }

  shows(x: number): boolean {
    const place = this.whole.place(x);
    return this.range[0] <= place && place <= this.range[1];
  }

  /** Show what is between two places, from 0 to 1, of the part that is shown. */
  to(from: number, to: number): void {
    const [low, high] = this.range;
    this.show(low + from * (high - low), low + to * (high - low));
  }

  /** Show a part that is this many times as wide, around a value or the middle. */
  by(factor: number, around?: number): void {
    const [low, high] = this.range;
    const middle = around === undefined ? (low + high) / 2 : this.whole.place(around);
    this.show(middle + (low - middle) * factor, middle + (high - middle) * factor);
  }

  /** Move the part so that a value is in its middle. */
  include(x: number): void {
    const half = (this.range[1] - this.range[0]) / 2;
    const place = this.whole.place(x);
    this.show(place - half, place + half);
  }

  reset(): void {
    this.show(0, 1);
  }

  /** What a key does to the part that is shown; whether it does anything. */
  key(key: string, around?: number): boolean {
    if (key === "+" || key === "=") this.by(1 / STEP, around);
    else if (key === "-") this.by(STEP, around);
    else if (key === "0") this.reset();
    else return false;
    return true;
  }

  private show(from: number, to: number): void {
    const width = Math.min(1, Math.max(to - from, this.least()));
    const start = Math.max(0, Math.min((from + to - width) / 2, 1 - width));
    this.range = [start, width === 1 ? 1 : start + width];
    this.redraw();
  }

  private least(): number {
    const { unit, low, high, log } = this.whole;
    return !log && (unit === "" || unit === "count") ? Math.min(1, FEWEST / (high - low)) : LEAST;
  }
}

/** The inverse of `place`. */
function valueAt({ low, high, log }: Axis, place: number): number {
  return log ? low * (high / low) ** place : low + place * (high - low);
}

/** Drags over a chart zoom in, and a double click shows all. A finger scrolls the page: it has the buttons. */
export function dragToZoom(svg: SVGElement, frame: Frame, zoom: Zoom): void {
  const { left, top, width, height } = frame;
  const area = s("rect", { class: "zoom-area", y: top, height, visibility: "hidden" });
  const placeAt = (event: PointerEvent): number =>
    Math.max(0, Math.min(1, (event.clientX - svg.getBoundingClientRect().left - left) / width));
  let from: number | null = null;
  const ends = (event: PointerEvent): [number, number] => {
    const to = placeAt(event);
    return [Math.min(from!, to), Math.max(from!, to)];
  };
  const stop = (): void => {
    from = null;
    area.setAttribute("visibility", "hidden");
  };
  const listen = (name: string, act: (event: PointerEvent) => void): void =>
    svg.addEventListener(name, (event) => act(event as PointerEvent));
  listen("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    from = placeAt(event);
    capture(svg, event);
  });
  listen("pointermove", (event) => {
    if (from === null) return;
    const [low, high] = ends(event);
    area.setAttribute("x", String(left + low * width));
    area.setAttribute("width", String((high - low) * width));
    area.setAttribute("visibility", (high - low) * width < SHORTEST ? "hidden" : "visible");
  });
  listen("pointerup", (event) => {
    if (from === null) return;
    const [low, high] = ends(event);
    stop();
    if ((high - low) * width >= SHORTEST) zoom.to(low, high);
  });
  listen("pointercancel", stop);
  svg.addEventListener("dblclick", () => zoom.reset());
  svg.append(area);
}

/** Buttons for those who cannot drag; none for a plot of few points. */
export function zoomButtons(points: number, zoom: Zoom): HTMLElement | null {
  if (points < MANY_POINTS) return null;
  const act = (label: string, title: string, does: () => void): Element =>
    h("button", { type: "button", title, "aria-label": title, click: does }, label);
  return h(
    "div",
    { class: "zoom-buttons" },
    act("−", "Zoom out (-)", () => zoom.by(STEP)),
    act("+", "Zoom in (+), or drag over a part of the plot", () => zoom.by(1 / STEP)),
    act("All", "Show all steps or points (0 or double-click)", () => zoom.reset()),
  );
}

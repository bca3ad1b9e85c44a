// Series over a common x: marks where something was measured, lines where it was computed.

import "./plot.css";
import { axisOf, drawable, said } from "../axes";
import { h, s } from "../dom";
import { fitted } from "../fitted";
import { frameOf, grid, sizeOf, xOf, yOf } from "../grid";
import { bandLegend, drawBands, drawMarks } from "./plot-marks";
import { placeNames } from "./plot-names";
import { dragToZoom, Zoom, zoomButtons } from "./plot-zoom";
import { looks, MOST_POINTS, nearest, outline, thinned } from "../points";
import { callout, onLeave } from "../callout";
import type { Frame } from "../grid";
import type { Look, Spot } from "../points";
import type { Callout } from "../callout";
import type { Plot, Series } from "../types";

/** From this many points in sight on, marks would hide a line: they are drawn below it. */
const DENSE = 500;

interface Found {
  series: number;
  spot: Spot;
}

export function drawPlot(block: Plot): Element {
  const fits = ([x, y]: [number, number]): boolean => drawable(x, block.log_x) && drawable(y, block.log_y);
  const points = block.series.flatMap((series) => series.points);
  const fitting = points.filter(fits);
  const missing = points.length - fitting.length;
  const note = missing ? `Not drawn: ${missing} ${missing === 1 ? "point" : "points"} that these axes cannot show.` : "";
  if (!fitting.length) return h("p", { class: "muted" }, `No data to plot. ${note}`.trim());
  const zoom = new Zoom(axisOf(block.x, fitting.map(([x]) => x), block.log_x), () => redraw());
  const chart = new Chart(block, fits, zoom);
  let drawn = 0;
  const redraw = (): void => {
    if (!drawn) return;
    const up = axisOf(block.y, inView(block, fits, zoom), block.log_y);
    chart.draw(frameOf(zoom.axis, up, drawn, Math.round(Math.max(240, Math.min(380, drawn * 0.5)))), box, fitting.length);
  };
  const box = fitted("chart", (width) => {
    drawn = width;
    redraw();
  });
  const below = h("div", { class: "below" }, chart.legend, zoomButtons(fitting.length, zoom));
  return h("div", { class: "plot" }, box, below, note ? h("p", { class: "muted" }, note) : null);
}

/** Values of y that the y axis must hold: of lines also those just outside of the part that is shown. */
function inView(block: Plot, fits: (point: [number, number]) => boolean, zoom: Zoom): number[] {
  const found = block.series.flatMap(({ points, drawn }) => {
    const shown = points.map((point) => fits(point) && zoom.shows(point[0]));
    const near = (at: number): boolean => drawn === "line" && Boolean(shown[at - 1] || shown[at + 1]);
    return points.filter((point, at) => shown[at] || (near(at) && fits(point))).map(([, y]) => y);
  });
  return found.length ? found : block.series.flatMap(({ points }) => points.filter(fits).map(([, y]) => y));
}

class Chart {
  readonly legend: HTMLElement;
  private readonly looks: Look[];
  private readonly hidden = new Set<number>();
  private readonly paths: SVGElement[] = [];
  private names: (SVGElement | null)[] = [];
  private readonly told: Callout = callout();
  private readonly cursor = s("circle", { class: "cursor", r: 7, visibility: "hidden" });
  /** All that could be drawn, and those of them that are in sight. */
  private all: Spot[][] = [];
  private spots: Spot[][] = [];
  private at: Found | null = null;

  constructor(
    private readonly block: Plot,
    private readonly fits: (point: [number, number]) => boolean,
    private readonly zoom: Zoom,
  ) {
    this.looks = looks(block.series);
    const entries = block.series.map((series, place) => this.entry(series, place));
    this.legend = h("ul", { class: "chart-legend" }, ...entries, ...bandLegend(block));
  }

  draw(frame: Frame, box: HTMLElement, count: number): void {
    this.all = this.block.series.map((series) =>
      series.points.flatMap((point, place) =>
        this.fits(point) ? [{ x: xOf(frame, point[0]), y: yOf(frame, point[1]), point: place }] : [],
      ),
    );
    this.spots = this.all.map((spots, place) => spots.filter((spot) => this.isInSight(place, spot)));
    this.block.series.forEach(({ drawn }, place) => {
      const shown = (drawn === "line" ? this.all : this.spots)[place] as Spot[];
      this.paths[place] = this.path(count > MOST_POINTS ? thinned(shown, drawn) : shown, drawn, place);
    });
    this.names = placeNames(this.block.series, this.spots, frame);
    this.names.forEach((name, place) => name?.setAttribute("visibility", this.visibility(place)));
    const lines = this.paths.filter((_, place) => this.block.series[place]?.drawn === "line");
    const marks = this.paths.filter((_, place) => this.block.series[place]?.drawn === "marks");
    const isDense = this.spots.flat().length > DENSE;
    const what = `${this.block.title || this.block.name}: ${frame.up.title} over ${frame.across.title}`;
    const svg = s(
      "svg",
      {
        ...sizeOf(frame),
        tabindex: 0,
        role: "application",
        "aria-label": `${what}. Arrow keys move between points; + and - zoom, 0 shows all.`,
        pointermove: (event) => this.pointed(event as PointerEvent, svg),
        pointerdown: (event) => this.pointed(event as PointerEvent, svg),
        pointerleave: onLeave(() => this.tell(null)),
        focus: () => this.at ?? this.tell(this.first()),
        blur: () => this.tell(null),
        keydown: (event) => this.key(event as KeyboardEvent),
      },
      drawBands(this.block, frame),
      grid(frame),
      drawMarks(this.block, frame),
      ...(isDense ? marks : []),
      clipped(frame, this.zoom.isWhole, lines),
      ...(isDense ? [] : marks),
      ...this.names,
      this.cursor,
    );
    dragToZoom(svg, frame, this.zoom);
    const hadFocus = box.contains(document.activeElement);
    box.replaceChildren(svg, this.told.element);
    this.tell(null);
    if (hadFocus) svg.focus({ preventScroll: true });
  }

  private isInSight(series: number, spot: Spot): boolean {
    return this.zoom.isWhole || this.zoom.shows(this.block.series[series]!.points[spot.point]![0]);
  }

  private path(spots: Spot[], drawn: Series["drawn"], place: number): SVGElement {
    const look = this.looks[place] as Look;
    const paint = drawn === "line" ? { stroke: look.colour, "stroke-dasharray": look.dash } : { fill: look.colour };
    const visibility = this.visibility(place);
    return s("path", { class: drawn, d: outline(spots, look, drawn), "data-points": spots.length, visibility, ...paint });
  }

  private visibility(place: number): string {
    return this.hidden.has(place) ? "hidden" : "visible";
  }

  private entry(series: Series, place: number): HTMLElement {
    const look = this.looks[place] as Look;
    const swatch = s(
      "svg",
      { width: 22, height: 12, "aria-hidden": "true" },
      series.drawn === "line"
        ? s("path", { class: "line", d: "M0 6h22", stroke: look.colour, "stroke-dasharray": look.dash })
        : s("path", { d: `M11 6${look.shape}`, fill: look.colour }),
    );
    const click = (): void => this.toggle(place, button);
    const button = h("button", { type: "button", "aria-pressed": "true", click }, swatch, series.name);
    return h("li", {}, button);
  }

  private toggle(place: number, button: HTMLElement): void {
    if (!this.hidden.delete(place)) this.hidden.add(place);
    button.setAttribute("aria-pressed", String(!this.hidden.has(place)));
    this.paths[place]?.setAttribute("visibility", this.visibility(place));
    this.names[place]?.setAttribute("visibility", this.visibility(place));
    this.tell(null);
  }

  private shown(): Spot[][] {
    return this.spots.map((spots, place) => (this.hidden.has(place) ? [] : spots));
  }

  private first(): Found | null {
    const series = this.shown().findIndex((spots) => spots.length);
    return series < 0 ? null : { series, spot: this.spots[series]?.[0] as Spot };
  }

  private pointed(event: PointerEvent, svg: Element): void {
    if (event.type === "pointermove" && event.buttons && event.pointerType !== "touch") return this.tell(null);
    const box = svg.getBoundingClientRect();
    this.tell(nearest(this.shown(), event.clientX - box.left, event.clientY - box.top));
  }

  private key(event: KeyboardEvent): void {
    const at = this.at ?? this.first();
    if (event.key === "Escape") return this.at ? this.tell(null) : this.zoom.reset();
    if (!event.ctrlKey && !event.metaKey && this.zoomed(event.key)) return event.preventDefault();
    if (!at) return;
    const along = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    const between = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (along === undefined && between === undefined) return;
    event.preventDefault();
    this.tell(along !== undefined ? this.along(at, along) : this.between(at, between as number));
  }

  /** The callout stays open if its point is still in sight. */
  private zoomed(key: string): boolean {
    const { at } = this;
    const around = at ? this.block.series[at.series]!.points[at.spot.point]![0] : undefined;
    if (!this.zoom.key(key, around)) return false;
    if (at) this.tell(this.again(at));
    return true;
  }

  /** The same point after the plot was drawn again. */
  private again(at: Found): Found | null {
    const spot = this.spots[at.series]?.find(({ point }) => point === at.spot.point);
    return spot ? { series: at.series, spot } : null;
  }

  /** A point that is not in sight is brought into sight. */
  private along(at: Found, by: number): Found | null {
    const spots = [...(this.all[at.series] as Spot[])].sort((a, b) => a.x - b.x || a.point - b.point);
    const place = spots.findIndex((spot) => spot.point === at.spot.point);
    const spot = spots[Math.max(0, Math.min(spots.length - 1, place + by))] as Spot;
    if (this.isInSight(at.series, spot)) return { series: at.series, spot };
    this.zoom.include(this.block.series[at.series]!.points[spot.point]![0]);
    return this.again({ series: at.series, spot });
  }

  private between(at: Found, by: number): Found {
    const shown = this.shown();
    let series = at.series + by;
    while (series >= 0 && series < shown.length && !shown[series]?.length) series += by;
    const others = shown.map((spots, place) => (place === series ? spots : []));
    return nearest(others, at.spot.x, at.spot.y) ?? at;
  }

  private tell(found: Found | null): void {
    this.at = found;
    this.cursor.setAttribute("visibility", found ? "visible" : "hidden");
    if (!found) return this.told.hide();
    const series = this.block.series[found.series] as Series;
    const [x, y] = series.points[found.spot.point] as [number, number];
    this.cursor.setAttribute("cx", String(found.spot.x));
    this.cursor.setAttribute("cy", String(found.spot.y));
    this.told.show(found.spot.x, found.spot.y, series.name, [
      [this.block.x.label || this.block.x.name, said(x, this.block.x)],
      [this.block.y.label || this.block.y.name, said(y, this.block.y)],
    ]);
  }
}

/** Lines go on outside of the part that is shown: a view of its own cuts them. */
function clipped({ left, top, width, height }: Frame, isWhole: boolean, lines: SVGElement[]): SVGElement {
  if (isWhole) return s("g", {}, ...lines);
  return s("svg", { x: left, y: top, width, height, viewBox: `${left} ${top} ${width} ${height}` }, ...lines);
}

// Names beside marks where there is room for them, as in show/report/svg_plot.py: for series that are single marks.

import { s } from "../dom";
import { widthOf } from "../fitting";
import type { Frame } from "../grid";
import type { Spot } from "../points";
import type { Series } from "../types";

/** That of chart.css. */
const FONT = "12px system-ui, sans-serif";
/** Pixels between places of a line that no name may cover. */
const APART = 4;

type Box = [left: number, top: number, right: number, bottom: number];

/** The names by series; null for a mark without a name. */
export function placeNames(series: Series[], spots: Spot[][], frame: Frame): (SVGElement | null)[] {
  const marks = series.flatMap(({ drawn, points }, place) => (drawn === "marks" && points.length ? [place] : []));
  const single = marks.filter((place) => series[place]!.points.length === 1 && spots[place]!.length === 1);
  if (single.length < Math.max(2, marks.length - 1)) return series.map(() => null);
  const taken: Box[] = spots.flatMap((own, place) =>
    series[place]!.drawn === "marks" ? own.map(({ x, y }): Box => [x - 5, y - 5, x + 5, y + 5]) : along(own),
  );
  return series.map(({ name }, place) => {
    const spot = single.includes(place) ? spots[place]![0]! : null;
    return spot && beside(name, spot, frame, taken);
  });
}

function beside(name: string, { x, y }: Spot, frame: Frame, taken: Box[]): SVGElement | null {
  const width = widthOf(name, FONT);
  const places: [number, number][] = [
    [x + 8, y + 4],
    [x - 8 - width, y + 4],
    [x - width / 2, y - 9],
    [x - width / 2, y + 17],
  ];
  for (const [left, line] of places) {
    const box: Box = [left, line - 9, left + width, line + 3];
    if (!isInside(box, frame) || taken.some((other) => overlap(box, other))) continue;
    taken.push(box);
    return s("text", { class: "name", x: left, y: line }, name);
  }
  return null;
}

function isInside([left, top, right, bottom]: Box, frame: Frame): boolean {
  const isAcross = left > frame.left && right < frame.left + frame.width;
  return isAcross && top > frame.top && bottom < frame.top + frame.height;
}

/** Places on a line, so close that no name fits between them. */
function along(spots: Spot[]): Box[] {
  return spots.slice(1).flatMap((to, place) => {
    const from = spots[place]!;
    const steps = Math.max(1, Math.ceil(Math.hypot(to.x - from.x, to.y - from.y) / APART));
    return Array.from({ length: steps + 1 }, (_, step): Box => {
      const [x, y] = [from.x + ((to.x - from.x) * step) / steps, from.y + ((to.y - from.y) * step) / steps];
      return [x, y, x, y];
    });
  });
}

function overlap(one: Box, other: Box): boolean {
  return one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
}

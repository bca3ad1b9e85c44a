// Points of a series on the screen: their looks, thinned to what pixels can show, and which is nearest.

import { greatest, least, sort } from "d3-array";
import { paintAt } from "./palette";
import type { Series } from "./types";

export interface Look {
  colour: string;
  shape: string;
  dash: string;
}

/** A point in pixels, and its place among those of the series. */
export interface Spot {
  x: number;
  y: number;
  point: number;
}

/** More points than this are thinned to one for each few pixels. */
export const MOST_POINTS = 5000;
const FINEST = 2;
const SHAPES = [
  "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
  "m-3 -3h6v6h-6z",
  "m0 -4l4 7h-8z",
  "m0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
  "m0 4l4 -7h-8z",
];
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

/** Names that are the same up to a colon are about one thing: they share its colour, and differ in shape or dash. */
export function looks(series: Series[]): Look[] {
  const subjects: string[] = [];
  const alike = new Map<string, number>();
  return series.map(({ name, drawn }) => {
    const subject = name.split(":", 1)[0] as string;
    if (!subjects.includes(subject)) subjects.push(subject);
    const place = subjects.indexOf(subject);
    const same = alike.get(`${drawn} ${subject}`) ?? 0;
    alike.set(`${drawn} ${subject}`, same + 1);
    const round = Math.floor(place / 8);
    return {
      colour: paintAt(place),
      shape: SHAPES[(place + same) % SHAPES.length] as string,
      dash: DASHES[(round + same) % DASHES.length] as string,
    };
  });
}

/** Marks that fall on one spot of the screen are drawn once; of a line, each column keeps its ends and extremes. */
export function thinned(spots: Spot[], drawn: Series["drawn"]): Spot[] {
  return drawn === "marks" ? oncePerSpot(spots) : extremes(spots);
}

function oncePerSpot(spots: Spot[]): Spot[] {
  const taken = new Set<string>();
  return spots.filter(({ x, y }) => {
    const cell = `${Math.round(x / FINEST)} ${Math.round(y / FINEST)}`;
    return !taken.has(cell) && taken.add(cell);
  });
}

function extremes(spots: Spot[]): Spot[] {
  const kept: Spot[] = [];
  for (let first = 0, next = 0; first < spots.length; first = next) {
    const column = Math.round((spots[first] as Spot).x);
    while (next < spots.length && Math.round((spots[next] as Spot).x) === column) next++;
    const inside = spots.slice(first, next);
    const told = [inside[0], least(inside, ({ y }) => y), greatest(inside, ({ y }) => y), inside[inside.length - 1]];
    kept.push(...sort(new Set(told as Spot[]), ({ point }) => point));
  }
  return kept;
}

export function outline(spots: Spot[], look: Look, drawn: Series["drawn"]): string {
  const at = ({ x, y }: Spot): string => `${x.toFixed(1)} ${y.toFixed(1)}`;
  if (drawn === "line") return spots.map((spot, place) => `${place ? "L" : "M"}${at(spot)}`).join("");
  return spots.map((spot) => `M${at(spot)}${look.shape}`).join("");
}

/** The series and the spot in it that are nearest to a place; hidden series have no spots. */
export function nearest(shown: Spot[][], x: number, y: number): { series: number; spot: Spot } | null {
  const spots = shown.flatMap((own, series) => own.map((spot) => ({ series, spot })));
  return least(spots, ({ spot }) => (spot.x - x) ** 2 + (spot.y - y) ** 2) ?? null;
}

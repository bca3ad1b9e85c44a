// Which rows a timeline shows, and in which order: pinned ones first, then the others as they were asked for.

import type { Model } from "./model";

export const LATEST = "latest first";
export const BY_RANK = "by rank";

export interface Arrangement {
  /** One of `ordersOf`. */
  order: string;
  /** Ranks as `3, 8-11`, or a part of the name of a row or of its group. */
  filter: string;
  pinned: readonly number[];
}

export interface Arranged {
  /** Places of groups of the model, in the order in which they are shown. */
  groups: number[];
  /** How many of them are pinned. */
  pinned: number;
  /** Names that stand over the first row of a group of rows. */
  headings: Map<number, string>;
}

/** The first is what a timeline begins with. */
export function ordersOf(model: Model): string[] {
  const late = model.late.some((ns) => ns > 0) ? [LATEST] : [];
  return [...late, BY_RANK, ...model.cohorts.map(([name]) => `by ${name}`)];
}

export function arrange(model: Model, { order, filter, pinned }: Arrangement): Arranged {
  const on = [...new Set(pinned)].map((rank) => model.groups.findIndex((group) => group.rank === rank)).filter((place) => place >= 0);
  const known = ordersOf(model);
  const wanted = known.includes(order) ? order : known[0]!;
  const [, names] = model.cohorts.find(([name]) => `by ${name}` === wanted) ?? ["", null];
  const rest = [...model.groups.keys()].filter((place) => !on.includes(place) && isWanted(model, place, filter));
  const late = (place: number): number => model.late[place] ?? 0;
  if (wanted === LATEST) rest.sort((one, other) => late(other) - late(one) || one - other);
  if (names) rest.sort((one, other) => inOrder(names[one]!, names[other]!) || one - other);
  const headings = new Map<number, string>();
  if (names) rest.forEach((place, at) => names[place] !== names[rest[at - 1] ?? -1] && headings.set(place, names[place]!));
  return { groups: [...on, ...rest], pinned: on.length, headings };
}

function isWanted(model: Model, place: number, filter: string): boolean {
  const text = filter.trim().toLowerCase();
  if (!text) return true;
  const { name, rank } = model.groups[place]!;
  if (/^[\d\s,-]+$/.test(text)) return rank !== null && text.split(",").some((part) => isInside(rank, part));
  return name.toLowerCase().includes(text) || model.cohorts.some(([, names]) => names[place]!.toLowerCase().includes(text));
}

/** Whether a rank is `8`, or in `8-11`. */
function isInside(rank: number, part: string): boolean {
  const [first = "", last = first] = part.split("-").map((word) => word.trim());
  return first !== "" && rank >= Number(first) && rank <= Number(last || Infinity);
}

const inOrder = new Intl.Collator("en", { numeric: true }).compare;

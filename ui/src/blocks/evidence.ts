// What a finding rests on, with ways to look at it where it happened.

import type { Child } from "../dom";
import type { Evidence } from "../types";
import { h } from "../dom";
import { prose } from "../glossary";
import type { Selection } from "../selection";
import { showOnTimeline } from "../timeline/where";
import { formatValues } from "../units";

const MOST_EVENTS = 12;
/** An address has room for so many, and a screen for so many rows that stay on top. */
const [MOST_RANKS, MOST_PINNED] = [64, 4];

export function drawEvidence(items: Evidence[]): Element | null {
  if (!items.length) return null;
  const count = `Evidence (${items.length})`;
  return h("details", { class: "evidence" }, h("summary", {}, count), h("ul", {}, ...items.map(drawn)));
}

function drawn(one: Evidence): Element {
  return h("li", {}, ...prose(one.what), h("div", { class: "where" }, ...places(one), ...events(one), ...sources(one)));
}

function places(one: Evidence): Child[] {
  const words = [
    one.ranks.length ? `${one.ranks.length > 1 ? "ranks" : "rank"} ${formatValues(one.ranks, "")}` : "",
    one.steps.length ? `${one.steps.length > 1 ? "steps" : "step"} ${formatValues(one.steps, "")}` : "",
  ].filter(Boolean);
  if (!one.ranks.length) return words;
  const steps: [number, number] | null = one.steps.length ? [Math.min(...one.steps), Math.max(...one.steps)] : null;
  return [link(words.join(", "), { ranks: one.ranks.slice(0, MOST_RANKS), pinned: one.ranks.slice(0, MOST_PINNED), steps })];
}

function events(one: Evidence): Child[] {
  const left = one.events.length - MOST_EVENTS;
  const links = one.events
    .slice(0, MOST_EVENTS)
    .map(([rank, event]) => link(`event ${event} of rank ${rank}`, { ranks: [rank], pinned: [rank], open: [rank], event: [rank, event] }));
  return left > 0 ? [...links, `and ${left.toLocaleString("en-US")} more ${left === 1 ? "event" : "events"}`] : links;
}

function sources(one: Evidence): Child[] {
  return one.sources.map((source) => h("code", {}, source));
}

function link(words: string, part: Partial<Selection>): Element {
  const show = (): void => showOnTimeline({ open: [], ...part });
  return h("button", { type: "button", class: "link", title: "Show on the timeline", click: show }, words);
}

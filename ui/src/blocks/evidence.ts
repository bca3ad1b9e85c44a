// What a finding rests on, with ways to look at it where it happened.

import type { Child } from "../dom";
import type { Evidence } from "../types";
import { h } from "../dom";
import { prose } from "../glossary";
import { formatValues } from "../units";

/** Told to the document; a timeline that listens shows the place. */
export const SHOW = "lostflops:show";
export interface Place {
  rank: number;
  event?: number;
  step?: number;
  /** With a step: up to this one. */
  last?: number;
}

const MOST_EVENTS = 12;

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
  const [rank] = one.ranks;
  if (rank === undefined) return words;
  const [step, last] = [Math.min(...one.steps), Math.max(...one.steps)];
  const when = one.steps.length ? (last > step ? { step, last } : { step }) : {};
  return [link(words.join(", "), { rank, ...when })];
}

function events(one: Evidence): Child[] {
  const left = one.events.length - MOST_EVENTS;
  const links = one.events
    .slice(0, MOST_EVENTS)
    .map(([rank, event]) => link(`event ${event} of rank ${rank}`, { rank, event }));
  return left > 0 ? [...links, `and ${left.toLocaleString("en-US")} more ${left === 1 ? "event" : "events"}`] : links;
}

function sources(one: Evidence): Child[] {
  return one.sources.map((source) => h("code", {}, source));
}

function link(words: string, detail: Place): Element {
  const show = () => document.dispatchEvent(new CustomEvent<Place>(SHOW, { detail }));
  return h("button", { type: "button", class: "link", title: "Show on the timeline", click: show }, words);
}

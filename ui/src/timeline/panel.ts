// All that is known of what is selected: an event with its launch or what it launched, a collective on all its ranks,
// a stretch of a row.

import { h, type Child } from "../dom";
import { formatNs } from "../units";
import { launchedBy } from "./arrows";
import { edges } from "./furniture";
import { meaning } from "./legend";
import { arrivalsOf, meetingAt, meetingOf } from "./meeting";
import type { Items } from "./model";
import type { State, Target } from "./state";
import type { Surroundings } from "./timeline";

const MOST_LAUNCHED = 6;

export interface Actions {
  show(target: Target): void;
  zoom(start: number, stop: number): void;
}

export function panel(state: State, { glossary, totals }: Pick<Surroundings, "glossary" | "totals">, actions: Actions): Element {
  const target = state.selected;
  if (!target) return h("p", { class: "muted" }, hint(state, totals !== null));
  const [name, pairs, more] = target.item === null ? stretch(state, target, glossary) : event(state, target, glossary, actions);
  const zoom = h("button", { type: "button", click: () => actions.zoom(...edges(state, target)) }, "Zoom to event");
  const facts = pairs.flatMap(([label, value]) => [h("dt", {}, label), h("dd", {}, value)]);
  const head = h("p", { class: "selected" }, h("strong", {}, name), target.item === null ? null : zoom);
  return h("div", {}, head, h("dl", {}, ...facts), ...more);
}

function hint(state: State, hasSums: boolean): string {
  if (matchMedia("(pointer: coarse)").matches) {
    const lanes = state.model.strips ? " Tap a rank's name to open its lanes." : "";
    return `Tap for details.${lanes} Drag with one finger to pan, pinch to zoom.`;
  }
  const below = state.model.strips ? " Click a rank's name (or press Enter) to open its lanes." : "";
  const sums = hasSums ? " and read its sums" : "";
  return `Drag to select an area${sums}. Click for details.${below} Pan: a and d, or Shift+drag. Zoom: w and s, or Ctrl+wheel. Pin a row: p. Next or previous event: Shift+arrows. Show everything: 0.`;
}

type Told = [name: string, pairs: [string, Child][], more: Element[]];

function stretch(state: State, target: Target, glossary: Record<string, string>): Told {
  const { model } = state;
  const group = model.groups[target.group]!;
  const strips = model.strips!;
  const bin = strips.binAt(target.time / model.span);
  const [code] = strips.stretch(group.strip!, bin);
  const kind = code ? model.kinds[code - 1]! : "nothing recorded";
  const [start, stop] = edges(state, target);
  const pairs: [string, Child][] = [
    ["meaning", meaning(kind, glossary) || "no ledger line covers most of this time"],
    ["row", group.name],
    ["start", since(state, start)],
    ["duration", `${formatNs(stop - start)}, to within ${formatNs(model.span / strips.bins)}`],
  ];
  const items = group.lanes[0]?.items;
  const meeting = items && kind.startsWith("comm.") ? meetingAt(items.meetings, group.strip!, target.time) : null;
  return [kind, pairs, meeting === null ? [] : [arrivalsOf(state, items!.meetings, meeting)]];
}

function event(state: State, target: Target, glossary: Record<string, string>, actions: Actions): Told {
  const { items, name: lane } = target.lane!;
  const item = target.item!;
  const kind = items.kinds[items.kind[item]!]!;
  const wait = items.wait[item]!;
  const dur = items.dur[item]!;
  const pairs: [string, Child][] = [
    ["kind", h("span", { title: meaning(kind, glossary), class: "word" }, kind)],
    [state.model.strips ? "rank" : "row", state.model.groups[target.group]!.name],
    ...(lane ? [["lane", lane] as [string, Child]] : []),
    ["start", since(state, items.start[item]!)],
    ["duration", formatNs(dur)],
    ...(wait > 0 ? [["wait", `${formatNs(wait)}, then ${formatNs(dur - wait)} of transfer`] as [string, Child]] : []),
    ...(items.event.some(Boolean) ? [["event", String(items.event[item])] as [string, Child]] : []),
    ...items.said(item),
    ...launches(state, target, items, actions),
  ];
  const isCollective = kind === "comm" || kind === "host_comm";
  const meeting = isCollective ? meetingOf(items, state.model.groups[target.group]!.strip, item) : null;
  const alone = h("p", { class: "muted" }, "Its other ranks are not shown: the collective was not matched on another rank, or it is left out of this page.");
  const arrivals = meeting !== null ? [arrivalsOf(state, items.meetings, meeting)] : isCollective ? [alone] : [];
  return [items.names[items.name[item]!]!, pairs, arrivals];
}

function launches(state: State, target: Target, items: Items, actions: Actions): [string, Child][] {
  const item = target.item!;
  const call = items.launch[item]!;
  if (call) {
    const gap = items.start[item]! - items.start[call - 1]!;
    // Clocks of host and device are not always told to the microsecond.
    const when = gap < 0 ? `recorded ${formatNs(-gap)} later` : `${formatNs(gap)} earlier`;
    return [["launched by", link(state, target, items, call - 1, `${items.names[items.name[call - 1]!]!}, ${when}`, actions)]];
  }
  if (items.kinds[items.kind[item]!] !== "runtime") return [];
  return launchedBy(items, item, MOST_LAUNCHED).map((one) => {
    const gap = items.start[one]! - items.start[item]!;
    return ["launches", link(state, target, items, one, `${items.names[items.name[one]!]!}, ${formatNs(gap)} later`, actions)];
  });
}

function link(state: State, from: Target, items: Items, item: number, text: string, actions: Actions): Element {
  // A server's events come by window: lanes that came since know these places as other events.
  const lanes = state.model.groups[from.group]!.lanes.filter((one) => one.items === items);
  const lane = lanes.find((one) => item >= one.first && item < one.first + one.count);
  if (!lane) return h("span", {}, text);
  const target = { group: from.group, lane, item, time: items.start[item]! };
  return h("button", { type: "button", class: "link", click: () => actions.show(target) }, text);
}

/** A moment, from the beginning and from the mark before it. */
function since(state: State, ns: number): string {
  const { marks, marked } = state.model;
  const mark = [...marks].reverse().find(([, at]) => at <= ns);
  const after = mark ? `, ${formatNs(ns - mark[1])} into ${marked} ${mark[0]}` : "";
  return `${formatNs(ns)} from the start${after}`;
}

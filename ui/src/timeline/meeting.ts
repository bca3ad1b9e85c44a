// A collective on all its ranks: who came when, who waited, and for whom.

import { h } from "../dom";
import { formatNs } from "../units";
import type { Items, Meetings } from "./model";
import type { State } from "./state";

const MOST_ROWS = 12;

/** The meeting that a row was in at a moment; the one that began last where there are several. */
export function meetingAt(meetings: Meetings, row: number, time: number): number | null {
  let found: number | null = null;
  let latest = -Infinity;
  for (let at = 0; at < meetings.row.length; at++) {
    const arrived = meetings.arrived[at]!;
    if (meetings.row[at] === row && arrived <= time && time < arrived + meetings.dur[at]! && arrived > latest) {
      [found, latest] = [meetings.meeting[at]!, arrived];
    }
  }
  return found;
}

/** The meeting that an event of a row is a part of; null if it is not known. */
export function meetingOf({ meetings, event }: Items, row: number | null, item: number): number | null {
  const place = meetings.event.findIndex((one, at) => one === event[item] && meetings.row[at] === row);
  return place < 0 ? null : meetings.meeting[place]!;
}

export function arrivalsOf(state: State, meetings: Meetings, meeting: number): Element {
  const places = [...meetings.meeting.keys()].filter((at) => meetings.meeting[at] === meeting && meetings.row[at]! >= 0);
  places.sort((a, b) => meetings.arrived[b]! - meetings.arrived[a]!);
  const first = meetings.arrived[places.at(-1)!]!;
  const waited = places.some((at) => meetings.wait[at]! > 0);
  const heads = ["rank", "arrived after the first", "waited", "transfer"];
  const row = (at: number, order: number): Element =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, state.model.groups[meetings.row[at]!]!.name, order === 0 && waited ? " (last)" : ""),
      h("td", { class: "number" }, formatNs(meetings.arrived[at]! - first)),
      h("td", { class: "number" }, formatNs(meetings.wait[at]!)),
      h("td", { class: "number" }, formatNs(meetings.dur[at]! - meetings.wait[at]!)),
    );
  const body = h("tbody", {}, ...places.slice(0, MOST_ROWS).map(row));
  const rest = places.slice(MOST_ROWS);
  const more = h("button", { type: "button" }, `Show all ${places.length.toLocaleString("en-US")} ranks`);
  more.addEventListener("click", () => {
    body.append(...rest.map((at) => row(at, MOST_ROWS)));
    more.remove();
  });
  const said = meetings.sayings[meetings.said[places[0]!]!]!;
  return h(
    "div",
    { class: "meeting" },
    h("p", {}, `Collective ${said}: ${places.length.toLocaleString("en-US")} ranks, latest arrival first.`),
    h(
      "div",
      { class: "scroll" },
      h("table", {}, h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))), body),
    ),
    rest.length ? more : null,
  );
}

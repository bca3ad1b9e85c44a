// Who made whom wait, and what launched what: arrows for what is selected.

import { meetingAt, meetingOf } from "./meeting";
import type { Items, Meetings } from "./model";
import { eventOf } from "./pick";
import type { State, Target } from "./state";

export interface Arrow {
  from: Target;
  to: Target;
  kind: "late" | "launch";
}

const MOST = 64;

export function arrowsOf(state: State): Arrow[] {
  const { selected, area } = state;
  const found = selected ? [...launch(state, selected), ...waiting(state, selected)] : [];
  if (!area || found.some(({ kind }) => kind === "late")) return found;
  const middle = (area.start + area.stop) / 2;
  for (const group of area.groups) {
    const arrows = waiting(state, { group, lane: null, item: null, time: middle });
    if (arrows.length) return [...found, ...arrows];
  }
  return found;
}

/** From the last to arrive at a collective to those who waited for it. */
function waiting(state: State, { group, lane, item, time }: Target): Arrow[] {
  const items = lane?.items ?? state.model.groups[group]?.lanes[0]?.items;
  if (!items) return [];
  const row = state.model.groups[group]!.strip;
  const meeting = item === null ? meetingAt(items.meetings, group, time) : meetingOf(items, row, item);
  return meeting === null ? [] : arrivals(items.meetings, meeting);
}

function arrivals(meetings: Meetings, meeting: number): Arrow[] {
  const places = [...meetings.meeting.keys()].filter((at) => meetings.meeting[at] === meeting);
  const last = places.reduce((best, at) => (meetings.arrived[at]! > meetings.arrived[best]! ? at : best), places[0]!);
  const moment = (at: number): Target => ({ group: meetings.row[at]!, lane: null, item: null, time: meetings.arrived[last]! });
  return places
    .filter((at) => at !== last && meetings.wait[at]! > 0)
    .slice(0, MOST)
    .map((at) => ({ from: moment(last), to: moment(at), kind: "late" }));
}

/** From a runtime call to what it launched, both ways. */
function launch(state: State, target: Target): Arrow[] {
  const { lane, item, group } = target;
  if (!lane || item === null) return [];
  const { items } = lane;
  const at = (place: number): Target | null => eventOf(state, group, items.event[place]!);
  const call = items.launch[item]!;
  const pairs: [number, number][] = call ? [[call - 1, item]] : launchedBy(items, item).map((one) => [item, one]);
  return pairs.flatMap(([from, to]): Arrow[] => {
    const [one, other] = [at(from), at(to)];
    return one && other ? [{ from: one, to: other, kind: "launch" }] : [];
  });
}

/** Places of what a runtime call launched. */
export function launchedBy(items: Items, item: number, most = MOST): number[] {
  const found: number[] = [];
  for (let place = 0; place < items.launch.length && found.length < most; place++) {
    if (items.launch[place] === item + 1) found.push(place);
  }
  return found;
}

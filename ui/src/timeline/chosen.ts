// The part of a selection that a timeline shows, and how its state becomes it.

import { predictionOf } from "../predictions";
import type { Selection } from "../selection";
import { edges } from "./furniture";
import { eventOf } from "./pick";
import type { State, Target } from "./state";

/** Time on both sides of steps that is shown with them, as a part of theirs. */
const AROUND = 0.01;

export type Wanted = Omit<Selection, "view">;

/** Shows and selects what is wanted, as far as it is there: events of a live page come later. */
export function follow(state: State, wanted: Wanted): void {
  const { view, model } = state;
  const { order, filter, pinned } = wanted;
  state.unfolded.clear();
  for (const group of wanted.open.map((rank) => state.groupOf(rank))) if (group >= 0) state.unfolded.add(group);
  state.predicted = predictionOf(wanted.changes);
  state.arrange({ order, filter, pinned });
  const steps = stepsOf(state, wanted.steps);
  if (wanted.zoom) view.show(...wanted.zoom);
  else if (steps) view.show(steps[0] - AROUND * (steps[1] - steps[0]), steps[1] + AROUND * (steps[1] - steps[0]));
  else view.reset();
  const time = wanted.time ?? steps;
  const groups = [...new Set(wanted.ranks.map((rank) => state.groupOf(rank)))].filter((group) => group >= 0);
  // No groups are all: ranks that are not there are not all of them.
  const isHere = time !== null && time[0] < model.span && (groups.length > 0 || !wanted.ranks.length);
  const own = !wanted.time && wanted.steps ? { steps: wanted.steps } : {};
  state.area = isHere ? { start: time[0], stop: Math.min(time[1], model.span), groups, ...own } : null;
  state.marked = new Set(groups);
  state.notes = wanted.notes;
  find(state, wanted);
  if (state.selected) state.cursor = state.selected.group;
  else if (groups.length && !groups.includes(state.cursor)) state.cursor = groups[0]!;
}

/** Selects the event, or the stretch of a row that the area is, if it is there. */
export function find(state: State, wanted: Wanted): void {
  state.selected = selectedEvent(state, wanted) ?? selectedStretch(state);
}

/** From the start of the first step to that of the one after the last. */
export function stepsOf({ model }: State, steps: [number, number] | null): [number, number] | null {
  if (!steps) return null;
  const places = [...model.marks.keys()].filter((at) => model.marks[at]![0] >= steps[0] && model.marks[at]![0] <= steps[1]);
  if (!places.length) return null;
  return [model.marks[places[0]!]![1], model.marks[places[places.length - 1]! + 1]?.[1] ?? model.span];
}

function selectedEvent(state: State, { event }: Wanted): Target | null {
  if (!event) return null;
  const group = state.groupOf(event[0]);
  return group < 0 ? null : eventOf(state, group, event[1]);
}

/** The stretch of a row, where an area is exactly that. */
function selectedStretch(state: State): Target | null {
  const { area, model } = state;
  if (!area || area.groups.length !== 1 || !model.strips) return null;
  const target = { group: area.groups[0]!, lane: null, item: null, time: (area.start + area.stop) / 2 };
  const [start, stop] = edges(state, target);
  return Math.round(start) === area.start && Math.round(stop) === area.stop ? target : null;
}

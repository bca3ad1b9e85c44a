// What keys do on a timeline: w a s d as in games, arrows, and letters for what else there is.

import { edges } from "./furniture";
import type { Handlers } from "./controls";
import type { State, Target } from "./state";

const PAN = 0.15;
const ZOOM = 1.5;

/** Whether the key did something. */
export function pressed(event: KeyboardEvent, state: State, handlers: Handlers): boolean {
  const { view } = state;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.shiftKey && key.startsWith("Arrow")) {
    if (key === "ArrowLeft" || key === "ArrowRight") stepped(state, neighbour(state, key === "ArrowRight" ? 1 : -1), handlers);
    return true;
  }
  const actions: Record<string, () => void> = {
    w: () => view.zoom(1 / ZOOM),
    "+": () => view.zoom(1 / ZOOM),
    s: () => view.zoom(ZOOM),
    "-": () => view.zoom(ZOOM),
    a: () => view.pan(-PAN * view.width),
    ArrowLeft: () => view.pan(-PAN * view.width),
    d: () => view.pan(PAN * view.width),
    ArrowRight: () => view.pan(PAN * view.width),
    ArrowUp: () => handlers.reveal((state.cursor = state.below(-1))),
    ArrowDown: () => handlers.reveal((state.cursor = state.below(1))),
    Home: () => view.reset(),
    "0": () => view.reset(),
    Enter: () => handlers.fold(state.cursor),
    p: () => handlers.pin(state.cursor),
    x: () => handlers.area(state.areaOf(view.start, view.stop, state.arranged.groups), true),
    Escape: () => (state.area ? handlers.area(null, true) : handlers.select(null)),
  };
  const action = Object.hasOwn(actions, key) ? actions[key] : undefined;
  action?.();
  return action !== undefined;
}

/** Selects it, and brings it into sight where it is outside. */
function stepped(state: State, target: Target | null, handlers: Handlers): void {
  handlers.select(target);
  if (!target) return;
  const { view } = state;
  const [start, stop] = edges(state, target);
  if (stop < view.start || start > view.stop) view.pan((start + stop) / 2 - (view.start + view.stop) / 2);
}

/** The event, or the stretch of a strip, next to what is selected; without a selection, what is in the middle. */
function neighbour(state: State, direction: 1 | -1): Target | null {
  const { selected, view, model } = state;
  const middle = (view.start + view.stop) / 2;
  if (!selected) return { group: state.cursor, lane: null, item: null, time: middle };
  if (selected.item !== null) {
    const level = selected.lane!.levels.find((one) => one.item.includes(selected.item!));
    const item = level?.item[level.item.indexOf(selected.item) + direction];
    return item === undefined ? selected : { ...selected, item, time: selected.lane!.items.start[item]! };
  }
  const [start, stop] = edges(state, selected);
  const bin = model.strips ? model.span / model.strips.bins : 1;
  const time = direction > 0 ? stop + bin / 2 : start - bin / 2;
  return time < 0 || time > model.span ? selected : { ...selected, time };
}

// Pointer, wheel and keys of a timeline: drag and wheel pan, Ctrl with the wheel or two fingers zoom, w a s d as in games.

import { capture } from "./capture";
import { edges } from "./furniture";
import type { Painter } from "./paint";
import type { State, Target } from "./state";

export interface Handlers {
  redraw(): void;
  targetAt(x: number, y: number): Target | null;
  select(target: Target | null): void;
  hover(target: Target | null, x: number, y: number): void;
  fold(group: number): void;
  /** Moves the rows by so many pixels. */
  scroll(pixels: number): void;
  reveal(group: number): void;
}

const CLICK_REACH = 4;
const PAN = 0.15;
const ZOOM = 1.5;

export function control(canvas: HTMLCanvasElement, state: State, painter: Painter, handlers: Handlers): void {
  const pointers = new Map<number, PointerEvent>();
  let moved = 0;
  const share = (event: MouseEvent): number => {
    const x = event.clientX - canvas.getBoundingClientRect().left - painter.labels;
    return Math.max(0, Math.min(1, x / painter.width));
  };
  const place = (event: MouseEvent): [number, number] => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) state.view.zoom(Math.exp(event.deltaY / 300), share(event));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      state.view.pan(((event.deltaX || event.deltaY) / painter.width) * state.view.width);
    } else return;
    event.preventDefault();
    handlers.redraw();
  });
  canvas.addEventListener("pointerdown", (event) => {
    // A menu that another button opens swallows the end of the press.
    if (event.button > 0) return;
    pointers.set(event.pointerId, event);
    moved = 0;
    capture(canvas, event);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) {
      handlers.hover(handlers.targetAt(...place(event)), ...place(event));
      return;
    }
    const other = [...pointers.values()].find((one) => one.pointerId !== event.pointerId);
    const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
    moved += Math.abs(dx) + Math.abs(dy);
    if (other) {
      const [was, is] = [Math.abs(before.clientX - other.clientX), Math.abs(event.clientX - other.clientX)];
      if (was > 8 && is > 8) state.view.zoom(was / is, share(other));
    } else {
      state.view.pan((-dx / painter.width) * state.view.width);
      if (event.pointerType === "mouse") handlers.scroll(-dy);
    }
    pointers.set(event.pointerId, event);
    handlers.redraw();
  });
  const lifted = (event: PointerEvent): void => {
    if (pointers.delete(event.pointerId) && event.type === "pointerup" && moved < CLICK_REACH) {
      const [x, y] = place(event);
      const target = handlers.targetAt(x, y);
      if (target && x < painter.labels) handlers.fold(target.group);
      else handlers.select(target);
    }
  };
  canvas.addEventListener("pointerup", lifted);
  canvas.addEventListener("pointercancel", lifted);
  canvas.addEventListener("pointerleave", () => handlers.hover(null, 0, 0));
  canvas.addEventListener("dblclick", () => {
    state.view.reset();
    handlers.redraw();
  });
  canvas.addEventListener("focus", () => handlers.redraw());
  canvas.addEventListener("blur", () => handlers.redraw());
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!pressed(event, state, handlers)) return;
    event.preventDefault();
    event.stopPropagation();
    handlers.redraw();
  });
}

function pressed(event: KeyboardEvent, state: State, handlers: Handlers): boolean {
  const { view } = state;
  const last = state.model.groups.length - 1;
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
    ArrowUp: () => handlers.reveal((state.cursor = Math.max(0, state.cursor - 1))),
    ArrowDown: () => handlers.reveal((state.cursor = Math.min(last, state.cursor + 1))),
    Home: () => view.reset(),
    "0": () => view.reset(),
    Enter: () => handlers.fold(state.cursor),
    Escape: () => handlers.select(null),
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

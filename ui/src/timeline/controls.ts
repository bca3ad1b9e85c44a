// Pointer, wheel and keys of a timeline: a drag selects an area; Shift with a drag, one finger and the wheel pan; Ctrl
// with the wheel or two fingers zoom.

import { capture } from "./capture";
import { pressed } from "./keys";
import type { Painter } from "./paint";
import type { Area, State, Target } from "./state";

export interface Handlers {
  redraw(): void;
  targetAt(x: number, y: number): Target | null;
  select(target: Target | null): void;
  /** An area is being drawn; it is drawn when `done`. */
  area(area: Area | null, done: boolean): void;
  hover(target: Target | null, x: number, y: number): void;
  fold(group: number): void;
  pin(group: number): void;
  /** Moves the rows by so many pixels. */
  scroll(pixels: number): void;
  reveal(group: number): void;
  /** Groups with rows between two heights of the canvas; those of all rows where both are on the axis. */
  groupsBetween(top: number, bottom: number): readonly number[];
}

type Point = [x: number, y: number];

const CLICK_REACH = 4;

export class Controls {
  private readonly pointers = new Map<number, PointerEvent>();
  /** How far pointers went since the first was pressed. */
  private moved = 0;
  /** Where an area begins; none where a drag pans. */
  private from: Point | null = null;
  private isOver = false;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly state: State,
    private readonly painter: Painter,
    private readonly handlers: Handlers,
  ) {
    canvas.addEventListener("wheel", (event) => this.wheeled(event));
    canvas.addEventListener("pointerdown", (event) => this.put(event));
    canvas.addEventListener("pointermove", (event) => (this.pointers.has(event.pointerId) ? this.dragged(event) : this.hovered(event)));
    canvas.addEventListener("pointerup", (event) => this.lifted(event));
    canvas.addEventListener("pointercancel", (event) => void this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => this.left());
    canvas.addEventListener("dblclick", () => {
      state.view.reset();
      handlers.redraw();
    });
    canvas.addEventListener("focus", () => handlers.redraw());
    canvas.addEventListener("blur", () => handlers.redraw());
    canvas.addEventListener("keydown", (event) => this.key(event));
    // Where the pointer rests the keyboard follows, unless another control has it.
    document.addEventListener("keydown", (event) => this.isOver && isFree(event.key) && this.key(event), { capture: true });
  }

  private wheeled(event: WheelEvent): void {
    const { view } = this.state;
    if (event.ctrlKey || event.metaKey) view.zoom(Math.exp(event.deltaY / 300), this.share(event));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      view.pan(((event.deltaX || event.deltaY) / this.painter.width) * view.width);
    } else return;
    event.preventDefault();
    this.handlers.redraw();
  }

  private put(event: PointerEvent): void {
    // A menu that another button opens swallows the end of the press.
    if (event.button > 0) return;
    this.pointers.set(event.pointerId, event);
    this.moved = 0;
    const place = this.place(event);
    this.from = event.pointerType === "mouse" && !event.shiftKey && place[0] >= this.painter.labels ? place : null;
    capture(this.canvas, event);
  }

  private hovered(event: PointerEvent): void {
    const [x, y] = this.place(event);
    this.isOver = true;
    this.state.pointed = x >= this.painter.labels ? this.timeAt(x) : null;
    this.handlers.hover(this.handlers.targetAt(x, y), x, y);
    this.handlers.redraw();
  }

  private left(): void {
    this.isOver = false;
    this.state.pointed = null;
    this.handlers.hover(null, 0, 0);
    this.handlers.redraw();
  }

  private dragged(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId)!;
    const other = [...this.pointers.values()].find((one) => one.pointerId !== event.pointerId);
    const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
    const { view } = this.state;
    this.moved += Math.abs(dx) + Math.abs(dy);
    this.pointers.set(event.pointerId, event);
    this.handlers.hover(null, 0, 0);
    if (this.from) {
      this.state.pointed = this.timeAt(this.place(event)[0]);
      if (this.moved >= CLICK_REACH) this.handlers.area(this.areaTo(event), false);
    } else if (other) {
      const [was, is] = [Math.abs(before.clientX - other.clientX), Math.abs(event.clientX - other.clientX)];
      if (was > 8 && is > 8) view.zoom(was / is, this.share(other));
    } else {
      view.pan((-dx / this.painter.width) * view.width);
      if (event.pointerType === "mouse") this.handlers.scroll(-dy);
    }
    this.handlers.redraw();
  }

  private lifted(event: PointerEvent): void {
    if (!this.pointers.delete(event.pointerId)) return;
    if (this.moved >= CLICK_REACH) {
      if (this.from) this.handlers.area(this.areaTo(event), true);
      return;
    }
    const [x, y] = this.place(event);
    const target = this.handlers.targetAt(x, y);
    if (target && x < this.painter.labels) this.handlers.fold(target.group);
    else this.handlers.select(target);
  }

  private areaTo(event: PointerEvent): Area | null {
    const [one, other] = [this.from!, this.place(event)];
    const groups = this.handlers.groupsBetween(Math.min(one[1], other[1]), Math.max(one[1], other[1]));
    return this.state.areaOf(this.timeAt(Math.min(one[0], other[0])), this.timeAt(Math.max(one[0], other[0])), groups);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || !pressed(event, this.state, this.handlers)) return;
    event.preventDefault();
    event.stopPropagation();
    this.handlers.redraw();
  }

  private timeAt(x: number): number {
    const { view } = this.state;
    return view.start + Math.max(0, Math.min(1, (x - this.painter.labels) / this.painter.width)) * view.width;
  }

  private share(event: MouseEvent): number {
    return Math.max(0, Math.min(1, (this.place(event)[0] - this.painter.labels) / this.painter.width));
  }

  private place(event: MouseEvent): Point {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

/** Whether no control has the keyboard, or one that does nothing with this key. */
function isFree(key: string): boolean {
  const has = document.activeElement;
  if (has === null || has === document.body || has.matches("main, h2")) return true;
  return has.matches("button:not([role=tab]), a, summary") && !has.closest("dialog") && key !== "Enter" && key !== "Escape";
}

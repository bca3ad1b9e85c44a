// A small box beside what the pointer or the keyboard is at, with names and values. Screen readers are told it.

import "./callout.css";
import { h } from "./dom";

export interface Callout {
  element: HTMLElement;
  /** Shows it beside a place in the parent of the box; the first line is the heading. */
  show(x: number, y: number, heading: string, lines: [string, string][]): void;
  hide(): void;
}

const AWAY = 14;

export function callout(): Callout {
  const element = h("div", { class: "callout", role: "status", hidden: true });
  const show = (x: number, y: number, heading: string, lines: [string, string][]): void => {
    const pairs = lines.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
    element.replaceChildren(h("strong", {}, heading), h("dl", {}, ...pairs));
    element.hidden = false;
    const room = (element.parentElement as HTMLElement).clientWidth;
    const left = x + AWAY + element.offsetWidth <= room ? x + AWAY : x - AWAY - element.offsetWidth;
    element.style.setProperty("left", `${Math.max(0, Math.min(left, room - element.offsetWidth))}px`);
    element.style.setProperty("top", `${Math.round(y + AWAY)}px`);
  };
  return { element, show, hide: () => void (element.hidden = true) };
}

/** A finger leaves when it is lifted; what it touched stays told until another place is. */
export function onLeave(hide: () => void): (event: Event) => void {
  return (event) => (event as PointerEvent).pointerType !== "touch" && hide();
}

// The control of one knob: a toggle for two values, buttons for a few, a slider for many numbers, a list for many names.

import { h } from "../dom";
import type { Knob } from "../types";

export interface Control {
  element: HTMLElement;
  /** Shows one of the knob's settings as chosen. */
  show(place: number): void;
}

interface Parts {
  knob: Knob;
  /** Id of the element that names the knob. */
  label: string;
  /** `quietly` while a slider moves: Back undoes the whole move. */
  turn(place: number, quietly?: boolean): void;
}

const MOST_BUTTONS = 6;
const NUMBER = /^\d[\d.]*x?$/;
const AS_RECORDED = "as recorded";

let made = 0;

export function control(parts: Parts): Control {
  const { settings } = parts.knob;
  if (settings.length === 2) return toggle(parts);
  if (settings.length <= MOST_BUTTONS) return buttons(parts);
  const isNumeric = settings.every(({ value }) => NUMBER.test(value) || value === AS_RECORDED);
  return isNumeric ? slider(parts) : list(parts);
}

export function placeNow(knob: Knob): number {
  return knob.now ?? 0;
}

/** A value as people read it: the value `4` of late ranks is rank 4. */
export function valueInWords(knob: Knob, value: string): string {
  return knob.change === "straggler" && /^\d+$/.test(value) ? `rank ${value}` : value;
}

/** A value in words for screen readers, which see neither marks nor crossed out text. */
function spoken(knob: Knob, place: number): string {
  const { value: own, why_not } = knob.settings[place]!;
  const value = valueInWords(knob, own);
  const text = place === placeNow(knob) && value !== AS_RECORDED ? `${value} (now)` : value;
  return why_not ? `${text}: no prediction` : text;
}

function kindOf(knob: Knob, place: number): string {
  if (place === placeNow(knob)) return "now";
  return knob.settings[place]!.predicted_ns === null ? "unpredicted" : "";
}

function toggle({ knob, label, turn }: Parts): Control {
  const now = placeNow(knob);
  const other = 1 - now;
  const { value } = knob.settings[now]!;
  const then = valueInWords(knob, knob.settings[other]!.value);
  const text = value === AS_RECORDED ? then : `${value} → ${then}`;
  const own = `knob-${++made}`;
  const click = (): void => turn(element.getAttribute("aria-pressed") === "true" ? now : other);
  const words = h("span", { class: kindOf(knob, other), id: own }, text);
  const element = h("button", { type: "button", class: "toggle", "aria-labelledby": `${label} ${own}`, click }, words);
  return { element, show: (place) => element.setAttribute("aria-pressed", String(place === other)) };
}

function buttons({ knob, label, turn }: Parts): Control {
  const name = `knob-${++made}`;
  const inputs = knob.settings.map((_, place) => {
    const change = (): void => turn(place);
    return h("input", { type: "radio", name, "aria-label": spoken(knob, place), change }) as HTMLInputElement;
  });
  const choices = knob.settings.map(({ value }, place) => {
    const kind = kindOf(knob, place);
    const title = kind === "now" ? { title: AS_RECORDED } : {};
    return h("label", { class: kind, ...title }, inputs[place]!, value === AS_RECORDED ? "now" : valueInWords(knob, value));
  });
  const element = h("div", { class: "choices", role: "radiogroup", "aria-labelledby": label }, ...choices);
  return { element, show: (place) => inputs.forEach((input, at) => (input.checked = at === place)) };
}

function slider({ knob, label, turn }: Parts): Control {
  let isMoving = false;
  const move = (): void => {
    say();
    turn(Number(input.value), isMoving);
    isMoving = true;
  };
  const rest = (): void => void (isMoving = false);
  const range = { type: "range", min: 0, max: knob.settings.length - 1, step: 1, "aria-labelledby": label };
  const input = h("input", { ...range, input: move, change: rest }) as HTMLInputElement;
  const shown = h("output");
  const say = (): void => {
    const text = spoken(knob, Number(input.value));
    shown.textContent = text;
    shown.className = kindOf(knob, Number(input.value));
    input.setAttribute("aria-valuetext", text);
  };
  const show = (place: number): void => {
    input.value = String(place);
    say();
  };
  return { element: h("div", { class: "slider" }, input, shown), show };
}

function list({ knob, label, turn }: Parts): Control {
  const change = (): void => turn(element.selectedIndex);
  const options = knob.settings.map((_, place) => h("option", {}, spoken(knob, place)));
  const element = h("select", { "aria-labelledby": label, change }, ...options) as HTMLSelectElement;
  return { element, show: (place) => (element.selectedIndex = place) };
}

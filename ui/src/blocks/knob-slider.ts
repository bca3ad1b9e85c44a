// One knob: its name, a slider with a tick for each value that was tried, and where it stands.

import { h } from "../dom";
import type { Knob, Setting } from "../types";

export interface Slider {
  knob: Knob;
  element: HTMLElement;
  readonly setting: Setting;
  readonly isTurned: boolean;
  reset(): void;
}

let made = 0;

export function slider(knob: Knob, said: (setting: Setting) => string, turned: () => void): Slider {
  const now = knob.now ?? 0;
  const own = `knob-${++made}`;
  const most = knob.settings.length - 1;
  const input = h("input", { id: own, type: "range", min: 0, max: most, step: 1, value: now, list: `${own}-ticks` });
  const field = input as HTMLInputElement;
  const shown = h("output", { for: own });
  const effect = h("p", { class: "effect muted" });
  const element = h(
    "div",
    { class: "knob", "data-knob": knob.change },
    h("label", { for: own }, knob.label),
    shown,
    h("p", { class: "about muted" }, knob.about),
    h("div", { class: "track" }, input, ticks(knob, own)),
    effect,
  );
  element.style.setProperty("--places", String(knob.settings.length));

  function tell(): void {
    const setting = knob.settings[Number(field.value)]!;
    const isNow = Number(field.value) === now;
    const text = isNow && setting.value !== "as recorded" ? `${setting.value} (now)` : setting.value;
    shown.textContent = text;
    input.setAttribute("aria-valuetext", setting.why_not ? `${text}: no prediction` : text);
    effect.textContent = said(setting);
    element.classList.toggle("turned", !isNow);
  }

  input.addEventListener("input", () => (tell(), turned()));
  tell();
  return {
    knob,
    element,
    get setting() {
      return knob.settings[Number(field.value)]!;
    },
    get isTurned() {
      return Number(field.value) !== now;
    },
    reset() {
      field.value = String(now);
      tell();
    },
  };
}

/** Marks for the browser to snap to, and words below them. */
function ticks(knob: Knob, own: string): DocumentFragment {
  const both = document.createDocumentFragment();
  const marks = knob.settings.map((one, place) => h("option", { value: place, label: one.value }));
  const words = knob.settings.map((one, place) => {
    const kind = place === knob.now ? "now" : one.predicted_ns === null ? "untold" : "";
    return h("span", { class: kind }, place === knob.now ? "now" : one.value);
  });
  both.append(
    h("datalist", { id: `${own}-ticks` }, ...marks),
    h("div", { class: "ticks", "aria-hidden": "true" }, ...words),
  );
  return both;
}

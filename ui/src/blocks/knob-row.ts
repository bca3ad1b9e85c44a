// One knob in one line: its name, its control, and what it saves.

import { h } from "../dom";
import type { Knob, Knobs, Setting } from "../types";
import { formatInterval, formatShare } from "../units";
import { control, placeNow, valueInWords } from "./knob-control";

/** Less than this share of the step is no saving. */
export const LEAST_SAVED = 0.001;

export interface Row {
  knob: Knob;
  element: HTMLElement;
  /** Shows the value as chosen; null, and a value without a setting, are those of the run. */
  show(value: string | null): void;
}

let made = 0;

export function knobRow(block: Knobs, knob: Knob, turn: (value: string | null, quietly: boolean) => void): Row {
  const label = `knob-label-${++made}`;
  const now = placeNow(knob);
  const valueAt = (place: number): string | null => (place === now ? null : knob.settings[place]!.value);
  const chosen = control({ knob, label, turn: (place, quietly = false) => turn(valueAt(place), quietly) });
  const effect = h("span", { class: "effect" });
  const element = h(
    "div",
    { class: "knob", "data-knob": knob.change },
    h("span", { class: "label", id: label, title: knob.about }, knob.label),
    chosen.element,
    effect,
  );

  function show(value: string | null): void {
    const place = knob.settings.findIndex((one) => one.value === value);
    chosen.show(place < 0 ? now : place);
    const isTurned = place >= 0 && place !== now;
    element.classList.toggle("turned", isTurned);
    if (isTurned) element.closest("details")?.setAttribute("open", "");
    effect.replaceChildren(...(isTurned ? atSetting(block, knob, knob.settings[place]!) : atBest(block, knob)));
  }

  return { knob, element, show };
}

/** The share of time that a setting saves, for the same work. */
export function gainOf(block: Knobs, setting: Setting): number {
  return 1 - setting.predicted_ns! / (block.measured_ns * setting.work);
}

/** The setting of a knob that saves most; null where none is predicted to save anything. */
export function bestOf(block: Knobs, knob: Knob): Setting | null {
  const saving = knob.settings.filter((one) => one.predicted_ns !== null && gainOf(block, one) > LEAST_SAVED);
  const [best] = saving.sort((one, other) => gainOf(block, other) - gainOf(block, one));
  return best ?? null;
}

/** What the best setting of a knob saves: shown while it is not turned. */
function atBest(block: Knobs, knob: Knob): (Node | string)[] {
  const best = bestOf(block, knob);
  if (!best) return [h("span", { class: "muted" }, "nothing")];
  const which = knob.settings.length > 2 ? ` with ${valueInWords(knob, best.value)}` : "";
  return saved(block, knob, best, which);
}

function atSetting(block: Knobs, knob: Knob, setting: Setting): (Node | string)[] {
  return setting.predicted_ns === null ? [h("span", { class: "muted" }, "no prediction")] : saved(block, knob, setting, "");
}

function saved(block: Knobs, knob: Knob, setting: Setting, which: string): (Node | string)[] {
  const gain = gainOf(block, setting);
  const [low, high] = setting.gain_interval ?? [gain, gain];
  const mayBeZero = low < 0 && high >= 0;
  const limit = knob.is_bound && gain > 0 ? "at most " : "";
  const figure = gain < 0 ? `${formatShare(-gain)} longer` : `${limit}${formatShare(gain)}${which}`;
  const kind = mayBeZero || !gain ? "" : gain > 0 ? "good" : "bad";
  const range = gain < 0 ? formatInterval(-high, -low) : formatInterval(low, high);
  if (limit && !mayBeZero) return [h("b", { class: kind }, figure)];
  return [h("b", { class: kind }, figure), " ", h("span", { class: "muted" }, mayBeZero ? `${range}, may be zero` : range)];
}

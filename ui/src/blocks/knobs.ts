// What-ifs to turn: a slider for each change, and beside them the step that was measured and the one predicted.
//
// A file holds one change at a time, so turning a knob puts the others back. A server replays what they do together.

import "./knobs.css";
import { h } from "../dom";
import type { Context } from "./index";
import { compared, gainOf, showAnswer } from "./knob-answer";
import type { Asked } from "./knob-answer";
import { slider } from "./knob-slider";
import type { Slider } from "./knob-slider";
import type { Knob, Knobs, Setting } from "../types";
import { formatNs } from "../units";

/** Of the measured step: less is no difference that anybody could see. */
const SAME = 0.001;
const PAUSE_MS = 150;
const ALONE =
  "This page predicts one change at a time: moving a slider resets the others. " +
  "To combine changes, use lostflops serve or lostflops whatif.";
const TOGETHER = "Changes are replayed together, in the order shown.";

export function drawKnobs(block: Knobs, context: Context): Element {
  if (!block.items.length) return h("p", { class: "muted" }, "No what-if applies to this run.");
  const { live } = context.source;
  const panel = h("div", { class: "answer" });
  const sliders = block.items.map((knob, turned) => slider(knob, (setting) => alone(block, knob, setting), () => turn(turned)));
  let asked = 0;

  function turn(turned: number): void {
    if (!live) sliders.forEach((one, place) => (place === turned ? undefined : one.reset()));
    const moved = sliders.filter((one) => one.isTurned);
    const changes = moved.map((one): [string, string] => [one.knob.change, one.setting.value]);
    const number = ++asked;
    if (!live || moved.length < 2) return show(moved[0]?.setting ?? measured(block), moved, changes);
    panel.setAttribute("aria-busy", "true");
    panel.firstElementChild!.textContent = `Replaying ${changes.map((pair) => pair.join("=")).join(", ")}…`;
    setTimeout(() => {
      if (number !== asked) return;
      const late = (setting: Setting): void => (number === asked ? show(setting, moved, changes) : undefined);
      live.whatif(changes).then(late, (error: unknown) => late(unknown(String(error))));
    }, PAUSE_MS);
  }

  function show(setting: Setting, moved: Slider[], changes: [string, string][]): void {
    panel.removeAttribute("aria-busy");
    const told: Asked = { run: context.source.page.title, changes, setting, knobs: moved.map((one) => one.knob) };
    panel.replaceChildren(...showAnswer(block, told));
  }

  function reset(): void {
    sliders.forEach((one) => one.reset());
    turn(-1);
  }

  turn(-1);
  const button = h("button", { type: "button", class: "back", click: reset }, "reset all");
  // The panel moves along with whoever scrolls: nothing may stand below it in the same box.
  const note = h("p", { class: "muted together" }, live ? TOGETHER : ALONE);
  return h("div", { class: "knobs" }, panel, h("div", { class: "rows" }, ...folded(block, sliders), button, note));
}

/** Those that move the step; the others can be opened. */
function folded(block: Knobs, sliders: Slider[]): Element[] {
  const moves = sliders.filter((one) => movesStep(one.knob, block.measured_ns));
  const still = sliders.filter((one) => !moves.includes(one));
  if (!still.length || !moves.length) return sliders.map((one) => one.element);
  const title = `${still.length} more ${still.length === 1 ? "change" : "changes"} with an effect below 0.1%`;
  return [
    ...moves.map((one) => one.element),
    h("details", { class: "still" }, h("summary", {}, title), ...still.map((one) => one.element)),
  ];
}

function movesStep(knob: Knob, measured: number): boolean {
  return knob.settings.some(
    (one) => one.predicted_ns !== null && Math.abs(one.predicted_ns / one.work - measured) > SAME * measured,
  );
}

/** The step at a position of one knob, or from end to end where it is not turned: seen without looking away from it. */
function alone(block: Knobs, knob: Knob, setting: Setting): string {
  if (setting === knob.settings[knob.now ?? 0]) return `step: ${ranged(block, knob)}`;
  if (setting.predicted_ns === null) return "step: no prediction";
  const each = setting.work > 1 ? " for the same work" : "";
  const step = formatNs(setting.predicted_ns / setting.work);
  return `step: ${step}${each}, ${compared(gainOf(block, setting))}`;
}

function ranged(block: Knobs, knob: Knob): string {
  const known = knob.settings.filter((one) => one.predicted_ns !== null);
  const told = known.map((one) => one.predicted_ns! / one.work);
  const [low, high] = [Math.min(...told), Math.max(...told)].map(formatNs);
  if (low !== high) return `${low} to ${high}`;
  // Two figures that read the same would hide that the knob moves anything.
  const gains = known.map((one) => gainOf(block, one)).sort((one, other) => Math.abs(other) - Math.abs(one));
  return gains[0] ? `${low}, at most ${compared(gains[0])}` : `${low}`;
}

function measured(block: Knobs): Setting {
  const now = block.items[0]!;
  return now.settings[now.now ?? 0]!;
}

function unknown(why: string): Setting {
  return {
    value: "",
    predicted_ns: null,
    low_ns: null,
    high_ns: null,
    lines: [],
    why_not: why,
    work: 1,
    how: "",
    notes: [],
  };
}

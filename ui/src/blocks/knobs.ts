// What-ifs to turn: a line for each change, the largest saving first, and beside them the measured step and the predicted one.
//
// A file holds one change at a time, so choosing one puts the others back. A server replays what they do together. What
// is chosen is part of the selection: a link restores it, and other views may set it.

import "./knobs.css";
import { h } from "../dom";
import { learnPrediction, stepInterval } from "../predictions";
import { onSelection, select, selected } from "../selection";
import type { Knobs, Setting } from "../types";
import type { Context } from "./index";
import { Answer } from "./knob-answer";
import { placeNow } from "./knob-control";
import { bestOf, gainOf, knobRow } from "./knob-row";
import type { Row } from "./knob-row";

type Changes = [string, string][];

const PAUSE_MS = 150;
const ALONE =
  "This page predicts one change at a time: choosing one resets the others. " +
  "To combine changes, use lostflops serve or lostflops whatif.";
const TOGETHER = "Changes are replayed together, in the order in which the answer names them.";
const ONE_ONLY = "this page predicts one change at a time.";
const UNTRIED = "this page has no prediction for this value.";

export function drawKnobs(block: Knobs, context: Context): Element {
  if (!block.items.length) return h("p", { class: "muted" }, "No what-if applies to this run.");
  const view = new KnobsView(block, context);
  view.apply(selected().changes);
  const stop = onSelection((now, before) => {
    if (!view.element.isConnected) stop();
    else if (JSON.stringify(now.changes) !== JSON.stringify(before.changes)) view.apply(now.changes);
  });
  return view.element;
}

class KnobsView {
  readonly element: HTMLElement;
  private readonly answer: Answer;
  private readonly rows: Row[];
  private asked = 0;

  constructor(
    private readonly block: Knobs,
    private readonly context: Context,
  ) {
    this.answer = new Answer(block, context.source.page.title);
    this.rows = block.items.map((knob) => knobRow(block, knob, (value, quietly) => this.turn(knob.change, value, quietly)));
    const reset = h("button", { type: "button", class: "back", click: () => select({ changes: [] }) }, "reset all");
    const note = h("p", { class: "muted together" }, context.source.live ? TOGETHER : ALONE);
    const rows = h("div", { class: "rows" }, drawHeads(), ...foldRows(block, this.rows), h("div", { class: "under" }, reset, note));
    this.element = h("div", { class: "knobs" }, h("div", { class: "sides" }, rows, this.answer.element));
  }

  /** Shows what these changes do together. Only predictions are shown: of a page, or of its server. */
  apply(changes: Changes): void {
    const wanted = this.order(changes);
    const values = new Map(wanted);
    for (const row of this.rows) row.show(values.get(row.knob.change) ?? null);
    const number = ++this.asked;
    const known = this.known(wanted);
    if (known) return this.show(known, wanted);
    this.answer.wait(wanted);
    setTimeout(() => {
      if (number !== this.asked) return;
      const late = (setting: Setting): void => (number === this.asked ? this.show(setting, wanted) : undefined);
      this.context.source.live!.whatif(wanted).then(late, (error: unknown) => late(withoutPrediction(String(error))));
    }, PAUSE_MS);
  }

  private turn(change: string, value: string | null, quietly: boolean): void {
    const others = this.context.source.live ? selected().changes.filter(([name]) => name !== change) : [];
    select({ changes: value === null ? others : [...others, [change, value]] }, quietly);
  }

  /** In the order of the block, each change once; a value that the run has is no change. */
  private order(changes: Changes): Changes {
    const order = this.block.items.map((knob) => knob.change);
    const place = (name: string): number => (order.includes(name) ? order.indexOf(name) : order.length);
    const isNow = ([name, value]: [string, string]): boolean =>
      this.block.items.some((knob) => knob.change === name && knob.settings[placeNow(knob)]?.value === value);
    return [...new Map(changes)].filter((pair) => !isNow(pair)).sort(([one], [other]) => place(one) - place(other));
  }

  /** What the page itself knows of these changes; null where a server has to be asked. */
  private known(wanted: Changes): Setting | null {
    const [first] = wanted;
    if (!first) return measuredSetting(this.block);
    const settings = this.block.items.find((knob) => knob.change === first[0])?.settings ?? [];
    const tried = wanted.length === 1 ? settings.find((one) => one.value === first[1]) : undefined;
    if (tried || this.context.source.live) return tried ?? null;
    return withoutPrediction(wanted.length > 1 ? ONE_ONLY : UNTRIED);
  }

  private show(setting: Setting, changes: Changes): void {
    const names = changes.map(([name]) => name);
    const { predicted_ns: predicted, gain_interval: gain, work } = setting;
    const measured = this.block.measured_ns;
    // The timeline shows steps of the measured work.
    if (predicted !== null && gain && work === 1) learnPrediction(changes, { measured, predicted, ...stepInterval(measured, gain) });
    this.answer.show({ setting, changes, knobs: this.block.items.filter((knob) => names.includes(knob.change)) });
  }
}

function drawHeads(): Element {
  const words = ["change", "", "saves"];
  return h("div", { class: "knob heads muted" }, ...words.map((word) => h("span", {}, word)));
}

/** Those that save time, most first; the others can be opened. */
function foldRows(block: Knobs, rows: Row[]): Element[] {
  const gains = new Map(rows.map((row) => [row, bestOf(block, row.knob)]));
  const gain = (row: Row): number => gainOf(block, gains.get(row)!);
  const saving = rows.filter((row) => gains.get(row)).sort((one, other) => gain(other) - gain(one));
  const others = rows.filter((row) => !gains.get(row)).map((row) => row.element);
  if (!others.length || !saving.length) return [...saving.map((row) => row.element), ...others];
  const title = "No value of these shortens the step by 0.1% or more.";
  const summary = h("summary", { title }, `${others.length} more that ${others.length === 1 ? "saves" : "save"} nothing`);
  return [...saving.map((row) => row.element), h("details", { class: "still" }, summary, ...others)];
}

function measuredSetting(block: Knobs): Setting {
  const [knob] = block.items;
  return knob!.settings[placeNow(knob!)]!;
}

function withoutPrediction(why: string): Setting {
  const nothing = { predicted_ns: null, low_ns: null, high_ns: null, gain_interval: null, lines: [], work: 1, how: "", notes: [] };
  return { value: "", why_not: why, ...nothing };
}

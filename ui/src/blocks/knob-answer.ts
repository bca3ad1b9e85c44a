// What turned knobs give: both step times, how sure that is, both as bars on one scale, and which lines move.

import { backgroundOf } from "../colours";
import { copyable } from "../copyable";
import { h } from "../dom";
import type { Child } from "../dom";
import { term } from "../glossary";
import { intervalOf, stepBars } from "./knob-bars";
import type { Knob, Knobs, Setting } from "../types";
import { formatNs, formatShare } from "../units";

/** The measured side. */
export interface Before {
  name: string;
  ns: number;
  lines: [string, number][];
}

/** Names of runs, and changes, that a shell takes as they are: changes may come from a link. */
const PLAIN = /^\w[\w.-]*$/;
const PLAIN_CHANGE = /^[\w.:,+=-]+$/;
const QUOTABLE = /^[^'\p{C}]+$/u;

export interface Asked {
  changes: [string, string][];
  setting: Setting;
  knobs: Knob[];
}

/** The step that changes give. Its figures stay in sight while the lines below them, or the knobs, are scrolled. */
export class Answer {
  readonly element: HTMLElement;
  private readonly said = h("div", { class: "answer-said", "aria-live": "polite" });
  private readonly bars = h("div");
  private readonly rest = h("div", { class: "answer-rest" });

  constructor(
    private readonly block: Knobs,
    private readonly run: string,
  ) {
    this.element = h("div", { class: "answer" }, h("div", { class: "answer-head" }, this.said, this.bars), this.rest);
  }

  wait(changes: [string, string][]): void {
    this.element.setAttribute("aria-busy", "true");
    this.said.firstElementChild?.replaceWith(h("h4", {}, `Replaying ${formatChanges(changes)}…`));
  }

  show({ changes, setting, knobs }: Asked): void {
    this.element.removeAttribute("aria-busy");
    const title = h("h4", {}, changes.length ? `With ${formatChanges(changes)}` : "As recorded. Choose a change to predict it.");
    const before = sameWork(this.block, setting.work);
    const command = commandOf(this.run, changes);
    if (setting.predicted_ns === null) {
      this.said.replaceChildren(title, figures(before, null), reason(setting));
      this.bars.replaceChildren();
      this.rest.replaceChildren(...(setting.value ? [] : describe([["to predict it", copyable(command)]])));
      return;
    }
    const after = changes.length ? setting : null;
    this.said.replaceChildren(title, figures(before, after), ...(after ? [sure(before, after)] : []));
    this.bars.replaceChildren(stepBars(before, after));
    this.rest.replaceChildren(lines(before, setting, after !== null), ...(after ? applied(command, after, knobs) : []));
  }
}

function formatChanges(changes: [string, string][]): string {
  return changes.map(([name, value]) => `${name}=${value}`).join(", ");
}

function commandOf(run: string, changes: [string, string][]): string {
  const given = changes.map(([name, value]) => `--change ${quote(`${name}=${value}`)}`);
  return `lostflops whatif ${PLAIN.test(run) ? run : "RUN"} ${given.join(" ")}`;
}

function quote(change: string): string {
  if (PLAIN_CHANGE.test(change)) return change;
  return QUOTABLE.test(change) ? `'${change}'` : "NAME=VALUE";
}

/** What was measured of as much work as a step then does. */
function sameWork(block: Knobs, work: number): Before {
  const lines = block.lines.map(([name, ns]): [string, number] => [name, ns * work]);
  return { name: work > 1 ? `measured, ${work} steps` : "measured", ns: block.measured_ns * work, lines };
}

function figures(before: Before, setting: Setting | null): Element {
  const both = [figure("measured", before.name === "measured" ? "measured step" : before.name, formatNs(before.ns))];
  if (setting && setting.predicted_ns !== null) {
    both.push(figure("predicted", "predicted step", formatNs(setting.predicted_ns)));
    const gain = 1 - setting.predicted_ns / before.ns;
    const kind = isUnsure(setting) || !gain ? "gain" : gain > 0 ? "gain good" : "gain bad";
    both.push(figure(kind, "difference", compared(gain)));
  }
  return h("div", { class: "figures" }, ...both);
}

function figure(kind: string, label: string, text: string): Element {
  return h("div", { class: `figure ${kind}` }, h("span", { class: "muted" }, label), h("strong", {}, text));
}

function compared(gain: number): string {
  return gain === 0 ? "no change" : `${formatShare(Math.abs(gain))} ${gain > 0 ? "shorter" : "longer"}`;
}

/** Whether the range holds what was measured; a limit may always save nothing. */
function isUnsure({ gain_interval: interval }: Setting): boolean {
  return interval !== null && interval[0] < 0 && interval[1] >= 0;
}

function sure(before: Before, setting: Setting): Element {
  const { low, high } = intervalOf(before, setting);
  const sentences = [`Range: ${formatNs(low)} to ${formatNs(high)}.`];
  if (isUnsure(setting)) sentences.push("The effect may be zero.");
  if (setting.work > 1) {
    const each = formatNs(setting.predicted_ns! / setting.work);
    sentences.push(`One step then does the work of ${setting.work} recorded steps: ${each} for each of them.`);
  }
  return h("p", { class: "sure" }, sentences.join(" "));
}

function reason(setting: Setting): Element {
  return h("p", { class: "why" }, h("strong", {}, "No prediction: "), setting.why_not);
}

/** Each line before and after, those that move most first; both columns sum to the steps. */
function lines(measured: Before, setting: Setting, isTurned: boolean): Element {
  const before = new Map(measured.lines);
  const after = new Map(setting.lines);
  const names = [...new Set([...before.keys(), ...after.keys()])];
  const rows = names.map((name) => ({ name, old: before.get(name) ?? 0, now: after.get(name) ?? 0 }));
  const moved = (row: { old: number; now: number }): number => Math.abs(row.now - row.old);
  rows.sort((one, other) => moved(other) - moved(one) || other.old - one.old);
  const heads = ["line", measured.name, ...(isTurned ? ["predicted", "difference"] : [])];
  const cells = rows.map((row) =>
    h("tr", { "data-line": row.name }, h("th", { scope: "row" }, ...nameLine(row.name)), ...numbers(row.old, row.now)),
  );
  const sum = h("tr", { class: "sum" }, h("th", { scope: "row" }, "step"), ...numbers(measured.ns, setting.predicted_ns!));

  function numbers(old: number, now: number): Element[] {
    const shown = isTurned ? [formatNs(old), formatNs(now), difference(now - old)] : [formatNs(old)];
    return shown.map((text) => h("td", { class: "number" }, text));
  }

  return h(
    "table",
    { class: "moved" },
    h("thead", {}, h("tr", {}, ...heads.map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, ...cells, sum),
  );
}

function nameLine(name: string): Child[] {
  const swatch = h("i", { class: "swatch", "aria-hidden": "true" });
  swatch.style.setProperty("background", backgroundOf(name));
  return [swatch, term(name)];
}

function difference(ns: number): string {
  return ns > 0 ? `+${formatNs(ns)}` : formatNs(ns);
}

/** What the changes mean, how they are set in a job, what they cost, and the command that keeps the prediction. */
function applied(command: string, setting: Setting, knobs: Knob[]): Element[] {
  const said = (texts: string[]): Element => h("span", {}, texts.filter(Boolean).join("; "));
  const rows: [string, Element][] = [
    ["what changes", said(knobs.map((knob) => knob.about))],
    ["how to apply", h("code", {}, setting.how)],
    ["cost and risk", said(knobs.map((knob) => knob.cost))],
    ["save this prediction", copyable(command)],
  ];
  const notes = setting.notes.map((note) => h("li", {}, note));
  const assumed = h("details", {}, h("summary", {}, "assumptions"), h("ul", {}, ...notes));
  return [...describe(rows.filter(([, text]) => text.textContent)), ...(notes.length ? [assumed] : [])];
}

function describe(rows: [string, Element][]): Element[] {
  return [h("dl", { class: "applied" }, ...rows.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]))];
}

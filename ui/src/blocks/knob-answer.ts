// What turned knobs give: both step times, how sure that is, both as bars on one scale, and which lines move.

import { paintOf } from "../colours";
import { copyable } from "../copyable";
import { h } from "../dom";
import type { Child } from "../dom";
import { term } from "../glossary";
import { stepBars } from "./knob-bars";
import type { Knob, Knobs, Setting } from "../types";
import { formatNs, formatShare } from "../units";

/** The measured side. */
export interface Before {
  name: string;
  ns: number;
  lines: [string, number][];
}

/** Names of runs that a shell takes as they are. */
const PLAIN = /^\w[\w.-]*$/;

export interface Asked {
  run: string;
  changes: [string, string][];
  setting: Setting;
  knobs: Knob[];
}

export function showAnswer(block: Knobs, asked: Asked): Element[] {
  const { setting, changes } = asked;
  const said = changes.map(([name, value]) => `${name}=${value}`).join(", ");
  const title = h("h4", {}, said ? `With ${said}` : "As recorded. Move a slider to predict a change.");
  const before = sameWork(block, setting.work);
  if (setting.predicted_ns === null) return [title, figures(before, null), reason(setting)];
  return [
    title,
    figures(before, changes.length ? setting : null),
    ...(changes.length ? [sure(before, setting)] : []),
    stepBars(before, changes.length ? setting : null),
    lines(before, setting, changes.length > 0),
    ...applied(asked),
  ];
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
    const kind = isUnsure(before, setting) || !gain ? "gain" : gain > 0 ? "gain good" : "gain bad";
    both.push(figure(kind, "difference", compared(gain)));
  }
  return h("div", { class: "figures", "aria-live": "polite" }, ...both);
}

function figure(kind: string, label: string, text: string): Element {
  return h("div", { class: `figure ${kind}` }, h("span", { class: "muted" }, label), h("strong", {}, text));
}

/** Of the same work. */
export function gainOf(block: Knobs, setting: Setting): number {
  return 1 - setting.predicted_ns! / (block.measured_ns * setting.work);
}

export function compared(gain: number): string {
  return gain === 0 ? "no change" : `${formatShare(Math.abs(gain))} ${gain > 0 ? "shorter" : "longer"}`;
}

/** Whether the interval holds what was measured. */
function isUnsure(before: Before, { low_ns, high_ns }: Setting): boolean {
  return low_ns !== null && high_ns !== null && low_ns <= before.ns && before.ns <= high_ns;
}

function sure(before: Before, setting: Setting): Element {
  const [low, high] = [setting.low_ns!, setting.high_ns!];
  const sentences = [`90% interval: ${formatNs(low)} to ${formatNs(high)}.`];
  if (isUnsure(before, setting)) sentences.push("The effect may be zero.");
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
    h("tr", { "data-line": row.name }, h("th", { scope: "row" }, ...named(row.name)), ...numbers(row.old, row.now)),
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

function named(name: string): Child[] {
  const swatch = h("i", { class: "swatch", "aria-hidden": "true" });
  swatch.style.setProperty("background", paintOf(name));
  return [swatch, term(name)];
}

function difference(ns: number): string {
  return ns > 0 ? `+${formatNs(ns)}` : formatNs(ns);
}

/** How it is set in a job, what it costs, what was assumed, and the command that keeps the prediction. */
function applied({ run, changes, setting, knobs }: Asked): Element[] {
  if (!changes.length) return [];
  const command = `lostflops whatif ${PLAIN.test(run) ? run : "RUN"} ${changes.map(([name, value]) => `--change ${name}=${value}`).join(" ")}`;
  const rows: [string, Element][] = [["save this prediction", copyable(command)]];
  if (setting.how) rows.unshift(["how to apply", h("code", {}, setting.how)]);
  const costs = knobs.flatMap((knob) => (knob.cost ? [knob.cost] : []));
  if (costs.length) rows.push(["cost and risk", h("span", {}, costs.join("; "))]);
  const notes = setting.notes.map((note) => h("li", {}, note));
  const assumed = h("details", {}, h("summary", {}, "assumptions"), h("ul", {}, ...notes));
  return [
    h("dl", { class: "applied" }, ...rows.flatMap(([term, said]) => [h("dt", {}, term), h("dd", {}, said)])),
    ...(notes.length ? [assumed] : []),
  ];
}

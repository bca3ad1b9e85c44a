import "./findings.css";
import type { Child } from "../dom";
import type { Estimate, Finding, FindingPlace, Findings, Prediction } from "../types";
import { h, s } from "../dom";
import { prose, unbroken } from "../glossary";
import { fixed, grouped } from "../rounding";
import { formatInterval, formatNs, formatPercent, formatValues } from "../units";
import { drawEvidence } from "./evidence";
import { drawCards, findingActions } from "./finding-cards";


/** Changes such as a larger batch change the work of a step; its time is then not comparable. As in results.py. */
const SAME_WORK = 0.005;

export function drawFindings(block: Findings): Element {
  if (!block.items.length) return h("p", { class: "calm" }, "No cause was found.");
  if (block.is_brief) return drawCards(block);
  // One scale for all, so that cards can be compared by eye.
  const most = Math.max(0.01, ...block.items.map((one) => rangeOf(one)?.high ?? 0));
  const open = block.most_shown ?? block.items.length;
  const cards = block.items.map((one, place) => h("li", {}, card(one, block.places[place] ?? null, place < open, most)));
  const left = cards.slice(open);
  return h(
    "div",
    { class: "findings" },
    h("ol", {}, ...cards.slice(0, open)),
    left.length
      ? h("details", { class: "more" }, h("summary", {}, `${left.length} more`), h("ol", {}, ...left))
      : null,
  );
}

function card(one: Finding, place: FindingPlace | null, open: boolean, most: number): Element {
  const facts: [string, Child[]][] = [
    [one.level === "found" ? "Saves" : "May save", prose(predicted(one))],
    ["Sure", odds(one) ? [odds(one)] : []],
    ["But", one.doubt ? prose(doubt(one)) : []],
    ["Fix", [h("span", { class: "fix" }, ...prose(one.fix))]],
    ["Ranks", one.ranks.length ? [formatValues(one.ranks, "")] : []],
    ["To confirm", one.certain_if ? prose(one.certain_if) : []],
  ];
  const range = rangeOf(one);
  const shown = facts.filter(([, words]) => words.length);
  return h(
    "details",
    { class: "finding", "data-cause": one.cause, open },
    h(
      "summary",
      {},
      h("span", { class: "what" }, h("span", { class: "cause" }, cause(one)), ...unbroken(one.what)),
      range ? gain(range, most, verb(one)) : h("span", { class: "gain" }, `${verb(one)} ${textOf(one.saving)}`),
    ),
    h("dl", {}, ...shown.flatMap(([name, words]) => [h("dt", {}, name), h("dd", {}, ...words)])),
    findingActions(one, place),
    drawEvidence(one.evidence),
  );
}

export function cause(one: Finding): string {
  const name = one.cause.replaceAll("_", " ");
  return one.level === "suspected" ? `suspected: ${name}` : name;
}

export function verb(one: Finding): string {
  return one.level === "found" ? "saves" : "may save";
}

interface Ranged {
  value: number;
  low: number;
  high: number;
}

/** The saving if it certainly saves time and has a range, which can then be drawn. */
export function rangeOf({ saving }: Finding): Ranged | null {
  if (!saving || saving.kind === "bound" || saving.low === null || saving.high === null || saving.low <= 0) return null;
  return { value: saving.value, low: saving.low, high: saving.high };
}

/** Writes the same text as `Estimate.text` in Python. */
export function textOf(of: Estimate | null, whole = " of the step"): string {
  if (of === null) return "no time yet";
  if (of.low === null || of.high === null) return `roughly ${formatPercent(of.value)}${whole}; not measured`;
  if (of.kind === "bound") return `at most ${formatPercent(of.value)}${whole}`;
  if (of.low <= 0) return `at most ${formatPercent(Math.max(of.high, 0))}${whole}, perhaps nothing`;
  return `${formatPercent(of.value)}${whole} (${formatInterval(of.low, of.high)})`;
}

/** Writes the same text as `format_saving` in Python. */
function predicted(one: Finding): string {
  const of = one.saving;
  if (of === null) return textOf(of);
  const more = rangeOf(one) ? [stepTimes(of, one.prediction), hours(one)] : of.kind === "bound" ? [hours(one)] : [];
  return `${[textOf(of), ...more].filter(Boolean).join(", ")}; based on ${of.source}`;
}

/** The step time before and after, where both are for the same work. */
function stepTimes({ value }: Estimate, times: Prediction | null): string {
  if (!times?.measured_ns || Math.abs(1 - times.predicted_ns / times.measured_ns - value) >= SAME_WORK) return "";
  return `from ${formatNs(times.measured_ns)} to ${formatNs(times.predicted_ns)}`;
}

/** Writes the same text as `Finding.odds` in Python. */
function odds({ probability }: Finding): string {
  return probability === null ? "" : `about ${fixed(100 * probability, 0)}%, by outcomes of other jobs`;
}

function hours(one: Finding): string {
  const money = one.usd === null ? "" : ` ($${grouped(fixed(one.usd, 0))})`;
  return `${grouped(fixed(one.rank_hours, 1))} rank-hours a day${money}`;
}

function doubt(one: Finding): string {
  const steps = /--steps \d+:(\d+)/.exec(one.record);
  const how = steps ? `Record ${steps[1]} steps` : "Record with";
  return one.record ? `${one.doubt} ${how}: lostflops run ${one.record} -- COMMAND` : one.doubt;
}

function gain(of: Ranged, most: number, saves: string): Element {
  const at = (share: number) => `${(100 * share) / most}%`;
  const range = s(
    "svg",
    { class: "range", role: "img", "aria-label": `${saves} ${formatInterval(of.low, of.high)} of the step` },
    s("rect", { class: "interval", x: at(of.low), width: at(of.high - of.low), y: 4, height: 14, rx: 2 }),
    s("line", { class: "scale", x1: 0, x2: "100%", y1: 18, y2: 18 }),
    s("line", { class: "zero", x1: 0, x2: 0, y1: 2, y2: 22 }),
    s("line", { class: "best", x1: at(of.value), x2: at(of.value), y1: 2, y2: 20 }),
    s("text", { x: 0, y: 33 }, "0%"),
    s("text", { x: "100%", y: 33, "text-anchor": "end" }, formatPercent(most)),
  );
  return h("span", { class: "gain" }, `${saves} `, h("b", {}, formatPercent(of.value)), " of the step", range);
}

import "./findings.css";
import type { Child } from "../dom";
import type { Finding, FindingPlace, Findings, Prediction } from "../types";
import { h, s } from "../dom";
import { prose, unbroken } from "../glossary";
import { fixed, grouped } from "../rounding";
import { formatInterval, formatNs, formatPercent, formatValues } from "../units";
import { drawEvidence } from "./evidence";
import { drawCards, findingActions } from "./finding-cards";

/** Least and most of all gains, so that cards can be compared by eye. */
type Scale = [number, number];

/** Changes such as a larger batch change the work of a step; its time is then not comparable. As in results.py. */
const SAME_WORK = 0.005;

export function drawFindings(block: Findings): Element {
  if (!block.items.length) return h("p", { class: "calm" }, "No cause was found.");
  if (block.is_brief) return drawCards(block);
  const scale = scaleOf(block.items.filter(isSure).flatMap((one) => one.prediction ?? []));
  const open = block.most_shown ?? block.items.length;
  const cards = block.items.map((one, place) => h("li", {}, card(one, block.places[place] ?? null, place < open, scale)));
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

function card(one: Finding, place: FindingPlace | null, open: boolean, scale: Scale): Element {
  const facts: [string, Child[]][] = [
    [one.level === "found" ? "Saves" : "May save", prose(predicted(one))],
    ["But", one.doubt ? prose(doubt(one)) : []],
    ["Fix", [h("span", { class: "fix" }, ...prose(one.fix))]],
    ["Ranks", one.ranks.length ? [formatValues(one.ranks, "")] : []],
    ["To confirm", one.certain_if ? prose(one.certain_if) : []],
  ];
  const shown = facts.filter(([, words]) => words.length);
  return h(
    "details",
    { class: "finding", "data-cause": one.cause, open },
    h(
      "summary",
      {},
      h("span", { class: "what" }, h("span", { class: "cause" }, cause(one)), ...unbroken(one.what)),
      isSure(one) && one.prediction ? gain(one.prediction, scale, verb(one)) : h("span", { class: "gain" }, `${verb(one)} ${saving(one)}`),
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

/** Whether the interval of its saving can be drawn: it costs time, certainly, and the saving is no upper limit. */
export function isSure(one: Finding): boolean {
  const of = one.prediction;
  return of !== null && !of.is_bound && of.gain_low > 0;
}

/** Writes the same text as `Finding.saving` in Python. */
export function saving(one: Finding): string {
  const of = one.prediction;
  if (of === null || of.gain_high <= 0) return "no time yet";
  if (of.is_bound) return `at most ${formatPercent(of.gain)} of the step`;
  if (of.gain_low <= 0) return `up to ${formatPercent(of.gain_high)} of the step, and may be zero`;
  return `${formatPercent(of.gain)} of the step (90% interval ${formatInterval(of.gain_low, of.gain_high)})`;
}

/** Writes the same text as `format_saving` in Python. */
function predicted(one: Finding): string {
  const of = one.prediction;
  if (of === null || of.gain_high <= 0) return saving(one);
  const more = of.is_bound || of.gain_low > 0 ? [stepTimes(of), hours(one)] : [];
  return `${[saving(one), ...more].filter(Boolean).join(", ")}; based on ${of.basis}`;
}

/** The step time before and after, where both are for the same work. */
function stepTimes({ gain, measured_ns, predicted_ns }: Prediction): string {
  if (!measured_ns || predicted_ns === null || Math.abs(1 - predicted_ns / measured_ns - gain) >= SAME_WORK) return "";
  return `from ${formatNs(measured_ns)} to ${formatNs(predicted_ns)}`;
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

function scaleOf(all: Prediction[]): Scale {
  return [Math.min(0, ...all.map((one) => one.gain_low)), Math.max(0.01, ...all.map((one) => one.gain_high))];
}

function gain(of: Prediction, [least, most]: Scale, saves: string): Element {
  const at = (share: number) => `${(100 * (share - least)) / (most - least)}%`;
  const width = `${(100 * (of.gain_high - of.gain_low)) / (most - least)}%`;
  const range = s(
    "svg",
    { class: "range", role: "img", "aria-label": `${saves} ${formatInterval(of.gain_low, of.gain_high)} of the step (90% interval)` },
    s("rect", { class: "interval", x: at(of.gain_low), width, y: 4, height: 14, rx: 2 }),
    s("line", { class: "scale", x1: 0, x2: "100%", y1: 18, y2: 18 }),
    s("line", { class: "zero", x1: at(0), x2: at(0), y1: 2, y2: 22 }),
    s("line", { class: "best", x1: at(of.gain), x2: at(of.gain), y1: 2, y2: 20 }),
    least < 0 && -least / (most - least) > 0.25 ? s("text", { x: 0, y: 33 }, formatPercent(least)) : null,
    s("text", { x: at(0), y: 33, "text-anchor": least < 0 ? "middle" : "start" }, "0%"),
    s("text", { x: "100%", y: 33, "text-anchor": "end" }, formatPercent(most)),
  );
  return h("span", { class: "gain" }, `${saves} `, h("b", {}, formatPercent(of.gain)), " of the step", range);
}

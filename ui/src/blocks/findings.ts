import "./findings.css";
import type { Child } from "../dom";
import type { Finding, Findings, Prediction } from "../types";
import { h, s } from "../dom";
import { prose, unbroken } from "../glossary";
import { fixed, grouped } from "../rounding";
import { formatNs, formatShare, formatValues } from "../units";
import { drawEvidence } from "./evidence";

/** Least and most of all gains, so that cards can be compared by eye. */
type Scale = [number, number];

export function drawFindings(block: Findings): Element {
  if (!block.items.length) return h("p", { class: "calm" }, "No cause was found.");
  const scale = scaleOf(block.items.filter(isSure).flatMap((one) => one.prediction ?? []));
  const open = block.most_shown ?? block.items.length;
  const cards = block.items.map((one, place) => h("li", {}, card(one, place < open, scale)));
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

function card(one: Finding, open: boolean, scale: Scale): Element {
  const facts: [string, Child[]][] = [
    ["Fix", [h("span", { class: "fix" }, ...prose(one.fix))]],
    ["Lost", [lost(one)]],
    ["Ranks", one.ranks.length ? [formatValues(one.ranks, "")] : []],
    ["Saves", prose(predicted(one))],
    ["But", one.doubt ? prose(doubt(one)) : []],
    ["Confidence", [confidence(one.confidence), formatShare(one.confidence)]],
    ["To confirm", one.certain_if ? prose(one.certain_if) : []],
  ];
  const told = facts.filter(([, words]) => words.length);
  return h(
    "details",
    { class: "finding", "data-cause": one.cause, open },
    h(
      "summary",
      {},
      h("span", { class: "what" }, h("span", { class: "cause" }, cause(one)), ...unbroken(one.what)),
      isSure(one) && one.prediction ? gain(one.prediction, scale) : h("span", { class: "gain" }, `saves ${saving(one)}`),
    ),
    h("dl", {}, ...told.flatMap(([name, words]) => [h("dt", {}, name), h("dd", {}, ...words)])),
    drawEvidence(one.evidence),
  );
}

function lost(one: Finding): string {
  if (!one.lost_ns) return "no time of the recorded window is attributed to it";
  const hours = grouped(fixed(one.rank_hours, 1));
  const money = one.usd === null ? "" : `, $${grouped(fixed(one.usd, 0))}`;
  return `${formatShare(one.lost_share)} of all time: ${hours} rank-hours a day${money}`;
}

function cause(one: Finding): string {
  const name = one.cause.replaceAll("_", " ");
  return one.level === "suspected" ? `suspected: ${name}` : name;
}

/** Whether the interval of its saving can be drawn: it costs time, certainly, and the saving is no upper limit. */
function isSure(one: Finding): boolean {
  const of = one.prediction;
  return of !== null && !of.is_bound && of.gain_low > 0;
}

/** The same words as `Finding.saving` in Python. */
export function saving(one: Finding): string {
  const of = one.prediction;
  if (of === null || of.gain_high <= 0) return "no time yet";
  if (of.is_bound) return `at most ${formatShare(of.gain)} of the step`;
  if (of.gain_low <= 0) return `up to ${formatShare(of.gain_high)} of the step, and may be zero`;
  return `${formatShare(of.gain)} of the step (90% interval ${between(of)})`;
}

function predicted(one: Finding): string {
  const of = one.prediction;
  if (of === null || of.gain_high <= 0) return saving(one);
  const step = of.predicted_ns === null || of.gain_low <= 0 ? "" : `, a step of ${formatNs(of.predicted_ns)}`;
  return `${saving(one)}${step}; by ${of.basis}`;
}

function doubt(one: Finding): string {
  return one.record ? `${one.doubt} Record with: lostflops run ${one.record} -- COMMAND` : one.doubt;
}

function between(of: Prediction): string {
  return `${formatShare(of.gain_low)} to ${formatShare(of.gain_high)}`;
}

function confidence(share: number): Element {
  const bar = s("rect", { width: `${100 * share}%`, height: "100%" });
  return s("svg", { class: "confidence", "aria-hidden": "true" }, bar);
}

function scaleOf(all: Prediction[]): Scale {
  return [Math.min(0, ...all.map((one) => one.gain_low)), Math.max(0.01, ...all.map((one) => one.gain_high))];
}

function gain(of: Prediction, [least, most]: Scale): Element {
  const at = (share: number) => `${(100 * (share - least)) / (most - least)}%`;
  const width = `${(100 * (of.gain_high - of.gain_low)) / (most - least)}%`;
  const range = s(
    "svg",
    { class: "range", role: "img", "aria-label": `saves ${between(of)} of the step` },
    s("rect", { class: "interval", x: at(of.gain_low), width, y: 4, height: 14, rx: 2 }),
    s("line", { class: "scale", x1: 0, x2: "100%", y1: 18, y2: 18 }),
    s("line", { class: "zero", x1: at(0), x2: at(0), y1: 2, y2: 22 }),
    s("line", { class: "best", x1: at(of.gain), x2: at(of.gain), y1: 2, y2: 20 }),
    least < 0 && -least / (most - least) > 0.25 ? s("text", { x: 0, y: 33 }, formatShare(least)) : null,
    s("text", { x: at(0), y: 33, "text-anchor": least < 0 ? "middle" : "start" }, "0%"),
    s("text", { x: "100%", y: 33, "text-anchor": "end" }, formatShare(most)),
  );
  return h("span", { class: "gain" }, "saves ", h("b", {}, formatShare(of.gain)), " of the step", range);
}

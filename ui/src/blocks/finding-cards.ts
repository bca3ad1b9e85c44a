// The first findings of the overview: what it is, what its fix saves, how to fix it, and ways to look further.

import { h } from "../dom";
import type { Child } from "../dom";
import { prose } from "../glossary";
import { learnPrediction, stepInterval } from "../predictions";
import { select, selected } from "../selection";
import { showOnTimeline } from "../timeline/where";
import type { Finding, FindingPlace, Findings } from "../types";
import { formatInterval, formatNs, formatPercent } from "../units";
import { rangeOf, textOf, verb } from "./findings";

/** Time around a stall and its wait that is shown with them, as a part of theirs. */
const AROUND = 0.15;
/** Name of the section What if. */
const WHAT_IF = "knobs";

export function drawCards(block: Findings): Element {
  const shown = block.items.slice(0, block.most_shown ?? block.items.length);
  const left = block.items.length - shown.length;
  const view = document.querySelector("article[data-kinds~=Findings]:not(:first-child)")?.id ?? "diagnosis";
  return h(
    "div",
    { class: "cards" },
    h("ol", {}, ...shown.map((one, place) => h("li", {}, card(one, place, block.places[place] ?? null)))),
    left > 0 ? h("a", { href: `#${view}` }, `${left} more in the diagnosis`) : null,
  );
}

function card(one: Finding, place: number, where: FindingPlace | null): Element {
  const [title, rest] = clauses(one.what);
  const sure = rangeOf(one) && one.level === "found";
  return h(
    "section",
    { class: one.level === "found" ? "card" : "card suspected", "data-cause": one.cause },
    h(
      "p",
      { class: "title" },
      h("span", {}, `${place + 1} · ${one.level === "found" ? "" : "Suspected: "}`, ...prose(title)),
      h("b", { class: sure ? "gain" : "gain unsure" }, short(one)),
    ),
    range(one),
    h("p", { class: "muted" }, ...prose(rest)),
    h("p", { class: "fix" }, h("span", { class: "word" }, "Fix: "), ...prose(one.fix)),
    findingActions(one, where),
  );
}

/** The first clause, and the rest. */
function clauses(what: string): [string, string] {
  const [first = "", ...rest] = what.split(/(?<=[.:]) /);
  const more = rest.join(" ");
  return [first.replace(/[.:]$/, ""), more.charAt(0).toUpperCase() + more.slice(1)];
}

function short(one: Finding): string {
  const of = one.saving;
  return of === null ? textOf(of) : `${verb(one)} ${rangeOf(one) ? formatPercent(of.value) : textOf(of, "")}`;
}

/** The range of its saving on a scale of the whole step. */
function range(one: Finding): Child {
  const of = rangeOf(one);
  if (of === null) return null;
  const bar = h("i");
  bar.style.setProperty("left", `${100 * of.low}%`);
  bar.style.setProperty("width", `${100 * (of.high - of.low)}%`);
  const best = h("b");
  best.style.setProperty("left", `${100 * of.value}%`);
  const words = `${textOf(one.saving)}; the bar is the whole step`;
  return h("div", { class: "interval", role: "img", "aria-label": words, title: words }, bar, best, h("span", {}, formatInterval(of.low, of.high)));
}

/** Ways on from a finding: the stall itself, and what its fix would do. */
export function findingActions(one: Finding, where: FindingPlace | null): Element | null {
  const acts: Element[] = [];
  const changes = changesOf(one);
  learn(one, changes);
  if (where) acts.push(h("button", { type: "button", class: "act show", click: () => show(where, changes) }, "Show me"));
  if (changes.length && whatIf()) {
    acts.push(h("button", { type: "button", class: "act", click: () => tryIt(changes) }, "Try it"));
  }
  return acts.length ? h("p", { class: "acts" }, ...acts) : null;
}

/** The stall and the longest wait for it, one below the other, with a note at each. */
function show(place: FindingPlace, changes: [string, string][]): void {
  const { rank, stall, event, victim, wait } = place;
  const ranks = victim === null ? [rank] : [rank, ...[...place.between].reverse(), victim];
  const [start, stop] = [Math.min(stall[0], wait?.[0] ?? Infinity), Math.max(stall[1], wait?.[1] ?? 0)];
  const around = AROUND * (stop - start);
  showOnTimeline({
    ranks,
    pinned: ranks,
    open: event === null ? [] : [rank],
    event: event === null ? null : [rank, event],
    time: wait ?? stall,
    zoom: [Math.max(0, Math.round(start - around)), Math.round(stop + around)],
    notes: notesOn(place),
    changes,
  });
}

function notesOn({ rank, line, stall, victim, wait, between, more }: FindingPlace): [number, string][] {
  const long = formatNs(stall[1] - stall[0]);
  const other = between[between.length - 1] ?? victim;
  const said = more === null || other === null ? `${line}, ${long}` : `${formatNs(more)} more ${line} than rank ${other}, here ${long}`;
  const notes: [number, string][] = [[stall[0], `Rank ${rank}: ${said}`]];
  const ways = [...between, rank].map((one) => `for rank ${one}`).join(", which waits ");
  if (wait) notes.push([wait[0], `Rank ${victim} waits ${formatNs(wait[1] - wait[0])} ${ways}`]);
  return notes;
}

/** The timeline shows the predicted step over the measured one. */
function learn({ saving, prediction }: Finding, changes: [string, string][]): void {
  if (!prediction?.measured_ns || !saving || saving.low === null || saving.high === null || saving.kind === "bound") return;
  const { measured_ns: measured, predicted_ns: predicted } = prediction;
  learnPrediction(changes, { measured, predicted, ...stepInterval(measured, [saving.low, saving.high]) });
}

function changesOf(one: Finding): [string, string][] {
  return (one.prediction?.change ?? "").split(/[\s,]+/).flatMap((word): [string, string][] => {
    const cut = word.indexOf("=");
    return cut > 0 ? [[word.slice(0, cut), word.slice(cut + 1)]] : [];
  });
}

function tryIt(changes: [string, string][]): void {
  const article = whatIf();
  const isThere = article?.id === selected().view;
  select({ changes, ...(article ? { view: article.id } : {}) });
  // The page moves only when the view changes, and somebody may have scrolled away since.
  if (isThere) article?.scrollIntoView();
}

/** The section What if; on a live page it may not have its result yet. */
function whatIf(): Element | null {
  return document.querySelector("article[data-kinds~=Knobs]") ?? document.querySelector(`article.expected#${WHAT_IF}`);
}

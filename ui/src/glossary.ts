// What words mean: known words get a dotted underline, and their meaning in a box by hover and by focus.

import { h } from "./dom";
import type { Child } from "./dom";
import "./glossary.css";

const WORD = /[\p{L}\p{N}][\p{L}\p{N}_./-]*[\p{L}\p{N}]/gu;
/** In a sentence only words that no other sentence has: `comm.wait`, `MFU`, `p50`, `dp`, but not `compute`. */
const TECHNICAL = /[A-Z.\d]|^[^aeiouy]+$/;
/** What no line may end within: a number with its unit, an option. Only short ones, so that nothing sticks out. */
const UNBROKEN = /(\d[\d.,]{0,11} (?:[num]?s|min|h|[kMGTP]?B|GB\/s|[GTP]?FLOPS?)\b|(?<!\S)--[\w-]{0,24}(?![\w-]))/;

let words: Record<string, string> = {};
let told: HTMLElement | null = null;
const bubble = h("div", { id: "meaning", role: "tooltip", hidden: true });

export function learn(glossary: Record<string, string>): void {
  words = { ...words, ...glossary };
}

export function meaningOf(word: string): string | undefined {
  return Object.hasOwn(words, word) ? words[word] : undefined;
}

export function allWords(): [string, string][] {
  return Object.entries(words).sort(([one], [other]) => one.localeCompare(other));
}

/** A word as it is, or with its meaning where it has one. */
export function term(word: string): Child {
  return meaningOf(word) === undefined ? word : h("span", { class: "term", tabindex: 0, "data-term": word }, word);
}

/** A heading or a label: a known word, or a sentence. */
export function label(text: string): Child[] {
  return meaningOf(text) === undefined ? prose(text) : [term(text)];
}

/** What of a heading has a meaning: all of it, or all but its unit, or a word that is no plain English. */
export function knownWord(text: string): string | undefined {
  const technical = (text.match(WORD) ?? []).filter((word) => TECHNICAL.test(word));
  return [text, text.replace(/ [^ ]+$/, ""), ...technical].find((word) => meaningOf(word) !== undefined);
}

/** A sentence: known words that are no plain English get their meaning, once. */
export function prose(text: string): Child[] {
  const seen = new Set<string>();
  return marked(text, (word) => TECHNICAL.test(word) && !seen.has(word) && !!seen.add(word));
}

function marked(text: string, wanted: (word: string) => boolean): Child[] {
  const parts: Child[] = [];
  let done = 0;
  for (const found of text.matchAll(WORD)) {
    if (meaningOf(found[0]) === undefined || !wanted(found[0])) continue;
    parts.push(...unbroken(text.slice(done, found.index)), term(found[0]));
    done = found.index + found[0].length;
  }
  return [...parts, ...unbroken(text.slice(done))];
}

/** A text that lines may not break within a number and its unit. */
export function unbroken(text: string): Child[] {
  return text.split(UNBROKEN).map((part, place) => (place % 2 ? h("span", { class: "unbroken" }, part) : part));
}

/** Shows meanings all over the document. */
export function watchTerms(): void {
  document.body.append(bubble);
  document.addEventListener("mouseover", (event) => show(event.target));
  document.addEventListener("focusin", (event) => show(event.target));
  document.addEventListener("scroll", follow, { passive: true, capture: true });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
}

function show(target: EventTarget | null): void {
  const over = target instanceof Element ? target.closest<HTMLElement>("[data-term]") : null;
  const meaning = meaningOf(over?.dataset["term"] ?? "");
  if (!over || meaning === undefined) {
    // A page that scrolls under a resting pointer does not take the meaning from what has the focus.
    if (told !== document.activeElement) hide();
    return;
  }
  // A modal dialog is above everything that is not in it.
  (over.closest("dialog") ?? document.body).append(bubble);
  bubble.textContent = meaning;
  bubble.hidden = false;
  over.setAttribute("aria-describedby", bubble.id);
  told = over;
  place(over);
}

function place(over: HTMLElement): void {
  const at = over.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, innerWidth - bubble.offsetWidth - 8));
  const below = at.bottom + 6 + bubble.offsetHeight < innerHeight;
  bubble.style.setProperty("left", `${left}px`);
  bubble.style.setProperty("top", `${below ? at.bottom + 6 : at.top - bubble.offsetHeight - 6}px`);
}

/** The tab key scrolls to what it reaches: what has the focus keeps its meaning, what the pointer left behind does not. */
function follow(): void {
  if (told && told === document.activeElement && !bubble.hidden) place(told);
  else hide();
}

function hide(): void {
  bubble.hidden = true;
}

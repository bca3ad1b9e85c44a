// The pane below a timeline: what is known of the selected event or stretch, and exact sums of the selected area.

import { copyable } from "../copyable";
import { h } from "../dom";
import { prose } from "../glossary";
import type { Selection } from "../selection";
import { formatNs, formatValues } from "../units";
import type { Wanted } from "./chosen";
import { edges } from "./furniture";
import { panel } from "./panel";
import type { Area, State, Target } from "./state";
import type { Surroundings } from "./timeline";
import type { Result } from "../types";

const MOST_RANKS = 6;
/** Somebody who still drags asks for nothing. */
const SETTLED_MS = 60;

export interface PaneActions {
  show(target: Target): void;
  zoom(start: number, stop: number): void;
  choose(part: Partial<Selection>): void;
}

export class Pane {
  readonly element = h("div", { class: "pane" });
  readonly #details = h("div", { class: "panel", "aria-live": "polite" });
  readonly #sums = h("div", { class: "sums" });
  #asked: AbortController | null = null;
  #area = "";
  /** What the details are of. They are made again only when it changes: somebody may be reading them. */
  #parts: readonly unknown[] = [];
  /** Name of the block in sight. */
  #tab = "";

  constructor(
    private readonly state: State,
    private readonly around: Surroundings,
    private readonly actions: PaneActions,
  ) {
    this.element.append(this.#sums, this.#details);
  }

  tell(wanted?: Wanted): void {
    const { state, actions, around } = this;
    const zoom = (start: number, stop: number): void => actions.zoom(start, stop);
    const why = wanted ? absence(state, wanted) : "";
    const hasPanel = state.selected !== null || (!state.area && !why);
    const parts = [why, hasPanel, ...partsOf(state)];
    if (parts.length !== this.#parts.length || parts.some((part, place) => part !== this.#parts[place])) {
      this.#parts = parts;
      this.#details.replaceChildren(why ? h("p", {}, why) : "", hasPanel ? panel(state, around, { show: actions.show, zoom }) : "");
    }
    this.#sum(state.area, wanted);
  }

  #sum(area: Area | null, wanted?: Wanted): void {
    const key = JSON.stringify([area, wanted?.notes ?? []]);
    if (key === this.#area) return;
    this.#area = key;
    this.#asked?.abort();
    this.#asked = null;
    if (!area) return this.#sums.replaceChildren();
    const head = h("p", { class: "selected" }, h("strong", {}, describe(this.state, area)), this.#buttons(area, wanted));
    const body = h("div", { class: this.around.totals ? "summing muted" : "muted" });
    this.#sums.replaceChildren(head, body);
    if (this.around.totals) this.#ask(area, body);
  }

  #ask(area: Area, body: HTMLElement): void {
    const asked = (this.#asked = new AbortController());
    const timer = setTimeout(() => {
      body.textContent = "Summing…";
      this.around.totals!(area, asked.signal).then(
        (result) => !asked.signal.aborted && body.replaceWith(this.#shown(result)),
        (error: unknown) => {
          if (asked.signal.aborted) return;
          body.classList.remove("summing");
          body.textContent = (error as Error).message;
        },
      );
    }, SETTLED_MS);
    asked.signal.addEventListener("abort", () => clearTimeout(timer));
  }

  #shown(result: Result): Element {
    const chosen = result.blocks.find((block) => block.name === this.#tab) ?? result.blocks[0];
    const body = h("div", { role: "tabpanel", class: "sheet", tabindex: 0 });
    const tabs = result.blocks.map((block) => h("button", { type: "button", role: "tab", click: () => pick(block) }, block.title));
    const pick = (block: (typeof result.blocks)[number]): void => {
      this.#tab = block.name;
      tabs.forEach((tab, place) => tab.setAttribute("aria-selected", String(result.blocks[place] === block)));
      body.setAttribute("aria-label", block.title);
      body.replaceChildren(this.around.draw(block));
    };
    const list = h("div", { role: "tablist", "aria-label": "Sums of the selection", keydown: (event) => moveTab(event as KeyboardEvent, tabs) }, ...tabs);
    if (chosen) pick(chosen);
    const notes = result.notes.map((note) => h("p", { class: "muted" }, ...prose(note)));
    const next = result.next_command ? h("p", { class: "next" }, "Next: ", copyable(result.next_command)) : null;
    return h("div", { class: "summed" }, h("p", { class: "sentence" }, ...prose(result.verdict)), ...notes, h("div", { class: "docked" }, list, body), next);
  }

  #buttons(area: Area, wanted?: Wanted): Element {
    const act = (text: string, does: () => void): Element => h("button", { type: "button", click: does }, text);
    const note = (): void => {
      const input = h("input", { type: "text", maxlength: 80, "aria-label": "Note", placeholder: "Note at the start of the selection" }) as HTMLInputElement;
      const keep = (): void => {
        if (input.value.trim()) this.actions.choose({ notes: [...(wanted?.notes ?? []), [area.start, input.value.trim()]] });
      };
      input.addEventListener("keydown", (event) => event.key === "Enter" && keep());
      made.replaceChildren(input, act("Keep", keep));
      input.focus();
    };
    const made = h("span", {}, act("Add note", note));
    return h(
      "span",
      { class: "acts" },
      act("Zoom to selection", () => this.actions.zoom(area.start, area.stop)),
      made,
      wanted?.notes.length ? act("Remove notes", () => this.actions.choose({ notes: [] })) : null,
      act("Clear", () => this.actions.choose({ time: null, steps: null, ranks: [], event: null })),
    );
  }
}

function moveTab(event: KeyboardEvent, tabs: HTMLElement[]): void {
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const next = tabs[(tabs.indexOf(document.activeElement as HTMLElement) + by + tabs.length) % tabs.length];
  next?.focus();
  next?.click();
}

function describe({ model }: State, { start, stop, groups, steps }: Area): string {
  const ranks = groups.flatMap((group) => model.groups[group]!.rank ?? []).sort((one, other) => one - other);
  const all = groups.length === 0 ? `all ${model.groups.length.toLocaleString("en-US")} rows` : `${groups.length} rows`;
  const named = ranks.length && ranks.length <= MOST_RANKS ? `${ranks.length > 1 ? "ranks" : "rank"} ${formatValues(ranks, "")}` : all;
  if (steps) return `Selected: ${steps[0] === steps[1] ? `step ${steps[0]}` : `steps ${steps[0]} to ${steps[1]}`} of ${named}`;
  return `Selected: ${formatNs(stop - start)} of ${named}, from ${formatNs(start)}`;
}

/** What details of the selected target depend on. */
function partsOf(state: State): unknown[] {
  const target = state.selected;
  if (!target) return [];
  const [first] = state.model.groups[target.group]!.lanes;
  return [target.group, target.item, target.lane, first?.items, ...edges(state, target)];
}

/** Why what is selected cannot be shown here; empty where it can. */
function absence(state: State, { event, steps }: Wanted): string {
  const { model } = state;
  if (event && (!state.selected || state.selected.item === null)) {
    const more = state.isLive ? "Zoom in to load shorter events." : "A file keeps only the longest events of each lane; lostflops serve shows all of them.";
    return `Event ${event[1]} of rank ${event[0]} is not shown here.${model.leftOut ? ` ${more}` : ""}`;
  }
  if (!steps || state.area) return "";
  if (!model.marks.length) return "This timeline has no step marks.";
  const known = formatValues(model.marks.map(([number]) => number), "");
  return `Step ${steps[0]} does not start on this timeline. Steps that do: ${known}.`;
}

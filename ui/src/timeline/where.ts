// From other views to the timeline.

import { type Selection, UNSELECTED, select, selected } from "../selection";

/** Selects this and nothing else, and goes to the timeline, where the page has one. */
export function showOnTimeline(part: Partial<Selection>): void {
  goToTimeline({ ...UNSELECTED, zoom: null, top: null, ...part });
}

/** Goes to the timeline, and the keyboard with it. What is selected stays, but for `part`. */
export function goToTimeline(part: Partial<Selection> = {}): void {
  const view = timelineView();
  const isThere = selected().view === view;
  select({ ...part, ...(view ? { view } : {}) });
  const article = view ? document.getElementById(view) : null;
  // The page moves only when the view changes, and somebody may have scrolled away since.
  if (isThere) article?.scrollIntoView();
  article?.querySelector<HTMLElement>(".timeline .rows canvas")?.focus({ preventScroll: true });
}

/** Name of the result with the timeline; empty on a page without one. */
function timelineView(): string {
  return document.querySelector("article[data-kinds~=Strips]")?.id ?? "";
}

// What is selected, in words, always in sight, with ways to see it and to let go of it.

import { h } from "./dom";
import { type Selection, UNSELECTED, onSelection, select, selected } from "./selection";
import "./selection-bar.css";
import { describeSelection } from "./selection-words";
import { goToTimeline } from "./timeline/where";

export function selectionBar(): Element {
  const words = h("span");
  const show = h("button", { type: "button", class: "show", click: () => goToTimeline() }, "Show on timeline");
  const clear = h("button", { type: "button", click: () => select({ ...UNSELECTED, pinned: [] }) }, "Clear");
  const bar = h("div", { class: "selection-bar", role: "status" }, words, show, clear);
  const tell = (now: Selection): void => {
    const said = describeSelection(now).join(", ");
    bar.hidden = !said;
    words.textContent = said && `Selected: ${said}`;
  };
  onSelection(tell);
  tell(selected());
  return bar;
}

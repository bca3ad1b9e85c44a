// A small button that opens a few more: for what is wanted now and then, so that it takes little room.

import "./take.css";
import { h } from "../dom";

export interface Item {
  text: string;
  title?: string;
  /** Does it; text that it gives is said below the buttons. */
  act(): Promise<string | void> | string | void;
}

const SAID_MS = 1500;

/** `text` is on the button; `name` starts with it, and is different for each menu. */
export function menu(text: string, name: string, items: () => Item[]): HTMLElement {
  const said = h("p", { class: "muted", role: "status" });
  const list = h("div", { class: "menu-items", role: "group", "aria-label": name });
  const summary = h("summary", { "aria-label": name, title: name }, text);
  const element = h("details", { class: "menu" }, summary, h("div", { class: "menu-box" }, list, said)) as HTMLDetailsElement;

  function close(isKeyboard: boolean): void {
    element.open = false;
    if (isKeyboard) summary.focus({ preventScroll: true });
  }

  async function act(item: Item): Promise<void> {
    said.textContent = "";
    try {
      said.textContent = (await item.act()) ?? "";
    } catch (error) {
      said.textContent = `Failed: ${(error as Error).message}`;
      return;
    }
    setTimeout(() => close(element.contains(document.activeElement)), said.textContent ? SAID_MS : 0);
  }

  // Not on the toggle event, which comes a frame later.
  summary.addEventListener("click", () => {
    said.textContent = "";
    if (!element.open) list.replaceChildren(...items().map((item) => button(item, () => void act(item))));
  });
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !element.open) return;
    event.stopPropagation();
    close(true);
  });
  return element;
}

function button({ text, title }: Item, click: () => void): Element {
  return h("button", { type: "button", click, ...(title ? { title } : {}) }, text);
}

/** A menu closes when something else is clicked or focused. */
function closeOthers(event: Event): void {
  for (const open of document.querySelectorAll<HTMLDetailsElement>(".menu[open]")) {
    if (!open.contains(event.target as Node)) open.open = false;
  }
}

for (const event of ["pointerdown", "focusin"]) document.addEventListener(event, closeOthers);

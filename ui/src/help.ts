// The keys of the page and the words on it.

import { h } from "./dom";
import { allWords } from "./glossary";
import { KEYS, TIMELINE_KEYS } from "./keys";

export function helpDialog(): HTMLDialogElement {
  const dialog: HTMLDialogElement = h(
    "dialog",
    { class: "help-dialog", "aria-label": "Keyboard shortcuts and glossary" },
    h("button", { type: "button", class: "close", click: () => dialog.close() }, "close"),
    h("h2", {}, "Keyboard shortcuts"),
    listKeys(KEYS),
    h("h2", {}, "With the pointer on the timeline"),
    listKeys(TIMELINE_KEYS),
    h("h2", {}, "Glossary"),
    h("dl", { class: "words" }, ...allWords().flatMap(([word, means]) => [h("dt", {}, word), h("dd", {}, means)])),
  ) as HTMLDialogElement;
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  return dialog;
}

function listKeys(keys: [string, string][]): Element {
  return h("dl", { class: "keys" }, ...keys.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)]));
}

// The keys of the page and the words on it.

import { h } from "./dom";
import { allWords } from "./glossary";
import { KEYS } from "./keys";

export function helpDialog(): HTMLDialogElement {
  const dialog: HTMLDialogElement = h(
    "dialog",
    { class: "help-dialog", "aria-label": "Keyboard shortcuts and glossary" },
    h("button", { type: "button", class: "close", click: () => dialog.close() }, "close"),
    h("h2", {}, "Keyboard shortcuts"),
    h("dl", { class: "keys" }, ...KEYS.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("h2", {}, "Glossary"),
    h("dl", { class: "words" }, ...allWords().flatMap(([word, means]) => [h("dt", {}, word), h("dd", {}, means)])),
  ) as HTMLDialogElement;
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  return dialog;
}

// Text to paste into a shell, with a button that copies it.

import { h } from "./dom";
import { unbroken } from "./glossary";

export function copyable(text: string): HTMLElement {
  const code = h("code", {}, ...unbroken(text));
  const button = h("button", { type: "button", class: "copy", click: () => void copy() }, "copy");

  async function copy(): Promise<void> {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      // Without leave to write to the clipboard the text is selected, for the keyboard to copy.
      getSelection()?.selectAllChildren(code);
      button.textContent = "selected";
    }
    setTimeout(() => (button.textContent = "copy"), 1500);
  }
  return h("span", { class: "copyable" }, code, button);
}

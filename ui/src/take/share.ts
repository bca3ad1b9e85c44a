// The button of the header that copies what is looked at: as a link, or as Markdown.

import { h } from "../dom";
import { selected } from "../selection";
import type { Source } from "../source";
import type { Result } from "../types";
import { excerpt } from "./excerpt";
import { menu } from "./menu";

const LIVE_LINK = "Works while this server runs, in a tab that has its token: the link does not contain it.";
const FILE_LINK = "Opens the same view of this file.";

export function shareMenu(source: Source, results: () => Result[]): HTMLElement {
  const made = menu("Share", "Share this view", () => [
    { text: "Copy link", title: source.live ? LIVE_LINK : FILE_LINK, act: () => copy(location.href) },
    {
      text: "Copy as Markdown",
      title: "Verdict, selection, findings and ledger",
      act: () => copy(excerpt(source.page.title, results(), selected())),
    },
  ]);
  made.classList.add("share");
  return made;
}

async function copy(text: string): Promise<string> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copyOld(text)) throw new Error("the browser does not allow copying");
  }
  return "Copied";
}

/** Without leave to write to the clipboard, a selected text can still be copied while a click is handled. */
function copyOld(text: string): boolean {
  const box = h("textarea", { "aria-hidden": "true" }) as HTMLTextAreaElement;
  box.value = text;
  document.body.append(box);
  box.select();
  const isCopied = document.execCommand("copy");
  box.remove();
  return isCopied;
}

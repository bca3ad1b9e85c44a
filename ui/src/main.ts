// Reads the page's data and shows its results one below the other.

import "./style.css";
import { draw } from "./blocks";
import { h } from "./dom";
import { embedded } from "./source";
import type { Result } from "./types";
import type { Context } from "./blocks";

async function start(): Promise<void> {
  const app = document.getElementById("app")!;
  const source = await embedded();
  app.append(h("h1", {}, source.page.title), ...source.page.results.map((result) => shown(result, { source })));
  document.documentElement.dataset["ready"] = "yes";
}

function shown(result: Result, context: Context): Element {
  return h(
    "article",
    { id: result.name },
    h("h2", {}, result.title),
    h("p", { class: "verdict" }, result.verdict),
    ...result.blocks.map((block) => draw(block, context)),
    ...result.notes.map((note) => h("p", { class: "note" }, note)),
  );
}

void start();

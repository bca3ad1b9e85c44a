// The run as a trace for the Perfetto UI: to keep, or to hand over in the browser.

import "./trace.css";
import { h } from "../dom";
import { handOver, SAYS } from "../perfetto";
import { download } from "../take/save";
import type { Context } from "./index";
import type { Trace } from "../types";

export function drawTrace(_block: Trace, context: Context): Element {
  const { live, page } = context.source;
  if (!live) return h("p", { class: "muted" }, "To write the trace: lostflops export RUN --perfetto FILE");
  const said = h("p", { class: "muted", role: "status" });
  const file = `${page.title}.perfetto-trace.gz`;

  async function run(work: Promise<void>): Promise<void> {
    said.textContent = "Writing the trace…";
    try {
      await work;
      said.textContent = "";
    } catch (error) {
      said.textContent = (error as Error).message;
    }
  }

  return h(
    "div",
    { class: "trace" },
    h(
      "p",
      {},
      h("button", { type: "button", click: () => void run(live.perfetto().then((trace) => download(new Blob([trace]), file))) }, "Download"),
      " ",
      h("button", { type: "button", click: () => void run(handOver(live.perfetto(), page.title)) }, "Open in the Perfetto UI"),
    ),
    h("p", { class: "muted" }, SAYS),
    said,
  );
}

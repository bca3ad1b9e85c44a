// The run as a trace for the Perfetto UI: to keep, or to hand over in the browser.

import "./trace.css";
import { h } from "../dom";
import type { Context } from "./index";
import type { Trace } from "../types";

const PERFETTO = "https://ui.perfetto.dev";
const PATIENCE_MS = 30_000;

export function drawTrace(_block: Trace, context: Context): Element {
  const { live, page } = context.source;
  if (!live) return h("p", { class: "muted" }, "lostflops export RUN --perfetto FILE writes it.");
  const said = h("p", { class: "muted", role: "status" });
  const file = `${page.title}.perfetto-trace.gz`;

  async function made(use: (trace: ArrayBuffer) => void | Promise<void>): Promise<void> {
    said.textContent = "Writing the trace…";
    try {
      await use(await live!.perfetto());
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
      h("button", { type: "button", click: () => void made((trace) => keep(trace, file)) }, "Download"),
      " ",
      h("button", { type: "button", click: () => open() }, "Open in the Perfetto UI"),
    ),
    h(
      "p",
      { class: "muted" },
      "The second opens ui.perfetto.dev, an outside site, in a new tab. The trace is given to it inside the browser, and is not sent anywhere.",
    ),
    said,
  );

  function open(): void {
    // At once: a browser opens windows for clicks, not for what comes a while after.
    const other = window.open(PERFETTO);
    if (!other) said.textContent = "The browser did not open a new tab; allow it for this page.";
    else void made((trace) => handOver(other, trace, page.title));
  }
}

function keep(trace: ArrayBuffer, file: string): void {
  const url = URL.createObjectURL(new Blob([trace]));
  h("a", { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** The protocol of https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui: ping until it answers. */
function handOver(other: Window, trace: ArrayBuffer, title: string): Promise<void> {
  return new Promise((done, fail) => {
    const began = performance.now();
    const timer = setInterval(() => {
      if (other.closed) return end(() => fail(new Error("The tab of the Perfetto UI was closed.")));
      if (performance.now() - began > PATIENCE_MS) return end(() => fail(new Error("The Perfetto UI does not answer. Is there a network?")));
      other.postMessage("PING", PERFETTO);
    }, 200);
    const heard = (event: MessageEvent): void => {
      if (event.source !== other || event.origin !== PERFETTO || event.data !== "PONG") return;
      other.postMessage({ perfetto: { buffer: trace, title } }, PERFETTO);
      end(done);
    };
    const end = (then: () => void): void => {
      clearInterval(timer);
      removeEventListener("message", heard);
      then();
    };
    addEventListener("message", heard);
  });
}

// Hands a trace to the Perfetto UI in another tab, as its documentation says:
// https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
// Only a click opens it. The trace goes from this tab to that one inside the browser; nothing is uploaded.

const ORIGIN = "https://ui.perfetto.dev";
const PING_MS = 50;
const PATIENCE_MS = 30_000;

export const SAYS =
  "Opens ui.perfetto.dev, a third-party site, in a new tab and loads the trace there. Nothing is uploaded: the trace stays in your browser.";

/** Asks for the trace while the site loads: a tab may be opened only at the click itself. */
export async function handOver(buffer: ArrayBuffer | Promise<ArrayBuffer>, title: string): Promise<void> {
  const opened = window.open(ORIGIN);
  if (!opened) throw new Error("The browser blocked the new tab. Allow pop-ups for this page and try again.");
  const [trace] = await Promise.all([buffer, ready(opened)]).catch((error: unknown) => {
    opened.close();
    throw error;
  });
  opened.postMessage({ perfetto: { buffer: trace, title, fileName: `${title}.pftrace` } }, ORIGIN);
}

/** Messages to a tab that is not listening yet are lost, so it is asked until it answers. */
function ready(opened: Window): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (): void => {
      clearInterval(asking);
      clearTimeout(giving);
      window.removeEventListener("message", hear);
    };
    const hear = (event: MessageEvent): void => {
      if (event.source !== opened || event.origin !== ORIGIN || event.data !== "PONG") return;
      done();
      resolve();
    };
    const asking = setInterval(() => opened.postMessage("PING", ORIGIN), PING_MS);
    const giving = setTimeout(() => {
      done();
      reject(new Error("ui.perfetto.dev did not respond. To write the same trace to a file: lostflops export RUN --perfetto FILE"));
    }, PATIENCE_MS);
    window.addEventListener("message", hear);
  });
}

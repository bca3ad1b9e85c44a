// The page from a server: results show as they are found, and what a file has no room for is asked for.

import { h } from "./dom";
import { Shell } from "./shell";
import { Lost, Server, token } from "./server";
import type { Source, Unpacked } from "./source";
import type { Blob as BlobRef, Events, Page, Result, Setting, TableDoc } from "./types";
import "./live.css";

/** What only a server can answer. */
export interface Live {
  events(asked: { ranks: number[]; start: number; stop: number; most: number }): Promise<Unpacked<Events>>;
  whatif(changes: [string, string][]): Promise<Setting>;
  sql(query: string, signal: AbortSignal): Promise<Result>;
  perfetto(): Promise<ArrayBuffer>;
}

interface Questions {
  page: Page;
  questions: string[];
  tables: TableDoc[];
}

const AHEAD = 2;
const LOOK_MS = 5000;
const LOST = "The server is not responding. This page keeps what it shows. Run lostflops serve again and open the address it prints.";
const CHANGED = "The run was rewritten after this page was opened. Reload the page.";

export async function serve(root: HTMLElement): Promise<void> {
  const status = h("p", { class: "live-status", role: "status" }, "Opening the run…");
  document.body.append(status);
  const say = (text: string, bad = false): void => {
    status.textContent = text;
    status.hidden = !text;
    status.classList.toggle("bad", bad);
  };
  const server = new Server(token(), () => say(CHANGED, true));
  try {
    await show(root, server, say);
  } catch (error) {
    say(error instanceof Lost ? LOST : String((error as Error).message), true);
    document.documentElement.dataset["ready"] = "yes";
  }
}

async function show(root: HTMLElement, server: Server, say: (text: string, bad?: boolean) => void): Promise<void> {
  const { page, questions, tables } = await server.json<Questions>("/api/questions");
  document.title = `${page.title} · lostflops`;
  const source = new LiveSource(page, server);
  const shell = new Shell(root, source);
  const wanted = location.hash.slice(1);
  const asked: Promise<Page>[] = [];
  const ask = (place: number): void => {
    const name = questions[place];
    if (name && !asked[place]) {
      asked[place] = source.result(name);
      asked[place].catch(() => undefined);
    }
  };
  for (const [place, name] of questions.entries()) {
    for (let next = place; next < place + AHEAD; next++) ask(next);
    say(`Computing: ${name.replaceAll("_", " ")} (${place + 1} of ${questions.length})…`);
    try {
      const found = await asked[place]!;
      for (const [missing, why] of found.missing) shell.miss(missing, why);
      for (const result of found.results) shell.add(result);
      if (place === 0 || found.results.some((result) => result.name === wanted)) shell.ready();
    } catch (error) {
      if (error instanceof Lost) throw error;
      shell.miss(name, (error as Error).message);
    }
  }
  shell.add(asking(tables));
  shell.add(TRACE);
  shell.ready();
  say("");
  document.documentElement.dataset["complete"] = "yes";
  watch(server, say);
}

/** Whether the server is still there, as long as somebody looks. */
function watch(server: Server, say: (text: string, bad?: boolean) => void): void {
  let lost = false;
  setInterval(() => {
    if (document.hidden) return;
    server.json("/api/alive").then(
      () => {
        if (lost) say("");
        lost = false;
      },
      (error: unknown) => {
        lost = true;
        say(error instanceof Lost ? LOST : (error as Error).message, true);
      },
    );
  }, LOOK_MS);
}

class LiveSource implements Source {
  readonly live: Live;
  private readonly blobs: ((type: BlobRef["type"]) => ReturnType<Source["numbers"]>)[] = [];

  constructor(
    readonly page: Page,
    private readonly server: Server,
  ) {
    this.live = {
      events: (asked) =>
        server.packed("/api/events", {
          parameters: {
            ranks: asked.ranks.join(","),
            start: String(Math.floor(asked.start)),
            stop: String(Math.ceil(asked.stop)),
            most: String(asked.most),
          },
        }),
      whatif: (changes) => server.json("/api/whatif", { body: { changes } }),
      sql: async (query, signal) => (await server.packed<Page>("/api/sql", { body: { query }, signal })).data.results[0]!,
      perfetto: () => server.bytes("/api/perfetto"),
    };
  }

  /** A page of one result. Its blobs are counted from those of the results before, as in one page. */
  async result(name: string): Promise<Page> {
    const found = await this.server.packed<Page>("/api/result", { parameters: { name } });
    const first = this.blobs.length;
    for (let blob = 0; blob < found.blobs; blob++) this.blobs.push((type) => found.numbers({ blob, type }));
    return renumbered(found.data, first) as Page;
  }

  numbers(blob: BlobRef): ReturnType<Source["numbers"]> {
    return this.blobs[blob.blob]!(blob.type);
  }
}

function renumbered(value: unknown, by: number): unknown {
  if (Array.isArray(value)) return value.map((one) => renumbered(one, by));
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value).map(([key, one]) => [key, key === "blob" && typeof one === "number" ? one + by : renumbered(one, by)]);
  return Object.fromEntries(entries);
}

const TRACE: Result = {
  name: "perfetto",
  title: "Perfetto",
  verdict: "A Perfetto trace of all ranks on one clock, with separate tracks for waits, transfers and the time ledger.",
  notes: [],
  next_command: "",
  blocks: [{ kind: "Trace", name: "trace", title: "" }],
};

function asking(tables: TableDoc[]): Result {
  return {
    name: "sql",
    title: "SQL",
    verdict: "Query the run's tables, read-only. Times are integer ns, sizes are bytes.",
    notes: [],
    next_command: "",
    blocks: [{ kind: "Sql", name: "sql", title: "", tables }],
  };
}

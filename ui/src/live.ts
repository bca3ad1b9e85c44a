// The page from a server: results show as they are found, and what a file has no room for is asked for.

import { h } from "./dom";
import { Shell } from "./shell";
import { followAddress, selected } from "./selection";
import { Lost, Server, token } from "./server";
import type { Source, Unpacked } from "./source";
import type { Blob as BlobRef, Events, Page, Result, Setting, TableDoc } from "./types";
import "./live.css";

/** What only a server can answer. */
export interface Live {
  events(asked: { ranks: number[]; start: number; stop: number; most: number }): Promise<Unpacked<Events>>;
  /** Exact sums of some ranks, or of all if none is given. */
  selection(asked: { ranks: number[]; start: number; stop: number; steps: [number, number] | null }, signal: AbortSignal): Promise<Result>;
  whatif(changes: [string, string][]): Promise<Setting>;
  sql(query: string, signal: AbortSignal): Promise<Result>;
  perfetto(): Promise<ArrayBuffer>;
}

/** Sections that the server works out together. */
interface Group {
  name: string;
  doing: string;
  sections: string[];
}

interface Questions {
  page: Page;
  /** Name and title of each section, in the order of the page. */
  sections: [string, string][];
  /** In the order in which to ask. */
  groups: Group[];
  tables: TableDoc[];
}

/** The server works on this many at a time. */
const AT_ONCE = 2;
const LOOK_MS = 5000;
const COUNT_MS = 1000;
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
  followAddress();
  try {
    await show(root, server, say);
  } catch (error) {
    say(error instanceof Lost ? LOST : String((error as Error).message), true);
    document.documentElement.dataset["ready"] = "yes";
  }
}

type Say = (text: string, bad?: boolean) => void;

async function show(root: HTMLElement, server: Server, say: Say): Promise<void> {
  const { page, sections, groups, tables } = await server.json<Questions>("/api/questions");
  document.title = `${page.title} · lostflops`;
  const source = new LiveSource(page, server);
  const shell = new Shell(root, source);
  for (const [name, title] of sections) shell.expect(name, title);
  await new Asking(shell, source, server, groups, say).all();
  shell.add(asking(tables));
  shell.add(TRACE);
  shell.ready();
  say("");
  document.documentElement.dataset["complete"] = "yes";
  watch(server, say);
}

/** Asks for the groups one by one, and says how far the server is. */
class Asking {
  private readonly waiting: Group[];
  private readonly active: Group[] = [];
  private readonly wanted = selected().view;
  private answered = 0;
  /** Place of the group that each result is from: an earlier one does not replace it. */
  private readonly from = new Map<string, number>();

  constructor(
    private readonly shell: Shell,
    private readonly source: LiveSource,
    private readonly server: Server,
    private readonly groups: Group[],
    private readonly say: Say,
  ) {
    this.waiting = [...groups];
  }

  async all(): Promise<void> {
    const counting = setInterval(() => void this.count(), COUNT_MS);
    try {
      await Promise.all(Array.from({ length: AT_ONCE }, () => this.some()));
    } finally {
      clearInterval(counting);
    }
  }

  private async some(): Promise<void> {
    for (let group = this.waiting.shift(); group; group = this.waiting.shift()) {
      this.active.push(group);
      for (const section of group.sections) this.shell.work(section, `${group.doing}…`);
      this.sayActive();
      try {
        await this.answer(group);
      } finally {
        this.active.splice(this.active.indexOf(group), 1);
        this.answered++;
      }
    }
    this.sayActive();
  }

  private async answer(group: Group): Promise<void> {
    try {
      const found = await this.source.result(group.name);
      for (const [missing, why] of found.missing) this.shell.miss(missing, why);
      for (const result of found.results) this.add(result, this.groups.indexOf(group));
      if (!this.answered || found.results.some((result) => result.name === this.wanted)) this.shell.ready();
    } catch (error) {
      if (error instanceof Lost) throw error;
      this.shell.miss(group.name, (error as Error).message);
    }
    const later = new Set(this.waiting.concat(this.active.filter((one) => one !== group)).flatMap((one) => one.sections));
    for (const section of group.sections) if (!later.has(section)) this.shell.rest(section);
  }

  private add(result: Result, place: number): void {
    if (place < (this.from.get(result.name) ?? 0)) return;
    this.from.set(result.name, place);
    this.shell.add(result);
  }

  private sayActive(): void {
    const now = this.active.map(({ doing }, place) => (place ? doing.charAt(0).toLowerCase() + doing.slice(1) : doing));
    if (now.length) this.say(`${now.join("; ")}… (${this.answered} of ${this.groups.length} parts done)`);
  }

  /** Counts show in the sections and not in the status, which a screen reader would read out every second. */
  private async count(): Promise<void> {
    const counted = await this.server.json<Record<string, [number, number]>>("/api/progress").catch(() => ({}) as Record<string, [number, number]>);
    for (const group of this.active) {
      const [done, total] = counted[group.name] ?? [0, 0];
      if (total > 1) for (const section of group.sections) this.shell.work(section, `${group.doing}… ${done.toLocaleString("en")} of ${total.toLocaleString("en")} ranks`);
    }
  }
}

/** Whether the server is still there, as long as somebody looks. */
function watch(server: Server, say: Say): void {
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

/** Blobs of a selection are counted from here; those of an earlier selection are no longer drawn. */
const OF_SELECTION = 2 ** 30;

class LiveSource implements Source {
  readonly live: Live;
  private ofSelection: Source["numbers"] | null = null;
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
      selection: async ({ ranks, start, stop, steps }, signal) => {
        const [first, last] = [start, stop].map((time) => String(Math.round(time))) as [string, string];
        const parameters = { ranks: ranks.join(","), start: first, stop: last, steps: steps?.join("-") ?? "" };
        const found = await server.packed<Page>("/api/selection", { parameters, signal });
        this.ofSelection = found.numbers;
        return (renumbered(found.data, OF_SELECTION) as Page).results[0]!;
      },
      whatif: (changes) => server.json("/api/whatif", { body: { changes } }),
      sql: async (query, signal) => (await server.packed<Page>("/api/sql", { body: { query }, signal })).data.results[0]!,
      perfetto: () => server.bytes("/api/perfetto"),
    };
  }

  /** A page of one group. Its blobs are counted from those of the results before, as in one page. */
  async result(name: string): Promise<Page> {
    const found = await this.server.packed<Page>("/api/result", { parameters: { name } });
    const first = this.blobs.length;
    for (let blob = 0; blob < found.blobs; blob++) this.blobs.push((type) => found.numbers({ blob, type }));
    return renumbered(found.data, first) as Page;
  }

  numbers(blob: BlobRef): ReturnType<Source["numbers"]> {
    if (blob.blob >= OF_SELECTION) return this.ofSelection!({ ...blob, blob: blob.blob - OF_SELECTION });
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

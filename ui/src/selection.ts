// What is looked at: one selection that every view reads and may set. It lives in the address, so a copied link opens
// what was seen, and Back undoes the last choice.

export interface Selection {
  /** Name of the result that was gone to; empty for the top of the page. */
  view: string;
  /** No ranks are all ranks. */
  ranks: number[];
  /** First and last step. */
  steps: [number, number] | null;
  /** Start and stop in ns, from the start of the timeline. */
  time: [number, number] | null;
  /** What the timeline shows, in the same ns. */
  zoom: [number, number] | null;
  /** A rank and the number of one of its events; that of a collective is an event of each of its ranks. */
  event: [number, number] | null;
  /** Part of the names of events. */
  search: string;
  /** Changes of What if, each with its value. */
  changes: [string, string][];
  /** Ranks whose rows stay on top of the timeline. */
  pinned: number[];
  /** Ranks whose lanes are open. */
  open: number[];
  /** How rows of the timeline are ordered, and which of them are shown. */
  order: string;
  filter: string;
  /** Pixels that rows of the timeline are scrolled by. */
  top: number | null;
  /** Notes at moments of the timeline. */
  notes: [number, string][];
}

export const NOTHING: Selection = {
  view: "",
  ranks: [],
  steps: null,
  time: null,
  zoom: null,
  event: null,
  search: "",
  changes: [],
  pinned: [],
  open: [],
  order: "",
  filter: "",
  top: null,
  notes: [],
};

/** Nothing is selected; how the timeline is arranged and what is in sight stay. */
export const UNSELECTED = { ranks: [], steps: null, time: null, event: null, search: "", changes: [], notes: [], filter: "" } satisfies Partial<Selection>;

const RETRY_MS = 2000;

type Listener = (now: Selection, before: Selection) => void;

const listeners = new Set<Listener>();
const settlers = new Set<() => void>();
let current: Selection = NOTHING;
let retrying = 0;

export function selected(): Selection {
  return current;
}

/** Select something; the rest stays. `quietly` replaces the last entry of the history, for moves that nobody would undo
 * one by one. */
export function select(part: Partial<Selection>, quietly = false): void {
  for (const settle of settlers) settle();
  const wanted = { ...current, ...part };
  const address = addressOf(wanted);
  if (address === addressOf(current)) return;
  write(address, quietly);
  become(wanted);
}

/** Browsers refuse addresses that follow each other too fast, as while a key is held: the last one is tried again. */
function write(address: string, quietly: boolean): void {
  clearTimeout(retrying);
  try {
    if (quietly) history.replaceState(null, "", address);
    else history.pushState(null, "", address);
  } catch {
    // As refused as without an error.
  }
  const { pathname, search, hash } = location;
  if (![hash, pathname + search + hash].includes(address)) retrying = window.setTimeout(() => write(addressOf(current), true), RETRY_MS);
}

/** Calls back after every change, also one by Back, until the returned function is called. */
export function onSelection(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Calls back before anything is selected: what a view has yet to select comes first. */
export function beforeSelection(settle: () => void): void {
  settlers.add(settle);
}

/** Reads the address, now and whenever it changes. */
export function followAddress(): void {
  current = parsed(location.hash);
  addEventListener("popstate", () => become(parsed(location.hash)));
}

function become(wanted: Selection): void {
  const before = current;
  current = wanted;
  for (const listener of listeners) listener(current, before);
}

function addressOf(wanted: Selection): string {
  return formatSelection(wanted) || location.pathname + location.search;
}

/** As the part of an address from `#` on; empty where nothing is selected. */
function formatSelection(wanted: Selection): string {
  const words = Object.entries(FORMS).flatMap(([name, form]) => {
    const text = (form as Form<unknown>).format(wanted[name as keyof typeof FORMS]);
    return text ? [`${name}=${escaped(text)}`] : [];
  });
  if (!wanted.view && !words.length) return "";
  return `#${escaped(wanted.view)}${words.length ? `?${words.join("&")}` : ""}`;
}

/** What an address selects. What cannot be read selects nothing: addresses are typed, cut and mailed. */
function parsed(hash: string): Selection {
  const [view = "", query = ""] = hash.replace(/^#/, "").split("?", 2);
  const found: Record<string, unknown> = { ...NOTHING, view: unescaped(view) };
  for (const word of query.split("&")) {
    const [name = "", text = ""] = word.split("=", 2);
    if (Object.hasOwn(FORMS, name)) found[name] = FORMS[name as keyof typeof FORMS].parse(unescaped(text)) ?? found[name];
  }
  return found as unknown as Selection;
}

interface Form<T> {
  format(value: T): string;
  parse(text: string): T | null;
}

const WHOLE = /^\d{1,15}$/;

const list: Form<number[]> = {
  format: (values) => values.join(","),
  parse: (text) => {
    const words = text.split(",");
    return words.every((word) => WHOLE.test(word)) ? words.map(Number) : null;
  },
};

const range: Form<[number, number] | null> = {
  format: (value) => (value ? `${Math.round(value[0])}-${Math.round(value[1])}` : ""),
  parse: (text) => {
    const words = text.split("-");
    const [first, last] = words.map(Number);
    return words.length === 2 && words.every((word) => WHOLE.test(word)) && first! <= last! ? [first!, last!] : null;
  },
};

const place: Form<[number, number] | null> = {
  format: (value) => (value ? value.join(".") : ""),
  parse: (text) => {
    const words = text.split(".");
    return words.length === 2 && words.every((word) => WHOLE.test(word)) ? [Number(words[0]), Number(words[1])] : null;
  },
};

const count: Form<number | null> = {
  format: (value) => (value === null ? "" : String(value)),
  parse: (text) => (WHOLE.test(text) ? Number(text) : null),
};

const word: Form<string> = { format: (value) => value, parse: (text) => text };

/** Pairs of words, each pair after a `;`; the first word has no `:`. */
const pairs: Form<[string, string][]> = {
  format: (value) => value.map(([name, text]) => `${name}:${text.replace(/[%;]/g, encodeURIComponent)}`).join(";"),
  parse: (text) =>
    text.split(";").flatMap((pair): [string, string][] => {
      const cut = pair.indexOf(":");
      return cut > 0 ? [[pair.slice(0, cut), unescaped(pair.slice(cut + 1))]] : [];
    }),
};

const notes: Form<[number, string][]> = {
  format: (value) => pairs.format(value.map(([at, text]) => [String(Math.round(at)), text])),
  parse: (text) => (pairs.parse(text) ?? []).filter(([at]) => WHOLE.test(at)).map(([at, said]) => [Number(at), said]),
};

const FORMS = {
  ranks: list,
  steps: range,
  time: range,
  zoom: range,
  event: place,
  search: word,
  changes: pairs,
  pinned: list,
  open: list,
  order: word,
  filter: word,
  top: count,
  notes,
};

/** Escaped as far as needed: commas, colons and semicolons stay readable. */
function escaped(text: string): string {
  return encodeURIComponent(text).replace(/%(2C|3A|3B|2F)/g, (found) => decodeURIComponent(found));
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

// The page of a fleet: asks the server for the view that the address names, and shows it. The server escapes every name.

const KEPT = "lostflops-token";
const SCOPE = ["job", "team", "model", "host", "week", "status"];
/** Names in the path of each view's address, and what else it asks for. */
const VIEWS = {
  overview: { path: [], query: [...SCOPE, "by"] },
  jobs: { path: [], query: [...SCOPE, "order"] },
  hosts: { path: [], query: SCOPE },
  job: { path: ["name"], query: [] },
  host: { path: ["name"], query: [] },
  run: { path: ["name"], query: [] },
  compare: { path: ["first", "second"], query: [] },
};
/** The list in the navigation that a view belongs to. */
const LISTED = { job: "jobs", compare: "jobs", host: "hosts" };
const LOST = "The server is not responding. This page keeps what it shows. Run lostflops serve again and open the address it prints.";
const CHANGED = "The fleet has changed.";
const LOOK_MS = 5000;

/** From the address, where it does not stay: it would be in bookmarks and on screens. A reload finds it in this tab. */
function readToken() {
  const found = /^#token=([\w-]+)$/.exec(location.hash)?.[1];
  if (found) {
    sessionStorage.setItem(KEPT, found);
    history.replaceState(null, "", location.pathname);
  }
  return found ?? sessionStorage.getItem(KEPT) ?? "";
}

let token = readToken();
const root = document.querySelector("#fleet");
root.innerHTML = `<header class="top"><h1>Fleet</h1><span class="standing"></span></header>
<nav aria-label="Views"><ul><li><a href="#/overview">Overview</a></li><li><a href="#/jobs">Jobs</a></li><li><a href="#/hosts">Hosts</a></li></ul></nav>
<main tabindex="-1"><p class="fleet-status" role="status">Asking the fleet…</p><article></article></main>`;
const [main, status, article, standing, heading] = ["main", ".fleet-status", "article", ".standing", "h1"].map((name) => root.querySelector(name));
let shown = "";
let version = "";
let asking = new AbortController();

function say(text, bad = false) {
  status.textContent = text;
  status.hidden = !text;
  status.classList.toggle("bad", bad);
}

/** The view and what it asks for: `#/job/NAME`, `#/jobs?team=vision`. */
function readAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...words] = path.split("/");
  const view = VIEWS[name] ? name : "overview";
  const given = new URLSearchParams(query ?? "");
  const asked = new URLSearchParams({ width: String(Math.max(300, main.clientWidth - 40)) });
  VIEWS[view].path.forEach((one, place) => asked.set(one, decode(words[place] ?? "")));
  for (const one of VIEWS[view].query) asked.set(one, given.get(one) ?? "");
  return { view, asked };
}

function decode(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

async function ask(path, signal) {
  const response = await fetch(path, { headers: { Authorization: `Bearer ${token}` }, signal }).catch((error) => {
    throw signal?.aborted ? error : new Error(LOST);
  });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The server returned HTTP status ${response.status}.`);
  return { answer, version: response.headers.get("Lostflops-Run") ?? "" };
}

async function show() {
  asking.abort();
  const { signal } = (asking = new AbortController());
  const { view, asked } = readAddress();
  for (const link of root.querySelectorAll("nav a")) {
    if (link.hash === `#/${LISTED[view] ?? view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  delete document.documentElement.dataset.ready;
  root.classList.add("busy");
  const waiting = setTimeout(() => say("Asking the fleet…"), 300);
  try {
    const found = await ask(`./api/${view}?${asked}`, signal);
    const isNew = shown !== location.hash;
    article.innerHTML = found.answer.html;
    document.title = `${found.answer.title} · lostflops`;
    [shown, version] = [location.hash, found.version];
    standing.textContent = "";
    heading.textContent = found.answer.place || "Fleet";
    say("");
    if (isNew) {
      scrollTo(0, 0);
      main.focus({ preventScroll: true });
    }
  } catch (error) {
    if (signal.aborted) return;
    // The form stays, so that a choice without runs can be changed.
    article.replaceChildren(...[...article.querySelectorAll(".choose")].filter((form) => form.querySelector(`[data-view="${view}"]`)));
    say(error.message, true);
  } finally {
    clearTimeout(waiting);
    if (!signal.aborted) {
      root.classList.remove("busy");
      document.documentElement.dataset.ready = "yes";
    }
  }
}

root.addEventListener("submit", (event) => {
  event.preventDefault();
  const values = new FormData(event.target);
  const first = event.target.dataset.compare;
  if (first) {
    location.hash = `#/compare/${first}/${encodeURIComponent(values.get("other").trim())}`;
    return;
  }
  const kept = [...values].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
  const next = `#/${event.target.dataset.view}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`;
  if (next === location.hash) void show();
  else location.hash = next;
});

root.addEventListener("change", (event) => {
  if (event.target.matches("form[data-view] select")) event.target.form.requestSubmit();
});

root.addEventListener("click", (event) => {
  if (!event.target.matches("button.copy")) return;
  void navigator.clipboard.writeText(event.target.previousElementSibling.textContent).then(() => (event.target.textContent = "Copied"));
});

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) token = readToken();
  void show();
});

let resized = 0;
let wide = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === wide) return;
  wide = innerWidth;
  clearTimeout(resized);
  resized = setTimeout(() => void show(), 300);
});

setInterval(async () => {
  if (document.hidden || !version) return;
  try {
    const found = await ask("./api/alive");
    if (standing.textContent === LOST) standing.textContent = "";
    if (found.version !== version && standing.textContent !== CHANGED) {
      standing.textContent = CHANGED;
      standing.insertAdjacentHTML("beforeend", ' <button type="button" class="link">Show it</button>');
      standing.querySelector("button").addEventListener("click", () => void show());
    }
  } catch (error) {
    standing.textContent = error.message;
  }
}, LOOK_MS);

void show();

// The page around results: header, navigation, and an article for each result, drawn when it comes near the eye.

import type { Context } from "./blocks";
import { Article } from "./article";
import { themeChanged } from "./colours";
import { h } from "./dom";
import { label, learn, watchTerms } from "./glossary";
import { helpDialog } from "./help";
import { listenToKeys } from "./keys";
import { onSelection, select, selected } from "./selection";
import { selectionBar } from "./selection-bar";
import type { Source } from "./source";
import { shareMenu } from "./take/share";
import { themeSwitch } from "./theme";
import type { Result } from "./types";
import "./shell.css";

const NEAR = "800px";
const LONGEST_WAIT_MS = 500;
const SETTLED_MS = 1000;

export class Shell {
  private readonly context: Context;
  private readonly articles: Article[] = [];
  private readonly standing = h("a", { class: "standing", title: "Data quality" });
  private readonly links = h("ul");
  private readonly nav = h("nav", { "aria-label": "Results" }, this.links);
  private readonly main = h("main", { id: "results", tabindex: -1 });
  private readonly places = new Map<string, HTMLElement>();
  private landed = "";
  /** Name of the section that is held in sight, until somebody moves. */
  private held = "";
  private letGo = (): void => {};
  private readonly near: IntersectionObserver;
  private readonly seen: IntersectionObserver;

  constructor(root: HTMLElement, source: Source) {
    this.context = { source };
    learn(source.page.glossary);
    if (source.page.standing) this.standing.append("Checking data quality…");
    const help = helpDialog();
    root.append(
      h("a", { class: "skip", href: "#results" }, "Skip to results"),
      h(
        "header",
        { class: "top" },
        h("h1", { title: source.page.title }, source.page.title),
        this.standing,
        selectionBar(),
        shareMenu(source, () => this.articles.map(({ result }) => result)),
        themeSwitch(),
        h("button", { type: "button", class: "help", "aria-label": "Keyboard shortcuts and glossary", click: () => help.showModal() }, "?"),
      ),
      this.nav,
      this.main,
      help,
    );
    watchTerms();
    for (const [name, why] of source.page.missing) this.miss(name, why);
    this.near = new IntersectionObserver((entries) => this.draw(entries), { rootMargin: NEAR });
    // Its lower edge is where current() looks, so that it reports every change of that.
    this.seen = new IntersectionObserver(() => this.mark(), { rootMargin: "-60px 0px -75% 0px" });
    listenToKeys({ help, jump: (by) => this.jump(by), current: () => this.current().element });
    onSelection((now, before) => now.view !== before.view && this.land());
    root.addEventListener("click", (event) => this.follow(event));
    addEventListener("beforeprint", () => {
      this.articles.forEach((article) => article.draw());
      // What is new waits for a frame, and a page that goes to a printer has none; a change of theme draws at once.
      themeChanged();
    });
  }

  /** A section whose result comes later: it has its place, its link, and a line that says how far it is. */
  expect(name: string, title: string): void {
    this.place(
      h("article", { id: name, class: "expected", "aria-busy": "true" }, h("h2", { tabindex: -1 }, ...label(title)), h("p", { class: "queued" }, "Queued")),
      h("li", {}, h("a", { href: `#${name}` }, title)),
      name,
    );
  }

  /** Say how far a section is. One that already has a result says it below its verdict. */
  work(name: string, working: string): void {
    const section = this.section(name);
    const line = section?.querySelector(":scope > .working");
    if (line) line.textContent = working;
    else {
      section?.querySelector(":scope > :is(.verdict, .queued)")?.after(h("p", { class: "working" }, working));
      section?.querySelector(":scope > .queued")?.remove();
    }
  }

  /** Nothing more will come: a section without a result goes. */
  rest(name: string): void {
    const section = this.section(name);
    section?.querySelector(":scope > .working")?.remove();
    if (!section?.matches(".expected")) return;
    section.remove();
    if (this.held === name) this.letGo();
    this.places.get(name)?.remove();
    this.places.delete(name);
  }

  /** Results stand where they were expected, others in the order in which they are added. */
  add(result: Result): void {
    this.forget(result.name);
    const article = new Article(result, this.context);
    const bare = result.blocks.length ? {} : { class: "bare", title: "No charts or tables; the text says why." };
    const link = h("li", {}, h("a", { href: `#${result.name}`, ...bare }, result.title));
    this.articles.push(article);
    this.place(article.element, link, result.name);
    this.articles.sort((one, other) => (one.element.compareDocumentPosition(other.element) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1));
    this.note();
    if (result.name === this.context.source.page.standing) {
      this.standing.replaceChildren(result.verdict);
      this.standing.setAttribute("href", `#${result.name}`);
    }
    this.near.observe(article.element);
    this.seen.observe(article.element);
    if (this.held === result.name) this.land();
  }

  private section(name: string): Element | null {
    return [...this.main.children].find(({ id }) => id === name) ?? null;
  }

  /** Put a section and its link where those of this name are, else at the end. */
  private place(element: HTMLElement, link: HTMLElement, name: string): void {
    const before = this.section(name);
    if (before) before.replaceWith(element);
    else this.main.insertBefore(element, this.main.querySelector(".missing"));
    const old = this.places.get(name);
    if (old) old.replaceWith(link);
    else this.links.insertBefore(link, this.links.querySelector(".last"));
    this.places.set(name, link);
  }

  /** Each note once, where it is first on the page: many results share those about clocks and steps. */
  private note(): void {
    const said = new Set<string>();
    for (const article of this.articles) article.note(said);
  }

  /** An earlier result of this name, which a fuller one replaces. */
  private forget(name: string): void {
    const place = this.articles.findIndex((article) => article.name === name);
    const [old] = place < 0 ? [] : this.articles.splice(place, 1);
    if (!old) return;
    this.near.unobserve(old.element);
    this.seen.unobserve(old.element);
  }

  /** What could not be answered is said at the end. */
  miss(name: string, why: string): void {
    let list = this.main.querySelector(".missing ul");
    if (!list) {
      list = h("ul");
      const title = "Not available";
      this.main.append(h("article", { class: "missing", id: "missing" }, h("h2", {}, title), list));
      this.links.append(h("li", { class: "last" }, h("a", { href: "#missing" }, title)));
    }
    list.append(h("li", {}, h("b", {}, ...label(name)), `: ${why}`));
  }

  /** Call it again when more results have come: who was brought to one by the address is not moved any more. */
  ready(): void {
    if (this.landed !== selected().view) this.land();
    document.documentElement.dataset["ready"] = "yes";
    this.drawRest(0);
  }

  private draw(entries: IntersectionObserverEntry[]): void {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) this.articles.find((article) => article.element === target)?.draw();
    }
  }

  /** What is far away is drawn when there is nothing else to do, so that the browser's own search finds it. */
  private drawRest(next: number): void {
    const article = this.articles[next];
    if (!article) return;
    const later = window.requestIdleCallback ?? ((work: () => void) => setTimeout(work, 50));
    const draw = (): void => {
      article.draw();
      this.drawRest(next + 1);
    };
    // A browser may find no idle moment for very long.
    later(draw, { timeout: LONGEST_WAIT_MS });
  }

  /** A link to a result changes the view; the rest of the selection stays. */
  private follow(event: MouseEvent): void {
    const href = (event.target as Element).closest("a")?.getAttribute("href");
    if (!href?.startsWith("#") || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (href === "#results") this.main.focus();
    else this.goTo(href.slice(1));
  }

  private goTo(view: string, quietly = false): void {
    if (view === selected().view) this.land();
    else select({ view }, quietly);
  }

  /** To the section that the selection names, also where its result is still to come. */
  private land(): void {
    const { view } = selected();
    const target = this.section(view);
    this.letGo();
    if (!target) return;
    this.landed = view;
    // What is above must have its height.
    const isBelow = (one: Element): boolean => Boolean(target.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING);
    for (const article of this.articles) if (!isBelow(article.element)) article.draw();
    target.scrollIntoView();
    this.hold(view);
    target.querySelector<HTMLElement>(":scope > h2")?.focus({ preventScroll: true });
    this.mark();
  }

  /** Charts above get their height a few frames later, and results later still: what was landed on stays in sight until it
   * has its result, or somebody moves. */
  private hold(name: string): void {
    const stopped = new AbortController();
    const began = performance.now();
    const place = (): [number, number] => [this.main.offsetHeight, scrollY];
    let [height, top] = place();
    const watch = new ResizeObserver(() => {
      this.section(name)?.scrollIntoView();
      [height, top] = place();
    });
    watch.observe(this.main);
    this.held = name;
    this.letGo = (): void => {
      watch.disconnect();
      stopped.abort();
      this.held = "";
    };
    // A scroll bar says nothing but this. At first the browser itself scrolls, to where somebody was before.
    const scrolled = (): void => {
      const isMoved = this.main.offsetHeight === height && Math.abs(scrollY - top) > 1;
      if (isMoved && performance.now() - began > SETTLED_MS) this.letGo();
    };
    const listening = { passive: true, signal: stopped.signal };
    for (const move of ["wheel", "pointerdown", "keydown"]) addEventListener(move, () => this.letGo(), listening);
    addEventListener("scroll", scrolled, listening);
    const isThere = !this.section(name)?.matches(".expected");
    if (isThere) setTimeout(() => stopped.signal.aborted || this.letGo(), SETTLED_MS);
  }

  private jump(by: number): void {
    const place = this.articles.indexOf(this.current()) + by;
    const article = this.articles[Math.max(0, Math.min(place, this.articles.length - 1))];
    if (!article) return;
    this.goTo(article.name, true);
  }

  /** The last one that begins above the middle of the upper half. */
  private current(): Article {
    const begun = this.articles.filter(({ element }) => element.getBoundingClientRect().top < innerHeight / 4);
    return begun[begun.length - 1] ?? this.articles[0]!;
  }

  private mark(): void {
    if (!this.articles.length) return;
    const wanted = `#${this.current().name}`;
    for (const link of this.links.querySelectorAll("a")) {
      if (link.getAttribute("href") !== wanted) link.removeAttribute("aria-current");
      else if (!link.hasAttribute("aria-current")) {
        link.setAttribute("aria-current", "true");
        // On a phone the strip scrolls sideways; scrollIntoView would move the page too.
        this.nav.scrollLeft = link.offsetLeft - this.nav.clientWidth / 3;
      }
    }
  }
}

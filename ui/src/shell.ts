// The page around results: header, navigation, and an article for each result, drawn when it comes near the eye.

import type { Context } from "./blocks";
import { Article } from "./article";
import { h } from "./dom";
import { label, learn, watchTerms } from "./glossary";
import { helpDialog } from "./help";
import { listenToKeys } from "./keys";
import type { Source } from "./source";
import { themeSwitch } from "./theme";
import type { Result } from "./types";
import "./shell.css";

const NEAR = "800px";
const SETTLED_MS = 1000;

export class Shell {
  private readonly context: Context;
  private readonly articles: Article[] = [];
  private readonly standing = h("a", { class: "standing", title: "Data quality" });
  private readonly links = h("ul");
  private readonly nav = h("nav", { "aria-label": "Results" }, this.links);
  private readonly main = h("main", { id: "results", tabindex: -1 });
  private landed = "";
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
        themeSwitch(),
        h("button", { type: "button", class: "help", "aria-label": "Keyboard shortcuts and glossary", click: () => help.showModal() }, "?"),
      ),
      h("div", { class: "body" }, this.nav, this.main),
      help,
    );
    watchTerms();
    for (const [name, why] of source.page.missing) this.miss(name, why);
    this.near = new IntersectionObserver((entries) => this.draw(entries), { rootMargin: NEAR });
    this.seen = new IntersectionObserver(() => this.mark(), { rootMargin: "-60px 0px -60% 0px" });
    listenToKeys({ help, jump: (by) => this.jump(by), current: () => this.current().element });
    addEventListener("hashchange", () => this.land());
    addEventListener("beforeprint", () => this.articles.forEach((article) => article.draw()));
  }

  /** Results stand in the order in which they are added. */
  add(result: Result): void {
    const article = new Article(result, this.context);
    this.articles.push(article);
    this.main.insertBefore(article.element, this.main.querySelector(".missing"));
    const bare = result.blocks.length ? {} : { class: "bare", title: "No charts or tables; the text says why." };
    const link = h("li", {}, h("a", { href: `#${result.name}`, ...bare }, result.title));
    this.links.insertBefore(link, this.links.querySelector(".last"));
    if (result.name === this.context.source.page.standing) {
      this.standing.replaceChildren(result.verdict);
      this.standing.setAttribute("href", `#${result.name}`);
    }
    this.near.observe(article.element);
    this.seen.observe(article.element);
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
    if (this.landed !== location.hash) this.land();
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
    later(() => {
      article.draw();
      this.drawRest(next + 1);
    });
  }

  /** To what the address names, where that is a result or what is missing. */
  private land(): void {
    const last = this.articles.findIndex(({ name }) => `#${name}` === location.hash);
    const article = this.articles[last];
    const target = article?.element ?? (location.hash === "#missing" ? this.main.querySelector(".missing") : null);
    if (!target) return;
    this.landed = location.hash;
    // What is above must have its height.
    for (const one of article ? this.articles.slice(0, last + 1) : this.articles) one.draw();
    target.scrollIntoView();
    this.stay(target);
    article?.heading.focus({ preventScroll: true });
    this.mark();
  }

  /** Charts above get their height a few frames later: what was landed on stays in sight, until somebody moves. */
  private stay(target: Element): void {
    const watch = new ResizeObserver(() => target.scrollIntoView());
    watch.observe(this.main);
    const leave = (): void => watch.disconnect();
    for (const move of ["wheel", "pointerdown", "keydown"]) addEventListener(move, leave, { once: true, passive: true });
    setTimeout(leave, SETTLED_MS);
  }

  private jump(by: number): void {
    const place = this.articles.indexOf(this.current()) + by;
    const article = this.articles[Math.max(0, Math.min(place, this.articles.length - 1))];
    if (!article) return;
    if (location.hash === `#${article.name}`) this.land();
    else location.replace(`#${article.name}`);
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

// Light, dark, or what the system says: a switch in the header, kept for the next page where the browser allows it.

import { themeChanged } from "./colours";
import { h } from "./dom";

const THEMES = ["auto", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];
const KEY = "lostflops.theme";

export function themeSwitch(): Element {
  const choice = h("select", { "aria-label": "Theme", class: "theme", change: () => set(picked()) }) as HTMLSelectElement;
  const picked = (): Theme => choice.value as Theme;
  choice.append(...THEMES.map((theme) => h("option", { value: theme }, theme)));
  choice.value = kept();
  set(picked());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);
  // Paper is light, and what canvases hold must be drawn for it.
  addEventListener("beforeprint", () => wear("light"));
  addEventListener("afterprint", () => wear(picked()));
  return choice;
}

function wear(theme: Theme): void {
  document.documentElement.dataset["theme"] = theme;
  themeChanged();
}

function set(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // Some browsers keep nothing for files: the choice then holds for this page.
  }
  wear(theme);
}

function kept(): Theme {
  try {
    return THEMES.find((theme) => theme === localStorage.getItem(KEY)) ?? "auto";
  } catch {
    return "auto";
  }
}

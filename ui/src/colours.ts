// The colour of a kind, the same in every view. Kinds are lines of the ledger, or anything else a block names.
//
// SVG and CSS take `var(--wait)` and follow the theme by themselves. A canvas takes colourOf("comm.wait") or
// resolved("--muted"), and draws again when told to: onTheme(redraw) calls back after every change of theme.

const LINES: Record<string, string> = {
  compute: "--compute",
  "comm.transfer": "--transfer",
  "comm.wait": "--wait",
  "comm.bubble": "--bubble",
  copy: "--copy",
  "idle.data": "--data",
  "idle.sync": "--idle-sync",
  "idle.alloc": "--idle-alloc",
  "idle.compile": "--idle-compile",
  "idle.python": "--idle-python",
  "idle.dependency": "--idle-dependency",
  "idle.bubble": "--idle-bubble",
  unexplained: "--unexplained",
};
// Owners of memory stand side by side: no two may share a colour.
const OWNERS: Record<string, string> = {
  parameters: "#009e73",
  gradients: "#cc79a7",
  optimizer_state: "#0072b2",
  buffers: "#882255",
  activations: "#d55e00",
  temporaries: "#e69f00",
  communication: "#56b4e9",
  batches: "#f0e442",
  unattributed: "#7f7f7f",
};
const OTHERS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7f7f"];
const CHANGED = "lostflops-theme";

const known = new Map<string, string>();

/** A colour as `rgb(...)` or `#...`, for canvases too. */
export function colourOf(kind: string): string {
  const variable = variableOf(kind);
  return variable ? resolved(variable) : other(kind);
}

/** The same for attributes of SVG and for CSS: it follows the theme without being drawn again. */
export function paintOf(kind: string): string {
  const variable = variableOf(kind);
  return variable ? `var(${variable})` : other(kind);
}

/** What a variable of style.css is in the present theme; getPropertyValue would give `light-dark(...)` unresolved. */
export function resolved(variable: string): string {
  let found = known.get(variable);
  if (found === undefined) {
    const probe = document.createElement("i");
    probe.style.setProperty("color", `var(${variable})`);
    document.documentElement.append(probe);
    found = getComputedStyle(probe).color;
    probe.remove();
    known.set(variable, found);
  }
  return found;
}

/** Calls back after the theme has changed, by the switch of the page or by the system. */
export function onTheme(redraw: () => void): void {
  document.addEventListener(CHANGED, redraw);
}

export function themeChanged(): void {
  known.clear();
  document.dispatchEvent(new Event(CHANGED));
}

function other(kind: string): string {
  return (Object.hasOwn(OWNERS, kind) ? OWNERS[kind] : OTHERS[hash(kind) % OTHERS.length]) as string;
}

function variableOf(kind: string): string | undefined {
  return Object.hasOwn(LINES, kind) ? LINES[kind] : kind.startsWith("idle.") ? "--idle" : undefined;
}

function hash(text: string): number {
  let found = 0;
  for (let place = 0; place < text.length; place++) found = (found * 31 + text.charCodeAt(place)) >>> 0;
  return found;
}

// The colour of a kind, the same in every view. A kind is a line of the ledger, an owner of memory, a phase of training, or
// anything else a block names. style.css holds the colours, as one palette for each of these domains.
//
// Waits are hatched: they have a colour of stripes and one between them (hatching.ts). SVG takes paintOf(kind) and CSS
// backgroundOf(kind): both follow the theme by themselves. A canvas takes colourOf(kind) or resolved("--muted"), and draws
// again when told to: onTheme(redraw) calls back after every change of theme.

import { colourAt } from "./palette";

const TIME: Record<string, string> = {
  compute: "--compute",
  "comm.transfer": "--transfer",
  "comm.wait": "--wait",
  "comm.bubble": "--bubble",
  copy: "--copy",
  "idle.data": "--idle-data",
  "idle.sync": "--idle-sync",
  "idle.alloc": "--idle-alloc",
  "idle.compile": "--idle-compile",
  "idle.host": "--idle-host",
  "idle.python": "--idle-python",
  "idle.dependency": "--idle-dependency",
  "idle.bubble": "--bubble",
  unexplained: "--unexplained",
  // The same work of a host on a critical path, where no device need be idle.
  "host.data": "--idle-data",
  "host.sync": "--idle-sync",
  "host.alloc": "--idle-alloc",
  "host.compile": "--idle-compile",
  "host.dispatch": "--idle-host",
  "host.python": "--idle-python",
};
const MEMORY: Record<string, string> = {
  parameters: "--memory-parameters",
  gradients: "--memory-gradients",
  optimizer_state: "--memory-optimizer-state",
  buffers: "--memory-buffers",
  activations: "--memory-activations",
  temporaries: "--memory-temporaries",
  communication: "--memory-communication",
  batches: "--memory-batches",
  unattributed: "--memory-unattributed",
};
const PHASES: Record<string, string> = {
  forward: "--phase-forward",
  backward: "--phase-backward",
  optimizer: "--phase-optimizer",
  data: "--idle-data",
  other: "--idle",
  outside: "--idle",
};
const VARIABLES: Record<string, string> = { ...TIME, ...MEMORY, ...PHASES };
/** Variables of waits: somebody else, or the queue, is waited for. */
export const HATCHED = new Set(["--wait", "--bubble", "--idle-dependency"]);
const CHANGED = "lostflops-theme";

const known = new Map<string, string>();

/** A colour as `rgb(...)`, for canvases too; for a wait that of its stripes. */
export function colourOf(kind: string): string {
  return resolved(variableOf(kind));
}

/** What SVG fills and strokes with; a picture that is taken out of the page and has no patterns shows a wait in one colour. */
export function paintOf(kind: string): string {
  const variable = variableOf(kind);
  return HATCHED.has(variable) ? `url(#hatch${variable}) var(${variable})` : `var(${variable})`;
}

/** What CSS takes as a background. */
export function backgroundOf(kind: string): string {
  const variable = variableOf(kind);
  return HATCHED.has(variable) ? `var(--hatch${variable})` : `var(${variable})`;
}

/** The variable of style.css with the colour of a kind. */
export function variableOf(kind: string): string {
  if (Object.hasOwn(VARIABLES, kind)) return VARIABLES[kind]!;
  return kind === "idle" || kind.startsWith("idle.") ? "--idle" : colourAt(hash(kind));
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

function hash(text: string): number {
  let found = 0;
  for (let place = 0; place < text.length; place++) found = (found * 31 + text.charCodeAt(place)) >>> 0;
  return found;
}

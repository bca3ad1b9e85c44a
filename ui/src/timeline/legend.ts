// What colours mean: each kind that occurs is a button that hides and shows it.

import { h } from "../dom";
import { backgroundOfKind } from "./palette";
import type { State } from "./state";

const EVENT_KINDS: Record<string, string> = {
  kernel: "compute kernel on the device",
  comm: "communication kernel; the part before the last rank arrives has the colour of comm.wait",
  host_comm: "collective on a host thread; the part before the last rank arrives has the colour of comm.wait",
  memcpy: "copy to, from or on the device",
  memset: "memset on the device",
  op: "framework op on a host thread",
  runtime: "device runtime call on a host thread",
  annotation: "program annotation",
  device_annotation: "program annotation, shown while its work runs on the device",
  module: "module call",
  python: "Python function",
  overhead: "profiler overhead",
  sync: "the device waits for an event on another stream",
  forward: "forward pass",
  backward: "backward pass",
};

export function meaning(kind: string, glossary: Record<string, string>): string {
  if (Object.hasOwn(glossary, kind)) return glossary[kind]!;
  return Object.hasOwn(EVENT_KINDS, kind) ? EVENT_KINDS[kind]! : "";
}

export function legend(state: State, glossary: Record<string, string>, redraw: () => void): Element {
  const button = (kind: string): Element => {
    const key = h("span", { class: "key", "aria-hidden": "true" });
    key.style.setProperty("background", backgroundOfKind(kind));
    const toggle = (): void => {
      const hide = !state.hidden.has(kind);
      if (hide) state.hidden.add(kind);
      else state.hidden.delete(kind);
      made.setAttribute("aria-pressed", String(!hide));
      redraw();
    };
    const title = [meaning(kind, glossary), "Click to hide or show it"].filter(Boolean).join(". ");
    const made = h("button", { type: "button", "aria-pressed": String(!state.hidden.has(kind)), title, click: toggle }, key, kind);
    return made;
  };
  const row = (label: string, names: string[]): Element | null =>
    names.length ? h("div", { class: "legend", role: "group", "aria-label": label }, label, ...names.map(button)) : null;
  return h("div", {}, row("Rows", linesOf(state)), row(state.model.strips ? "Events" : "Kinds", eventKindsOf(state)));
}

/** Lines that take any bin. */
function linesOf({ model }: State): string[] {
  const seen = new Uint8Array(model.kinds.length + 1);
  if (model.strips) for (const code of model.strips.codes) seen[code] = 1;
  return model.kinds.filter((_, place) => seen[place + 1]);
}

/** Kinds of events that there are. */
export function eventKindsOf({ model }: State): string[] {
  const stores = new Set(model.groups.flatMap((group) => group.lanes.map((lane) => lane.items)));
  return [...new Set([...stores].flatMap((items) => items.kinds))];
}

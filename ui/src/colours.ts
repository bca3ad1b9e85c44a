// The colour of a kind, the same in every view. Kinds are lines of the ledger, or anything else a block names.

const LINES: Record<string, string> = {
  compute: "--compute",
  "comm.transfer": "--transfer",
  "comm.wait": "--wait",
  "comm.bubble": "--bubble",
  copy: "--copy",
  "idle.data": "--data",
  unexplained: "--unexplained",
};
const OTHERS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7f7f"];

/** A CSS colour, resolved for canvases too. */
export function colourOf(kind: string): string {
  const variable = LINES[kind] ?? (kind.startsWith("idle.") ? "--idle" : undefined);
  if (variable) return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
  return OTHERS[hash(kind) % OTHERS.length] as string;
}

function hash(text: string): number {
  let found = 0;
  for (let place = 0; place < text.length; place++) found = (found * 31 + text.charCodeAt(place)) >>> 0;
  return found;
}

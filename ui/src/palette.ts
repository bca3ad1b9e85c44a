// Colours for things that have none of their own, by their place in a list: Okabe and Ito's, told apart by all kinds
// of sight. Past the last they repeat, so shapes and dashes differ too.

const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8f98", "#b8a800"];

export function colourAt(place: number): string {
  return COLOURS[place % COLOURS.length] as string;
}

/** Black or white, whichever reads better on a colour given as `#rrggbb` or `rgb(r, g, b)`. */
export function inkOn(colour: string): string {
  const [red, green, blue] = channels(colour);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000000" : "#ffffff";
}

export function channels(colour: string): [number, number, number] {
  const hex = /^#(..)(..)(..)$/.exec(colour);
  const parts = hex ? hex.slice(1).map((part) => parseInt(part, 16)) : (colour.match(/[\d.]+/g) ?? []).map(Number);
  return [parts[0] ?? 0, parts[1] ?? 0, parts[2] ?? 0];
}

// Colours for things that have none of their own, by their place in a list: Okabe and Ito's, told apart by all kinds
// of sight. Past the last they repeat, so shapes and dashes differ too.

const COUNT = 8;

/** The variable of chart.css with a thing's colour. */
export function colourAt(place: number): string {
  return `--series-${place % COUNT}`;
}

export function paintAt(place: number): string {
  return `var(${colourAt(place)})`;
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

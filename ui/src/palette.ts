// Colours for things that have none of their own, by their place in a list, distinct for all kinds of sight. Past the
// last they repeat, so shapes and dashes differ too.

const COUNT = 8;

/** The variable of chart.css with a thing's colour. */
export function colourAt(place: number): string {
  return `--series-${place % COUNT}`;
}

export function paintAt(place: number): string {
  return `var(${colourAt(place)})`;
}

/** Black or white, whichever has more contrast (WCAG 2.2) on the worst of colours given as `#rrggbb` or `rgb(r, g, b)`. */
export function inkOn(...colours: string[]): string {
  const lights = colours.map(lightOf);
  return Math.min(...lights) / 0.05 > 1.05 / Math.max(...lights) ? "#000000" : "#ffffff";
}

function lightOf(colour: string): number {
  const [red, green, blue] = channels(colour).map(linear) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
}

function linear(channel: number): number {
  const share = channel / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
}

export function channels(colour: string): [number, number, number] {
  const hex = /^#(..)(..)(..)$/.exec(colour);
  const parts = hex ? hex.slice(1).map((part) => parseInt(part, 16)) : (colour.match(/[\d.]+/g) ?? []).map(Number);
  return [parts[0] ?? 0, parts[1] ?? 0, parts[2] ?? 0];
}

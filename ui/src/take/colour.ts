// Colours as every program knows them: `#rrggbb` and an opacity, whatever CSS calls them.

const known = new Map<string, [string, number]>();
let pen: CanvasRenderingContext2D | null = null;

/** What a browser paints for a colour of CSS. */
export function plainColour(css: string): [string, number] {
  let found = known.get(css);
  if (!found) known.set(css, (found = paintPixel(css)));
  return found;
}

function paintPixel(css: string): [string, number] {
  pen ??= document.createElement("canvas").getContext("2d", { willReadFrequently: true })!;
  pen.clearRect(0, 0, 1, 1);
  pen.fillStyle = css;
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data as unknown as [number, number, number, number];
  const digits = [red, green, blue].map((part) => part.toString(16).padStart(2, "0")).join("");
  return [`#${digits}`, alpha / 255];
}

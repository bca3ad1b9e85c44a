// Text as long as there is room for it, measured in the font that it is drawn in.

const FEWEST = 6; // Letters: less of a name tells nothing.
const NARROWEST = 3; // Pixels of a letter: names can be far longer than any room.

const pen = document.createElement("canvas").getContext("2d")!;

export type Cut = (text: string, letters: number) => string;

export const beginning: Cut = (text, letters) => `${text.slice(0, letters - 1)}…`;
/** The end tells more of modules and source lines than what they begin with. */
export const ending: Cut = (text, letters) => `…${text.slice(text.length - letters + 1)}`;
const never: Cut = () => "";

export function widthOf(text: string, font: string): number {
  pen.font = font;
  return pen.measureText(text).width;
}

/** The text, as much of it as fits into `room` pixels, or nothing. `font` is that of CSS. */
export function fitting(text: string, room: number, font: string, cut: Cut = never): string {
  const most = Math.floor(room / NARROWEST);
  if (text.length <= most && widthOf(text, font) <= room) return text;
  for (let letters = Math.min(text.length - 1, most); letters >= FEWEST; letters--) {
    const shorter = cut(text, letters);
    if (widthOf(shorter, font) <= room) return shorter;
  }
  return "";
}

// A part of the page as one SVG that needs nothing else: its boxes, texts and drawings where they are, canvases as images.

import { s } from "../dom";
import { plainColour } from "./colour";
import { copySvg, copyDefinitions } from "./copy-svg";

const MARGIN = 12;
/** Of a part of the page while it is copied: take.css takes away what is there to be used and not to be looked at. */
const TAKING = "taking";
const GRADIENT = /(?:rgba?|color|oklab|oklch)\([^)]*\)/;
const WORD = /\S+/g;
const SCALE = 2;
const MOST_PIXELS = 64_000_000;

interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** Nothing is painted in between, so that nobody sees what is taken away for it. */
export function pictureOf(root: Element): SVGElement {
  const [left, top] = [scrollX, scrollY];
  root.classList.add(TAKING);
  try {
    return new Picture(root).draw();
  } finally {
    root.classList.remove(TAKING);
    // A page that was shorter for a moment may have moved.
    if (root.getBoundingClientRect().height && (scrollX !== left || scrollY !== top)) scrollTo({ left, top, behavior: "instant" });
  }
}

export function formatSvg(picture: SVGElement): string {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(picture)}\n`;
}

/** The picture in pixels, twice as many as CSS has unless that is more than browsers paint. */
export async function paintPng(picture: SVGElement): Promise<Blob> {
  const [width, height] = ["width", "height"].map((name) => Number(picture.getAttribute(name))) as [number, number];
  const scale = Math.min(SCALE, Math.sqrt(MOST_PIXELS / (width * height)));
  const url = URL.createObjectURL(new Blob([formatSvg(picture)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
    canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => {
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The browser could not make a PNG."))), "image/png");
    });
  } finally {
    URL.revokeObjectURL(url);
  }
}

class Picture {
  private readonly origin: DOMRect;
  private readonly ids = new Set<string>();
  /** How far it reaches to the right and down. */
  private reach: [number, number] = [0, 0];
  private readonly pen = document.createElement("canvas").getContext("2d")!;

  constructor(private readonly root: Element) {
    this.origin = root.getBoundingClientRect();
  }

  draw(): SVGElement {
    const [page] = plainColour(getComputedStyle(document.documentElement).backgroundColor);
    const parts = this.copyElement(this.root, { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity });
    const [width, height] = this.reach.map((size) => Math.ceil(size) + MARGIN) as [number, number];
    return s(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}` },
      s("rect", { width, height, fill: page }),
      copyDefinitions(this.ids),
      ...parts,
    );
  }

  private copyElement(element: Element, clip: Box): SVGElement[] {
    if (!isSeen(element)) return [];
    const box = element.getBoundingClientRect();
    if (!touches(box, clip) && box.width) return [];
    if (element instanceof SVGElement) return [copySvg(element, this.place(box), this.ids)];
    if (element instanceof HTMLCanvasElement) return this.copyCanvas(element, box);
    const style = getComputedStyle(element);
    const inside = style.overflow === "visible" ? clip : intersect(box, clip);
    const parts = [
      ...this.drawBox(style, box),
      ...[...element.childNodes].flatMap((child) => {
        if (child instanceof Element) return this.copyElement(child, inside);
        return child instanceof Text ? this.drawText(child, style, inside) : [];
      }),
    ];
    return style.opacity === "1" || !parts.length ? parts : [s("g", { opacity: style.opacity }, ...parts)];
  }

  private place(box: DOMRect): { x: number; y: number; width: number; height: number } {
    this.extend(box);
    return { x: this.x(box.left), y: this.y(box.top), width: round(box.width), height: round(box.height) };
  }

  private extend({ right, bottom }: Box): void {
    this.reach = [Math.max(this.reach[0], this.x(right)), Math.max(this.reach[1], this.y(bottom))];
  }

  private x(left: number): number {
    return round(left - this.origin.left + MARGIN);
  }

  private y(top: number): number {
    return round(top - this.origin.top + MARGIN);
  }

  private copyCanvas(canvas: HTMLCanvasElement, box: DOMRect): SVGElement[] {
    if (!canvas.width || !canvas.height || !box.width) return [];
    return [s("image", { ...this.place(box), href: canvas.toDataURL("image/png"), preserveAspectRatio: "none" })];
  }

  /** Its ground and its edges. */
  private drawBox(style: CSSStyleDeclaration, box: DOMRect): SVGElement[] {
    if (!box.width || !box.height) return [];
    const ground = groundOf(style);
    const drawn = ground ? [s("rect", { ...this.place(box), rx: parseFloat(style.borderTopLeftRadius) || 0, ...ground })] : [];
    return [...drawn, ...this.drawEdges(style, box)];
  }

  private drawEdges(style: CSSStyleDeclaration, { left, top, right, bottom }: DOMRect): SVGElement[] {
    const sides: [string, number, number, number, number][] = [
      ["top", left, top, right, top],
      ["right", right, top, right, bottom],
      ["bottom", left, bottom, right, bottom],
      ["left", left, top, left, bottom],
    ];
    return sides.flatMap(([side, x1, y1, x2, y2]) => {
      const of = (name: string): string => style.getPropertyValue(`border-${side}-${name}`);
      const [[stroke, opacity], width] = [plainColour(of("color")), parseFloat(of("width"))];
      if (of("style") === "none" || !width || !opacity) return [];
      this.extend({ left: x1, top: y1, right: x2, bottom: y2 });
      const ends = { x1: this.x(x1), y1: this.y(y1), x2: this.x(x2), y2: this.y(y2) };
      return [s("line", { ...ends, stroke, "stroke-opacity": opacity, "stroke-width": width })];
    });
  }

  private drawText(node: Text, style: CSSStyleDeclaration, clip: Box): SVGElement[] {
    const words = node.data.trim() ? linesOf(node) : [];
    const [fill, opacity] = plainColour(style.color);
    const isRight = style.textAlign === "right" || style.textAlign === "end";
    this.pen.font = style.font;
    const { fontBoundingBoxAscent: ascent, fontBoundingBoxDescent: descent } = this.pen.measureText("x");
    return words.filter(({ box }) => touches(box, clip)).map(({ text, box }) => {
      this.extend(box);
      const y = (box.top + box.bottom + ascent - descent) / 2;
      const where = isRight ? { x: this.x(box.right), "text-anchor": "end" } : { x: this.x(box.left) };
      const struck = style.textDecorationLine.includes("line-through") ? { "text-decoration": "line-through" } : {};
      const font = { "font-family": style.fontFamily, "font-size": style.fontSize, "font-weight": style.fontWeight };
      const shown = style.textTransform === "uppercase" ? text.toUpperCase() : text;
      return s("text", { ...where, y: this.y(y), fill, "fill-opacity": opacity, ...font, ...struck }, shown);
    });
  }
}

function isSeen(element: Element): boolean {
  // What lies in `display: contents` has boxes; the element itself has none.
  return getComputedStyle(element).display === "contents" || element.checkVisibility({ visibilityProperty: true });
}

function groundOf(style: CSSStyleDeclaration): Record<string, string | number> | null {
  const [fill, opacity] = plainColour(style.backgroundColor);
  if (opacity) return { fill, "fill-opacity": opacity };
  // A hatched key keeps at least its colour.
  const hatched = GRADIENT.exec(style.backgroundImage)?.[0];
  return hatched ? { fill: plainColour(hatched)[0] } : null;
}

/** The text as the browser broke it into lines, each with its box. */
function linesOf(node: Text): { text: string; box: Box }[] {
  const range = document.createRange();
  const lines: { first: number; last: number; box: Box }[] = [];
  for (const piece of piecesOf(node, range)) {
    const line = lines[lines.length - 1];
    if (line && Math.abs(line.box.top - piece.box.top) < 2 && piece.box.left >= line.box.left) {
      line.last = piece.last;
      line.box = { ...line.box, right: piece.box.right };
    } else lines.push(piece);
  }
  return lines.map(({ first, last, box }) => ({ text: node.data.slice(first, last).replace(/\s+/g, " "), box }));
}

/** Words, and the characters of those that are broken. */
function* piecesOf(node: Text, range: Range): Generator<{ first: number; last: number; box: Box }> {
  for (const { 0: word, index } of node.data.matchAll(WORD)) {
    const whole = boxesOf(node, range, index, index + word.length);
    if (whole.length === 1) yield { first: index, last: index + word.length, box: whole[0]! };
    else
      for (let at = index; at < index + word.length; at++) {
        const [box] = boxesOf(node, range, at, at + 1);
        if (box) yield { first: at, last: at + 1, box };
      }
  }
}

function boxesOf(node: Text, range: Range, first: number, last: number): Box[] {
  range.setStart(node, first);
  range.setEnd(node, last);
  return [...range.getClientRects()].filter(({ width }) => width > 0).map(({ left, top, right, bottom }) => ({ left, top, right, bottom }));
}

function touches(box: Box, clip: Box): boolean {
  return box.left < clip.right && box.right > clip.left && box.top < clip.bottom && box.bottom > clip.top;
}

function intersect(box: Box, clip: Box): Box {
  return {
    left: Math.max(box.left, clip.left),
    top: Math.max(box.top, clip.top),
    right: Math.min(box.right, clip.right),
    bottom: Math.min(box.bottom, clip.bottom),
  };
}

function round(pixels: number): number {
  return Math.round(pixels * 100) / 100;
}

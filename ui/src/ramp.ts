// A ramp of colours from little to much, and what stands for no value. The ramp is cividis (Nunez, Anderton and Renslow,
// 2018): its lightness rises evenly, and people with any colour vision see the same.

import { scaleLinear } from "d3-scale";
import { resolved } from "./colours";
import { channels } from "./palette";

const STOPS = [
  "#00204d", "#00336f", "#39486b", "#575c6d", "#707173", "#8a8779", "#a69d75", "#c4b56c", "#e4cf5b", "#ffea46",
].map(channels);
const SHADES = 256;

const shade = scaleLinear<number[]>()
  .domain(STOPS.map((_, place) => place / (STOPS.length - 1)))
  .range(STOPS);

/** Red, green and blue of all shades, so that painting a cell is a look-up. */
const TABLE = Uint8Array.from({ length: 3 * SHADES }, (_, place) =>
  Math.round(shade(Math.floor(place / 3) / (SHADES - 1))[place % 3] as number),
);

/** Sets a pixel of an image to the colour of a share of the scale, from 0 to 1. */
export function shadeInto(pixels: Uint8ClampedArray, at: number, share: number): void {
  const place = placeOf(share);
  pixels[at] = TABLE[place] as number;
  pixels[at + 1] = TABLE[place + 1] as number;
  pixels[at + 2] = TABLE[place + 2] as number;
  pixels[at + 3] = 255;
}

export function shadeText(share: number): string {
  const place = placeOf(share);
  return `rgb(${TABLE.slice(place, place + 3).join(", ")})`;
}

function placeOf(share: number): number {
  return 3 * Math.round(Math.max(0, Math.min(1, share)) * (SHADES - 1));
}

/** Fills a rectangle with hatching, which no value of the ramp looks like. */
export function hatch(pen: CanvasRenderingContext2D, x: number, y: number, width: number, height: number): void {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.fillStyle = resolved("--card");
  pen.fillRect(x, y, width, height);
  pen.strokeStyle = resolved("--muted");
  pen.globalAlpha = 0.55;
  pen.beginPath();
  for (let from = Math.floor((x - height) / 5) * 5; from < x + width; from += 5) {
    pen.moveTo(from, y + height);
    pen.lineTo(from + height, y);
  }
  pen.stroke();
  pen.restore();
}

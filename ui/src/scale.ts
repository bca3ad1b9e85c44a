// What the colours of a heat map mean: the ramp with its values, and how many cells have none.

import { between, ticks } from "./axes";
import { resolved } from "./colours";
import { h } from "./dom";
import { Surface } from "./fitted";
import { hatch, shadeText } from "./ramp";
import { formatValue } from "./units";
import type { Cells } from "./heat-cells";
import type { Unit } from "./types";

const WIDTH = 240;
const BESIDE = 30;

export function scale(unit: Unit, cells: Cells): Element {
  const ends = `from ${formatValue(cells.low, unit)} to ${formatValue(cells.high, unit)}`;
  const unknown = cells.unknown ? h("span", {}, noValue(), ` no value (${cells.unknown.toLocaleString("en-US")})`) : null;
  return h("div", { class: "scale" }, ramp(unit, cells, ends), h("span", {}, ends), unknown);
}

function ramp(unit: Unit, cells: Cells, ends: string): Element {
  const axis = between(unit, "", cells.low, cells.high);
  const bar = new Surface(() => paint());
  const paint = (): void => {
    const { pen } = bar;
    bar.resize(WIDTH + 2 * BESIDE, 34);
    for (let x = 0; x < WIDTH; x++) {
      pen.fillStyle = shadeText(x / (WIDTH - 1));
      pen.fillRect(BESIDE + x, 0, 1, 12);
    }
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.fillStyle = resolved("--muted");
    for (const { value, label } of ticks(axis, 4)) pen.fillText(label, BESIDE + axis.place(value) * WIDTH, 28);
  };
  paint();
  bar.element.removeAttribute("tabindex");
  bar.element.setAttribute("role", "img");
  bar.element.setAttribute("aria-label", `Colours ${ends}`);
  return bar.element;
}

function noValue(): Element {
  const swatch = new Surface(() => paint());
  const paint = (): void => {
    swatch.resize(22, 12);
    hatch(swatch.pen, 0, 0, 22, 12);
  };
  paint();
  swatch.element.removeAttribute("tabindex");
  swatch.element.setAttribute("aria-hidden", "true");
  return swatch.element;
}

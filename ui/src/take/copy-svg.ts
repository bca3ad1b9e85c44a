// A copy of SVG that looks the same outside of the page: what style sheets give is written to attributes.

import { s } from "../dom";
import type { Attributes } from "../dom";
import { plainColour } from "./colour";

const LEFT_OUT = "title, desc, foreignObject, script, style";
const CONTAINERS = "g, svg, defs, pattern, clipPath, mask, linearGradient, radialGradient";
const NOT_GEOMETRY = /^(class|style|tabindex|role|focusable|fill|stroke|opacity|aria-.*|data-.*|on.*)$/;
const WRITTEN = /^text$|^tspan$/;
const PAINTS = ["fill", "stroke"];
/** Of shapes, with the values that need not be written. */
const LOOKS: [string, string][] = [
  ["opacity", "1"],
  ["fill-opacity", "1"],
  ["stroke-opacity", "1"],
  ["stroke-width", "1px"],
  ["stroke-dasharray", "none"],
  ["stroke-linecap", "butt"],
  ["stroke-linejoin", "miter"],
  ["paint-order", "normal"],
  ["clip-path", "none"],
];
const FONTS: [string, string][] = [
  ["font-family", ""],
  ["font-size", ""],
  ["font-weight", "400"],
  ["font-style", "normal"],
  ["text-anchor", "start"],
  ["dominant-baseline", "auto"],
];
const REFERENCE = /url\("?#([^")]+)"?\)/;

/** Copies a drawing to a place; `ids` collects what its paints refer to. */
export function copySvg(drawing: SVGElement, place: { x: number; y: number; width: number; height: number }, ids: Set<string>): SVGElement {
  const { overflow, opacity } = getComputedStyle(drawing);
  const viewBox = drawing.getAttribute("viewBox");
  const copy = s("svg", { ...place, overflow, ...(opacity === "1" ? {} : { opacity }), ...(viewBox ? { viewBox } : {}) });
  copy.append(...copyChildren(drawing, ids));
  return copy;
}

/** Patterns and the like that paints refer to, wherever on the page they are. */
export function copyDefinitions(ids: Set<string>): SVGElement | null {
  const done = new Set<string>();
  const all = s("defs");
  // A pattern may refer to another one: the set grows while it is read.
  for (const id of ids) {
    const found = document.getElementById(id);
    if (!found || done.has(id)) continue;
    done.add(id);
    all.append(...copyElement(found, ids));
  }
  return all.childElementCount ? all : null;
}

function copyChildren(element: Element, ids: Set<string>): Node[] {
  const isWritten = WRITTEN.test(element.localName);
  return [...element.childNodes].flatMap((child): Node[] => {
    if (child instanceof Element) return copyElement(child, ids);
    return isWritten && child.nodeType === Node.TEXT_NODE ? [document.createTextNode(child.textContent ?? "")] : [];
  });
}

function copyElement(element: Element, ids: Set<string>): Node[] {
  const style = getComputedStyle(element);
  if (element.matches(LEFT_OUT) || style.display === "none") return [];
  const isContainer = element.matches(CONTAINERS);
  if (!isContainer && style.visibility !== "visible") return [];
  const looks = isContainer ? containerLooks(style) : shapeLooks(style, WRITTEN.test(element.localName));
  for (const value of Object.values(looks)) {
    const id = REFERENCE.exec(String(value))?.[1];
    if (id) ids.add(id);
  }
  const copy = s(element.localName, { ...geometryOf(element), ...looks });
  copy.append(...copyChildren(element, ids));
  return [copy];
}

function geometryOf(element: Element): Attributes {
  const kept = [...element.attributes].filter(({ name }) => !NOT_GEOMETRY.test(name));
  return Object.fromEntries(kept.map(({ name, value }) => [name, value]));
}

function containerLooks({ opacity }: CSSStyleDeclaration): Attributes {
  return opacity === "1" ? {} : { opacity };
}

function shapeLooks(style: CSSStyleDeclaration, isWritten: boolean): Attributes {
  const wanted = [...LOOKS, ...(isWritten ? FONTS : [])];
  const looks: Attributes = {};
  for (const [name, usual] of wanted) {
    const value = style.getPropertyValue(name);
    if (value && value !== usual) looks[name] = value;
  }
  for (const name of PAINTS) Object.assign(looks, paintOf(name, style.getPropertyValue(name), looks[`${name}-opacity`]));
  return looks;
}

function paintOf(name: string, value: string, opacity: Attributes[string] | undefined): Attributes {
  if (value === "none" || value.startsWith("url(")) return { [name]: value };
  const [colour, alpha] = plainColour(value);
  const whole = alpha * Number(opacity ?? 1);
  return { [name]: colour, ...(whole < 1 ? { [`${name}-opacity`]: whole.toFixed(3) } : {}) };
}

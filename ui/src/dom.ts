// Elements from plain words. Text is always set as text: names in traces may be markup.

export type Child = Node | string | null | undefined;
export type Attributes = Record<string, string | number | boolean | ((event: Event) => void)>;

const SVG = "http://www.w3.org/2000/svg";

export function h(name: string, attributes: Attributes = {}, ...children: Child[]): HTMLElement {
  return filled(document.createElement(name), attributes, children);
}

export function s(name: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  return filled(document.createElementNS(SVG, name) as SVGElement, attributes, children);
}

function filled<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) element.append(child);
  return element;
}

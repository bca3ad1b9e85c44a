// Words below a picture about the part that is pointed at, reached by pointer, by touch and by keyboard alike.

import "./readout.css";
import { h } from "./dom";

export interface Readout {
  element: Element;
  /** Makes `target` a part that can be pointed at. */
  tells(target: Element, name: string, words: string): void;
}

export function readout(rest: string): Readout {
  const element = h("p", { class: "readout" }, rest);
  const clear = () => element.replaceChildren(rest);
  const tells = (target: Element, name: string, words: string) => {
    const show = () => element.replaceChildren(h("b", {}, name), ` ${words}`);
    target.setAttribute("tabindex", "0");
    target.setAttribute("role", "img");
    target.setAttribute("aria-label", `${name}: ${words}`);
    for (const begin of ["pointerenter", "focus", "click"]) target.addEventListener(begin, show);
    for (const end of ["pointerleave", "blur"]) target.addEventListener(end, clear);
  };
  return { element, tells };
}

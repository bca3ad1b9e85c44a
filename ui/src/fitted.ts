// Charts that fit the width they are given, and are drawn again when it changes.

import "./chart.css";
import { onTheme } from "./colours";
import { h } from "./dom";

/** A box that calls `draw` with its width: when it is put on the page, and whenever the width changes. */
export function fitted(name: string, draw: (width: number, box: HTMLElement) => void): HTMLElement {
  const box = h("div", { class: name });
  let drawn = 0;
  const watch = new ResizeObserver(() => {
    // Drawing changes the height, which an observer must not do while it is called.
    requestAnimationFrame(() => {
      const width = Math.floor(box.clientWidth);
      if (width && width !== drawn) draw((drawn = width), box);
    });
  });
  watch.observe(box);
  return box;
}

export interface Surface {
  element: HTMLCanvasElement;
  /** Sets the size in CSS pixels; drawing is in these, too. */
  resize(width: number, height: number): void;
  pen: CanvasRenderingContext2D;
  /** Device pixels for each CSS pixel. */
  density(): number;
}

export function surface(redraw: () => void): Surface {
  const element = h("canvas", { tabindex: 0 }) as HTMLCanvasElement;
  const pen = element.getContext("2d") as CanvasRenderingContext2D;
  onTheme(() => element.isConnected && redraw());
  const density = (): number => Math.max(1, window.devicePixelRatio || 1);
  const resize = (width: number, height: number): void => {
    element.width = Math.round(width * density());
    element.height = Math.round(height * density());
    element.style.setProperty("width", `${width}px`);
    element.style.setProperty("height", `${height}px`);
    pen.setTransform(density(), 0, 0, density(), 0, 0);
  };
  return { element, resize, pen, density };
}

// Charts that fit the width they are given, and are drawn again when it changes.

import "./chart.css";
import { onTheme } from "./colours";
import { h } from "./dom";

/** A box that calls `draw` with its width: when it is put on the page, and whenever the width changes. */
export function fitted(name: string, draw: (width: number, box: HTMLElement) => void): HTMLElement {
  const box = h("div", { class: name });
  let drawn = 0;
  const fit = (): void => {
    const width = Math.floor(box.clientWidth);
    if (width && width !== drawn) draw((drawn = width), box);
  };
  // Drawing changes the height, which an observer must not do while it is called.
  new ResizeObserver(() => requestAnimationFrame(fit)).observe(box);
  onTheme(fit);
  return box;
}

/** A canvas that is drawn in CSS pixels, whatever the screen has. */
export class Surface {
  readonly element = h("canvas", { tabindex: 0 }) as HTMLCanvasElement;
  readonly pen = this.element.getContext("2d") as CanvasRenderingContext2D;
  private kept: OffscreenCanvas | null = null;
  private isSized = false;

  constructor(redraw: () => void) {
    onTheme(() => this.isSized && this.element.isConnected && redraw());
  }

  /** Device pixels for each CSS pixel. */
  get density(): number {
    return Math.max(1, window.devicePixelRatio || 1);
  }

  resize(width: number, height: number): void {
    this.isSized = true;
    this.element.width = Math.round(width * this.density);
    this.element.height = Math.round(height * this.density);
    this.element.style.setProperty("width", `${width}px`);
    this.element.style.setProperty("height", `${height}px`);
    this.pen.setTransform(this.density, 0, 0, this.density, 0, 0);
  }

  /** Keeps what is drawn, so that a mark can move over it without drawing all of it again. */
  keep(): void {
    this.kept = new OffscreenCanvas(this.element.width, this.element.height);
    this.kept.getContext("2d")!.drawImage(this.element, 0, 0);
  }

  /** Leaves only what was kept. */
  restore(): void {
    this.pen.save();
    this.pen.resetTransform();
    this.pen.clearRect(0, 0, this.element.width, this.element.height);
    if (this.kept) this.pen.drawImage(this.kept, 0, 0);
    this.pen.restore();
  }
}

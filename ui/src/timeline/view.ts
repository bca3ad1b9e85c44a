// Which stretch of time is shown, and how it moves: never outside of what there is, never narrower than a few ns.

const NARROWEST = 20;

export class View {
  start = 0;
  stop: number;

  constructor(readonly span: number) {
    this.stop = span;
  }

  get width(): number {
    return this.stop - this.start;
  }

  show(start: number, stop: number): void {
    const width = Math.min(this.span, Math.max(Math.min(NARROWEST, this.span), stop - start));
    this.start = Math.max(0, Math.min(this.span - width, (start + stop - width) / 2));
    this.stop = this.start + width;
  }

  pan(ns: number): void {
    this.show(this.start + ns, this.stop + ns);
  }

  /** Factors below 1 show less time; what stands at `share` of the width stays there. */
  zoom(factor: number, share = 0.5): void {
    const held = this.start + share * this.width;
    const width = Math.min(this.span, Math.max(Math.min(NARROWEST, this.span), this.width * factor));
    this.show(held - share * width, held + (1 - share) * width);
  }

  reset(): void {
    this.show(0, this.span);
  }
}

// What changes are predicted to do to a step: told by findings and by What if, shown by the timeline.

export interface Predicted {
  measured: number;
  predicted: number;
  low: number;
  high: number;
}

/** Range of a step time, from that of the saving: one prediction has one range. */
export function stepInterval(measured: number, [least, most]: [number, number]): { low: number; high: number } {
  return { low: measured * (1 - most), high: measured * (1 - least) };
}

const known = new Map<string, Predicted>();
const LEARNED = "lostflops-predicted";

export function learnPrediction(changes: [string, string][], found: Predicted): void {
  if (!changes.length) return;
  known.set(keyOf(changes), found);
  document.dispatchEvent(new Event(LEARNED));
}

/** None where nobody predicted these changes together. */
export function predictionOf(changes: [string, string][]): Predicted | null {
  return known.get(keyOf(changes)) ?? null;
}

/** Calls back when a prediction is known that was not before. */
export function onPrediction(listener: () => void): void {
  document.addEventListener(LEARNED, listener);
}

function keyOf(changes: [string, string][]): string {
  return changes.map(([name, value]) => `${name}=${value}`).sort().join(" ");
}

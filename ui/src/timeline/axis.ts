// Round moments for an axis of time, and how they are written.

const UNITS: [string, number][] = [
  ["s", 1e9],
  ["ms", 1e6],
  ["us", 1e3],
  ["ns", 1],
];

export interface Ticks {
  at: number[];
  write(ns: number): string;
}

export function ticks(start: number, stop: number, most: number): Ticks {
  const rough = Math.max(1, (stop - start) / Math.max(1, most));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough)!;
  const [unit, size] = UNITS.find(([, ns]) => step >= ns) ?? UNITS[3]!;
  const at: number[] = [];
  for (let ns = Math.ceil(start / step) * step; ns <= stop; ns += step) at.push(ns);
  return { at, write: (ns) => `${(Math.round(ns / step) * step / size).toLocaleString("en-US")} ${unit}` };
}

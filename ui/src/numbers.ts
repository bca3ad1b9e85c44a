// Several numbers in few words, as report/values.py writes them.

const MOST_RUNS = 8;

/** Those that follow each other are drawn together: `0-3, 8`. */
export function formatNumbers(numbers: number[]): string {
  const runs: [number, number][] = [];
  for (const number of numbers) {
    const last = runs.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else runs.push([number, number]);
  }
  const texts = runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`));
  const left = texts.length > MOST_RUNS ? [`... ${numbers.length.toLocaleString("en-US")} in all`] : [];
  return [...texts.slice(0, MOST_RUNS), ...left].join(", ");
}

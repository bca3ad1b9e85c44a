// A selection in words.

import type { Selection } from "./selection";
import { formatNs, formatValues } from "./units";

const LONGEST_NAME = 40;

/** Each part of it; none where all of the run is looked at. */
export function describeSelection({ ranks, steps, time, event, search, changes }: Selection): string[] {
  return [
    ranks.length ? `${ranks.length > 1 ? "ranks" : "rank"} ${formatValues([...ranks].sort((one, other) => one - other), "")}` : "",
    steps ? (steps[0] === steps[1] ? `step ${steps[0]}` : `steps ${steps[0]} to ${steps[1]}`) : "",
    time ? `${formatNs(time[1] - time[0])} from ${formatNs(time[0])}` : "",
    event ? `event ${event[1]} of rank ${event[0]}` : "",
    search ? `events named \u201c${search.length > LONGEST_NAME ? `${search.slice(0, LONGEST_NAME - 1)}…` : search}\u201d` : "",
    changes.length ? `with ${changes.map(([name, value]) => `${name}=${value}`).join(", ")}` : "",
  ].filter(Boolean);
}

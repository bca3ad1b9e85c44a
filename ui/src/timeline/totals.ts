// Exact sums of an area of a timeline, as a result like any other.

import type { Live } from "../live";
import type { Result } from "../types";
import type { Model } from "./model";
import type { Area } from "./state";

/** Sums of an area; the signal ends a question that nobody waits for any more. */
export type Totals = (area: Area, signal: AbortSignal) => Promise<Result>;

/** Asks the server. */
export function liveTotals(model: Model, live: Live): Totals {
  return ({ start, stop, groups, steps = null }, signal) => {
    const ranks = groups.flatMap((group) => model.groups[group]!.rank ?? []);
    return live.selection({ ranks, start, stop, steps }, signal);
  };
}

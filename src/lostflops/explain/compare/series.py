"""Step times of a run: of all settled steps if the collector timed them, otherwise of the steps in the trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.record import records
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.account.pace.blocks import Times
from lostflops.account.pace.timings import PACED, choose_pace, paces, within

if TYPE_CHECKING:
    from lostflops.store.run import Run

_SETTLED = "with {paced} select ns, samples, tokens from paced where settled order by step"


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of the steps of a run, and the work of a step."""

    times: Times
    """Times in ns; the median of the ranks of a timed step, their mean in a trace."""
    samples: float | None = None
    """Samples per step on all ranks together; None if not recorded, or different from step to step."""
    tokens: float | None = None
    """The same for tokens."""

    def per(self, what: str) -> Times:
        """Return the times per `step`, or per sample or token."""
        return self.times if what == "step" else self.times / getattr(self, f"{what}s")


def read_timed_steps(run: Run) -> StepTimes:
    """Read the settled steps of the newest attempt that has any."""
    pace = choose_pace(paces(run))
    if pace is None or not pace.settled:
        return StepTimes(np.zeros(0))
    columns = run.columns(_SETTLED.format(paced=PACED.format(within=within((), pace.attempt))))
    return StepTimes(columns["ns"].astype(np.float64), _constant(columns["samples"]), _constant(columns["tokens"]))


def read_profiled_steps(run: Run) -> StepTimes:
    """Read the whole steps of the trace."""
    ranks = [rank for (rank,) in run.rows("select distinct rank from steps order by rank")]
    edges = [window(record, WindowKind.STEPS) for record in records(run, ranks)] if ranks else []
    numbers = np.concatenate([np.array(one.number, np.int64) for one in edges] or [np.zeros(0, np.int64)])
    took = np.concatenate([one.stop - one.start for one in edges] or [np.zeros(0, np.int64)])
    _, place, count = np.unique(numbers, return_inverse=True, return_counts=True)
    means = np.bincount(place, weights=took, minlength=count.size) / np.maximum(count, 1)
    return StepTimes(means[means > 0])


def _constant(values: npt.NDArray[Any]) -> float | None:
    """Return the value that nearly all steps have, or None: the last batch of an epoch may be smaller."""
    known = np.ma.compressed(np.ma.masked_invalid(np.ma.asarray(values, np.float64)))
    if known.size < len(values) or not known.size:
        return None
    middle = float(np.median(known))
    return middle if middle > 0 and np.mean(known == middle) >= 0.9 else None

"""The comparison of two groups of runs: of their steps, or of their recordings if none marks steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lostflops.explain.compare import recordings
from lostflops.explain.compare.change import MARGIN
from lostflops.explain.compare.diff import diff
from lostflops.explain.compare.sides import OpenRun, read_pair
from lostflops.explain.compare.where import MOST_KERNELS
from lostflops.store.run import Run

if TYPE_CHECKING:
    from lostflops.account.ledger.by_rank import Progress
    from lostflops.core.results import Result


def compare_runs(
    before: Sequence[Path],
    after: Sequence[Path],
    *,
    margin: float = MARGIN,
    anyway: bool = False,
    most_kernels: int = MOST_KERNELS,
    progress: Progress | None = None,
    open_run: OpenRun = Run.open,
) -> Result:
    """Return which side is faster, and where; raise UsageError if the runs cannot be compared."""
    if recordings.mark_no_steps([*before, *after], open_run):
        return recordings.diff(before, after, anyway=anyway, most_kernels=most_kernels, open_run=open_run)
    pair = read_pair(before, after, anyway=anyway, accounted=True, progress=progress, open_run=open_run)
    return diff(pair, margin, most_kernels)

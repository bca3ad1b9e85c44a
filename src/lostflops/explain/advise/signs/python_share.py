"""Share of each cause in the Python time between ops, and the what-if that prices it.

Saving, loading and garbage collection have their own rules: their time does not count as the training loop's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.facts.source_code import PROGRAM, code_of, function_of
from lostflops.core.errors import UnknownCost
from lostflops.explain.advise.signs.series import StepSeries, series
from lostflops.explain.advise.signs.spread import typical
from lostflops.predict.graph.tasks import LaneKind
from lostflops.predict.whatif.graph_edits.selecting import on_lanes, on_line

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.where import Stack

LINE: Final = "idle.python"
FEW: Final = 0.03
"""A cause that takes less than this share of a rank's time is not reported."""
LONG: Final = 1_000_000
"""A stretch of at least this many ns is too long to be the way from one op to the next."""
_STAYS: Final = 0.001
"""Smallest factor of the what-if: some Python always remains."""
_SAVING: Final = re.compile(
    r"_?(?:legacy_)?save \S*torch/serialization\.py|\S+ \S*torch/distributed/checkpoint/|\S+ (?:\S*/)?safetensors/"
)
_NAMED_SO: Final = re.compile(r"(?:save|write|dump|store)\w*(?:checkpoint|ckpt|state|model|weights)", re.IGNORECASE)


_LOADING: Final = re.compile(
    r"(?:.*\.)?(?:__getitem__|__next__|__iter__|\w*collate\w*|(?:next|get|load|read|fetch|make|prepare)_?\w*"
    r"(?:batch|batches|sample|samples|example|examples))$"
)


def change(part: float) -> str:
    """Return the what-if in which this part of the Python time is gone.

    >>> change(0.6), change(1)
    ('python=0.4x', 'python=0.001x')
    """
    return f"python={max(round(1 - part, 3), _STAYS):g}x"


def is_saving(frames: Stack) -> bool:
    """Return whether a stack is inside of saving a model, by PyTorch's functions or by a name of the program's own.

    >>> is_saving(("main train.py:3", "save torch/serialization.py:967")), is_saving(("save_checkpoint train.py:9",))
    (True, True)
    >>> is_saving(("checkpoint torch/utils/checkpoint.py:9", "save_for_backward model.py:3"))
    False
    """
    return any(
        _SAVING.match(frame) or (code_of(frame) == PROGRAM and _NAMED_SO.search(function_of(frame))) for frame in frames
    )


def is_loading(frames: Stack) -> bool:
    """Return whether a stack is inside of making a batch, by the names of the program's functions: without a loader of
    PyTorch, there is no other sign.

    >>> is_loading(("main train.py:3", "Lines.__next__ data.py:9", "split re/__init__.py:3"))
    True
    >>> is_loading(("main train.py:3", "get_batch_size train.py:9")), is_loading(("load_model model.py:1",))
    (False, False)
    """
    return any(code_of(frame) == PROGRAM and _LOADING.match(function_of(frame)) for frame in frames)


def in_long_stretches(case: Case) -> float:
    """Return the part of Python between ops that is in stretches of at least `LONG`: work of the loop, not dispatch of
    ops."""
    if case.baseline is None:
        return float(case.total.longest.get(LINE, (0, 0, 0))[0] >= LONG)
    graph = case.baseline.graph
    python = graph.tasks.duration[on_line(graph, LINE) & on_lanes(graph, LaneKind.HOST)]
    return float(python[python >= LONG].sum() / max(int(python.sum()), 1))


def collecting(case: Case) -> float | None:
    """Return the part of Python between ops that a typical rank spends in the garbage collector; None if the collector
    did not record it."""
    try:
        timed = series(case)
    except UnknownCost:
        return None
    pauses = in_window(case, timed)
    if not np.isfinite(pauses).any():
        return None
    own = {one.rank: one.lines[LINE] / one.steps for one in case.total.ranks if one.steps}
    parts = [
        float(ns) / own[rank]
        for rank, ns in zip(timed.ranks, pauses, strict=True)
        if np.isfinite(ns) and own.get(rank, 0)
    ]
    return min(typical(parts), 1.0)


def in_window(case: Case, timed: StepSeries) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return for each rank the time of garbage collection in a step of the window, or in a settled step if the window
    has no such data; NaN if not recorded."""
    pauses = timed.column("gc")
    shown = np.isin(timed.step, sorted(case.total.steps))
    rows = shown if np.isfinite(pauses[shown]).any() else timed.settled
    told = np.isfinite(pauses[rows])
    sums = np.where(told, pauses[rows], 0).sum(axis=0)
    count = told.sum(axis=0)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)

"""Backward passes that also run parts of the forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.core.errors import NotApplicable, UsageError
from lostflops.predict.graph.tasks import Flags, TaskGraph
from lostflops.predict.whatif.graph_edits.selecting import number_distinct_rows, ranks_with_device

Floats = npt.NDArray[np.float64]


def add_recompute_time(graph: TaskGraph, times: Floats, rows: Flags, part: npt.NDArray[Any], share: Floats) -> Floats:
    """Backward of each part of the model with a share of each task of its forward, by rank and step; forward of parts
    whose backward is not told goes to all of it."""
    tasks = graph.tasks
    pair = number_distinct_rows(graph.rank, tasks.step)
    own_part = number_distinct_rows(pair, part)
    forward, backward = rows & (tasks.phase == FORWARD), rows & (tasks.phase == BACKWARD)
    ahead = np.bincount(own_part, np.where(forward, times * share, 0))
    behind = np.bincount(own_part, np.where(backward, times, 0))
    told = behind > 0
    own = np.where(told, ahead, 0) / np.where(told, behind, 1)
    rest = np.bincount(pair, np.where(forward & ~told[own_part], times * share, 0))
    whole = np.bincount(pair, np.where(backward, times, 0))
    more = own[own_part] + (rest / np.where(whole > 0, whole, 1))[pair]
    found: Floats = np.where(backward, times * np.maximum(1 + more, 0), times)
    return found


def some_modules(
    graph: TaskGraph, names: Sequence[str], shares: Mapping[str, float], computes: Flags
) -> tuple[npt.NDArray[np.int64], Floats, Floats]:
    """The module of these that each task belongs to, else -1; which share of it is run again; and which of the host's
    time around it, that has no module where a device computes."""
    place = np.full(len(graph.words) + 1, -1, np.int64)
    for at, name in enumerate(names):
        inside = [word for word, text in enumerate(graph.words) if text == name or text.startswith(f"{name}.")]
        place[inside] = at
    layer = graph.tasks.layer
    module = np.where(layer >= 0, place[layer], -1)
    for at, name in enumerate(names):
        if outer := next((other for other in names if name.startswith(f"{other}.")), None):
            raise UsageError(f"recompute: {name} is inside {outer}: give only one of them")
        if not ((module == at) & computes).any() and not any(inner.startswith(f"{name}.") for inner in names):
            raise UsageError(f"recompute={name}: give on, off, bytes such as 8GiB, or recorded modules")
    if not names:
        raise NotApplicable("no module is given")
    share = np.array([*(shares.get(name, 1.0) for name in names), 0.0])[module]
    forward = computes & (graph.tasks.phase == FORWARD)
    pair = number_distinct_rows(graph.rank, graph.tasks.step)
    times = np.where(forward, graph.tasks.duration, 0)
    again, every = np.bincount(pair, times * share), np.bincount(pair, times)
    on_device = np.isin(graph.rank, ranks_with_device(graph)) & (layer < 0)
    around = np.where(on_device, (again / np.maximum(every, 1))[pair], share)
    return module, share, around

"""A network of tasks, whose longest paths are a replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ns = npt.NDArray[np.int64]
Index = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathNetwork:
    """Tasks in the order of lanes, with meetings, and with edges as in `graph.tasks.Edges`."""

    origin: Ns
    duration: Ns
    gap: Ns
    follows: Flags
    """Whether the task before is on the same lane."""
    meeting: Index
    transfer: Ns
    turn: Index
    """Meeting that has the same link next."""
    src: Index
    dst: Index
    delay: Ns
    after_start: Flags

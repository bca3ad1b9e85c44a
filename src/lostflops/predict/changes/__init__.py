"""What-ifs: one change of a graph per file."""

from __future__ import annotations

from typing import Final

from lostflops.predict.change import Change
from lostflops.predict.changes import (
    data,
    device,
    imbalance,
    launch,
    optimizer,
    overlap,
    precision,
    recompute,
    straggler,
    sync,
)

_COMPUTE: Final[tuple[Change, ...]] = (
    straggler.CHANGE,
    data.CHANGE,
    sync.CHANGE,
    launch.CHANGE,
    precision.CHANGE,
    optimizer.CHANGE,
    device.CHANGE,
    recompute.CHANGE,
    overlap.CHANGE,
)
_COMMUNICATION: Final[tuple[Change, ...]] = ()
_PIPELINE: Final[tuple[Change, ...]] = (imbalance.CHANGE,)

CHANGES: Final[tuple[Change, ...]] = (*_COMPUTE, *_COMMUNICATION, *_PIPELINE)

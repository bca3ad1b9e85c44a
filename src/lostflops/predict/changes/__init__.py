"""What-ifs: one change of a graph per file."""

from __future__ import annotations

from typing import Final

from lostflops.predict.change import Change
from lostflops.predict.changes import imbalance

_COMPUTE: Final[tuple[Change, ...]] = ()
_COMMUNICATION: Final[tuple[Change, ...]] = ()
_PIPELINE: Final[tuple[Change, ...]] = (imbalance.CHANGE,)

CHANGES: Final[tuple[Change, ...]] = (*_COMPUTE, *_COMMUNICATION, *_PIPELINE)

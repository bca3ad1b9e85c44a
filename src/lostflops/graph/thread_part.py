"""One rank's part of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lostflops.graph.parts import Part

if TYPE_CHECKING:
    from lostflops.ledger.record import Record
    from lostflops.ledger.windows import Window
    from lostflops.store.run import Run


def thread_part(run: Run, record: Record, edges: Window) -> Part:
    raise NotImplementedError

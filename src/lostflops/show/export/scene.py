"""Ranks as processes of a trace on one clock, and the state that all their tracks share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lostflops.account.align.lane_events import Extent
from lostflops.account.align.one_clock import OneClock
from lostflops.core.units import format_ns
from lostflops.show.export.packets import Packets, TrackPlace
from lostflops.show.export.protobuf import times
from lostflops.show.export.spread import SpreadSlices
from lostflops.store.intervals import Intervals, Ns

if TYPE_CHECKING:
    from lostflops.store.run import Run

_SECOND: Final = 1_000_000_000
_FIRST_PID: Final = 1_000_000
"""Ranks are renumbered from here, because ranks of several hosts may have the same process id; the number is high, so
that it is not taken for a real one."""


class Scene:
    """The ranks that are drawn, and their steps `steps` only, if any are named."""

    def __init__(self, run: Run, packets: Packets, span: Extent, ranks: Sequence[int], steps: Sequence[int]) -> None:
        self.run, self.packets, self.ranks = run, packets, ranks
        self.numbers = count(1)
        self._clock = OneClock.of(run)
        self._shift = shift_of(span)
        self.windows = _windows(run, ranks, steps) if steps else None
        self._parents = {rank: next(self.numbers) for rank in ranks}

    @property
    def rank_filter(self) -> str:
        return f"rank in ({', '.join(map(str, self.ranks))})"

    def inside(self, start: str, stop: str) -> str:
        """Return an SQL condition for rows that touch a window of their rank."""
        if self.windows is None:
            return "true"
        edges = (
            (rank, *edge) for rank, span in self.windows.items() for edge in zip(span.start, span.stop, strict=True)
        )
        rows = ", ".join(f"({rank}, {first}, {last})" for rank, first, last in edges) or "(null, null, null)"
        return (
            f"exists (select 1 from (values {rows}) as w (of_rank, first, last) "
            f"where of_rank = rank and {start} < last and ({stop} > first or {start} >= first))"
        )

    def processes(self) -> None:
        for rank, host, device, method, uncertainty in self.run.rows(
            "select rank, host, device, method, uncertainty from ranks left join clocks using (rank) "
            f"where {self.rank_filter} order by rank"
        ):
            clock = _clock_text(method, uncertainty)
            name = " · ".join(filter(None, (f"rank {rank}", host, device)))
            self.packets.process(self._parents[rank], _FIRST_PID + rank, name, [clock], clock)

    def place(self, rank: int, name: str, order: int, about: str = "") -> TrackPlace:
        return TrackPlace(self._parents[rank], name, order, f"{order} {name}", about)

    @contextmanager
    def spread(self, place: TrackPlace) -> Iterator[SpreadSlices]:
        made = SpreadSlices(self.packets, place, self.numbers)
        yield made
        made.close()

    def times(self, rank: int, own: Iterable[int] | Ns) -> tuple[list[int], list[bytes]]:
        """Return a rank's own times on the common clock, as numbers and encoded."""
        given = own if isinstance(own, np.ndarray) else np.fromiter(own, np.int64)
        shared = self._clock.to_common(rank, given) + self._shift
        return shared.tolist(), times(shared)


def shift_of(span: Extent) -> int:
    """Return the shift of all times, in ns: Perfetto knows no time before zero, and times of sources that count from
    zero may be corrected to below it."""
    return max(0, _SECOND - span.start)


def _windows(run: Run, ranks: Sequence[int], steps: Sequence[int]) -> dict[int, Intervals]:
    """Return the windows of steps by rank: from the begin of each step on host or device to its end on both, by the
    rank's own clock."""
    numbers = ", ".join(map(str, steps))
    rows: list[tuple[Any, ...]] = run.rows(
        "select rank, least(start, coalesce(device_start, start)), greatest(stop, coalesce(device_stop, stop)) "
        f"from steps where step in ({numbers}) order by rank"
    )
    return {
        rank: Intervals.of(
            [start for own, start, _ in rows if own == rank], [stop for own, _, stop in rows if own == rank]
        )
        for rank in ranks
    }


def _clock_text(method: str | None, uncertainty: int | None) -> str:
    if method == "reference":
        return "reference clock"
    if method is None or uncertainty is None:
        return "own clock: not aligned with other ranks"
    return f"clock ± {format_ns(uncertainty)} ({method})"

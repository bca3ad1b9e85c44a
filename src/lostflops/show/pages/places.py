"""Where pages show a finding: the longest wait that it caused, and the stall of the late rank before that.

A rank that is late at a collective lost its time earlier in the step. What it spent more time on than the rank that
waited for it shows where.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive.timeline import TimelineSpan
from lostflops.account.ledger.from_rows import has_stretches
from lostflops.core.results import Finding, FindingPlace

if TYPE_CHECKING:
    from lostflops.store.run import Run

_WAITS: Final = ("comm.wait", "comm.bubble")
_WORK: Final = ("kernel", "memcpy", "memset", "op", "runtime", "sync", "overhead")
"""Kinds of events that do something; others only wrap them."""
_BUSY: Final = {"compute": ("kernel",), "copy": ("memcpy", "memset"), "comm": ("comm", "host_comm")}
"""Kinds of events that a line, or those that begin so, are the time of; where a device is idle, the host did something
else."""
_DEVICE: Final = ("kernel", "memcpy", "memset", "comm", "device_annotation")
_MOST_WAITS: Final = 8
"""Waits to look at for one that the finding explains: the first step often begins after its stall."""
_BEFORE: Final = 4
"""Without steps, look for the stall in this many times the wait before it."""


class _Stretch(NamedTuple):
    rank: int
    start: int
    stop: int
    line: str
    late: int | None = None
    """Rank that it waits for."""


def places_of(run: Run, findings: Sequence[Finding]) -> tuple[FindingPlace | None, ...]:
    """Return a place for each finding; None if the run has no stretches, or none on the lines of the finding."""
    clock = OneClock.of(run)
    span = TimelineSpan.of(run, clock)
    if span is None or not has_stretches(run, run.ranks):
        return (None,) * len(findings)
    # The overview and the diagnosis of a page ask for the same ones.
    return tuple(run.keep(_key(finding), partial(_place, run, clock, span, finding)) for finding in findings)


def _key(finding: Finding) -> Hashable:
    """Return all that the place of a finding depends on."""
    return "place of a finding", finding.ranks, tuple(finding.lines.items())


def _place(run: Run, clock: OneClock, span: TimelineSpan, finding: Finding) -> FindingPlace | None:
    wait, stall = _wait_and_stall(run, clock, finding)
    if stall is None:
        return None

    def place(own: _Stretch) -> tuple[int, int]:
        start, stop = clock.to_common(own.rank, np.array([own.start, own.stop])).tolist()
        return start - span.start, stop - span.start

    return FindingPlace(
        rank=stall.rank,
        line=stall.line,
        stall=place(stall),
        event=_event_in(run, stall),
        victim=None if wait is None else wait.rank,
        wait=None if wait is None else place(wait),
    )


def _wait_and_stall(run: Run, clock: OneClock, finding: Finding) -> tuple[_Stretch | None, _Stretch | None]:
    """Return the longest wait whose stall is on a line of the finding, else the longest one, with its stall; without
    waits, the longest stretch that the finding costs."""
    found = []
    for wait in _longest_waits(run, finding.ranks):
        stall = _stall_before(run, clock, wait, finding)
        if stall is not None and stall.line in finding.lines:
            return wait, stall
        found += [(wait, stall)] if stall is not None else []
    return found[0] if found else (None, _longest_stretch(run, finding))


def _longest_waits(run: Run, late: Sequence[int]) -> Iterator[_Stretch]:
    """Yield the longest wait of any rank for one of these, and then further ones of the same rank."""
    if not late:
        return
    waits = f"select rank, start, stop, line, late_rank from stretches where line in {_WAITS} "
    waits += f"and late_rank in ({_list(late)})"
    order = "order by stop - start desc, rank, start"
    for row in run.rows(f"{waits} {order} limit 1"):
        yield _Stretch(*row)
        for other in run.rows(f"{waits} and rank = {row[0]} {order} limit {_MOST_WAITS} offset 1"):
            yield _Stretch(*other)


def _stall_before(run: Run, clock: OneClock, wait: _Stretch, finding: Finding) -> _Stretch | None:
    """Return the longest stretch of the late rank on the line on which it spent more time than the rank that waits,
    from where the first of the two starts the step to the end of the wait. Lines of the finding come first."""
    assert wait.late is not None, "a wait for a rank that is not known"
    start, stop = clock.to_common(wait.rank, np.array([wait.start, wait.stop])).tolist()
    begin = _step_start(run, clock, (wait.rank, wait.late), start)
    begin = start - _BEFORE * (stop - start) if begin is None else begin
    first, last = clock.own(wait.late, np.array([begin, stop])).tolist()
    late = _lines_in(run, wait.late, first, last)
    other = _lines_in(run, wait.rank, *clock.own(wait.rank, np.array([begin, stop])).tolist())
    more = {line: ns - other.get(line, 0) for line, ns in late.items() if not line.startswith("comm.")}
    more = {line: ns for line, ns in more.items() if ns > 0}
    if not more:
        return None
    line = max(more, key=lambda name: (name in finding.lines, more[name]))
    rows = run.rows(
        f"select rank, greatest(start, {first}), least(stop, {last}), line from stretches where rank = {wait.late} "
        f"and line = '{line}' and start < {last} and stop > {first} "
        f"order by least(stop, {last}) - greatest(start, {first}) desc, start limit 1"
    )
    return _Stretch(*rows[0])


def _step_start(run: Run, clock: OneClock, ranks: Sequence[int], moment: int) -> int | None:
    """Return where the first of these ranks starts the step that a moment is in; None without steps."""
    starts = []
    for rank in ranks:
        own = int(clock.own(rank, np.array([moment]))[0])
        rows = run.rows(f"select max(start) from spans where rank = {rank} and start <= {own} and step is not null")
        if rows[0][0] is not None:
            starts.append(int(clock.to_common(rank, np.array([rows[0][0]]))[0]))
    return min(starts, default=None)


def _lines_in(run: Run, rank: int, start: int, stop: int) -> dict[str, int]:
    return dict(
        run.rows(
            f"select line, sum(least(stop, {stop}) - greatest(start, {start}))::bigint from stretches "
            f"where rank = {rank} and start < {stop} and stop > {start} group by line"
        )
    )


def _longest_stretch(run: Run, finding: Finding) -> _Stretch | None:
    """Return the longest stretch on the line that the finding costs most on."""
    among = f"and rank in ({_list(finding.ranks)})" if finding.ranks else ""
    for line in sorted(finding.lines, key=lambda line: -finding.lines[line]):
        rows = run.rows(
            f"select rank, start, stop, line from stretches where line = '{line}' {among} "
            "order by stop - start desc, rank, start limit 1"
        )
        if rows:
            return _Stretch(*rows[0])
    return None


def _event_in(run: Run, stall: _Stretch) -> int | None:
    """Return the event that took most of a stretch, and of equals the innermost: of the kind that its line is the time
    of, else one on the host that does something, if it took half of the stretch, else any on the host."""
    busy = _BUSY.get(stall.line.partition(".")[0])
    kinds = f"kind in ({_quoted(busy)})" if busy else f"kind not in ({_quoted((*_DEVICE, 'span'))})"
    shared = f"least(start + dur, {stall.stop}) - greatest(start, {stall.start})"
    half = (stall.stop - stall.start) / 2
    rows = run.rows(
        f"select event from events where rank = {stall.rank} and start < {stall.stop} and start + dur > {stall.start} "
        f"and {kinds} order by (kind in ({_quoted(_WORK)}) and {shared} >= {half}) desc, {shared} desc, dur, event "
        "limit 1"
    )
    return int(rows[0][0]) if rows else None


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))

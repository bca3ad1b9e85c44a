"""Where pages show a finding: the longest wait that it caused, and the stall of the late rank before that.

A rank that is late at a collective lost its time earlier in the step. What it spent more time on than the rank that
waited for it shows where. A rank can also be late because it waited itself: then the wait is followed to the rank that
did not.
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
_LONGEST_CHAIN: Final = 6
"""Ranks from one that waits to the one that all of them wait for."""
_BEFORE: Final = 4
"""Without steps, look for the stall in this many times the wait before it."""


class _Stretch(NamedTuple):
    rank: int
    start: int
    stop: int
    line: str
    late: int | None = None
    """Rank that it waits for."""


class _Stall(NamedTuple):
    stretch: _Stretch
    more: int | None = None
    """Time that its rank spent more on its line than the rank that waited for it, in the same step."""


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
    waits, found = _waits_and_stall(run, clock, finding)
    if found is None:
        return None
    stall = found.stretch

    def place(own: _Stretch) -> tuple[int, int]:
        start, stop = clock.to_common(own.rank, np.array([own.start, own.stop])).tolist()
        return start - span.start, stop - span.start

    return FindingPlace(
        rank=stall.rank,
        line=stall.line,
        stall=place(stall),
        event=_event_in(run, stall),
        victim=waits[0].rank if waits else None,
        wait=place(waits[0]) if waits else None,
        between=tuple(wait.rank for wait in waits[1:]),
        more=found.more,
    )


def _waits_and_stall(run: Run, clock: OneClock, finding: Finding) -> tuple[Sequence[_Stretch], _Stall | None]:
    """Return the longest wait that more time on a line of the finding explains by half, else the longest one, with its
    stall; without waits, the longest stretch that the finding costs. Further waits are those of the ranks between."""
    found = []
    for waits in _longest_waits(run, clock, finding.ranks):
        stall = _stall_before(run, clock, waits[-1], finding)
        if stall is None:
            continue
        found.append((waits, stall))
        if stall.stretch.line in finding.lines and _explains(stall, waits[-1]):
            return found[-1]
    return found[0] if found else ((), _longest_stretch(run, finding))


def _explains(stall: _Stall, wait: _Stretch) -> bool:
    return stall.more is not None and stall.more >= (wait.stop - wait.start) / 2


def _longest_waits(run: Run, clock: OneClock, late: Sequence[int]) -> Iterator[Sequence[_Stretch]]:
    """Yield the longest wait of any rank for one of these, through other ranks if that is longer, and then further ones
    of the same rank."""
    if not late:
        return
    waits = f"select rank, start, stop, line, late_rank from stretches where line in {_WAITS} "
    waits += f"and late_rank in ({_list(late)})"
    order = "order by stop - start desc, rank, start"
    direct = [_Stretch(*row) for row in run.rows(f"{waits} {order} limit 1")]
    yield from _through_others(run, clock, late, max((wait.stop - wait.start for wait in direct), default=0))
    for wait in direct:
        yield (wait,)
        for row in run.rows(f"{waits} and rank = {wait.rank} {order} limit {_MOST_WAITS} offset 1"):
            yield (_Stretch(*row),)


def _through_others(run: Run, clock: OneClock, late: Sequence[int], longer_than: int) -> Iterator[Sequence[_Stretch]]:
    """Yield the longest wait for a rank that itself waited for one of these, or for one that did, and so on."""
    rows = run.rows(
        "select max((stop - start, -rank, -start, line)) as longest, late_rank from stretches "
        f"where line in {_WAITS} and late_rank not in ({_list(late)}) and stop - start > {longer_than} "
        f"group by late_rank order by longest desc limit {_MOST_WAITS}"
    )
    for (length, rank, start, line), other in rows:
        waits = [_Stretch(-rank, -start, length - start, line, other)]
        while waits[-1].late not in late and len(waits) < _LONGEST_CHAIN:
            before = _wait_before(run, clock, waits[-1])
            if before is None or before.late in {wait.rank for wait in waits}:
                break
            waits.append(before)
        if waits[-1].late in late:
            yield waits
            return


def _wait_before(run: Run, clock: OneClock, wait: _Stretch) -> _Stretch | None:
    """Return the longest wait of the rank that is waited for, in the same step, if it explains half of the wait."""
    assert wait.late is not None, "a wait for a rank that is not known"
    first, last = clock.own(wait.late, np.array(_from_step_to_end(run, clock, wait))).tolist()
    rows = run.rows(
        f"select rank, start, stop, line, late_rank from stretches where rank = {wait.late} and line in {_WAITS} "
        f"and late_rank is not null and start < {last} and stop > {first} "
        f"and least(stop, {last}) - greatest(start, {first}) >= {(wait.stop - wait.start) / 2} "
        f"order by stop - start desc, start limit 1"
    )
    return _Stretch(*rows[0]) if rows else None


def _from_step_to_end(run: Run, clock: OneClock, wait: _Stretch) -> tuple[int, int]:
    """Return from where the first of the two ranks starts the step to the end of the wait."""
    assert wait.late is not None, "a wait for a rank that is not known"
    start, stop = clock.to_common(wait.rank, np.array([wait.start, wait.stop])).tolist()
    begin = _step_start(run, clock, (wait.rank, wait.late), start)
    return start - _BEFORE * (stop - start) if begin is None else begin, stop


def _stall_before(run: Run, clock: OneClock, wait: _Stretch, finding: Finding) -> _Stall | None:
    """Return the longest stretch of the late rank on the line on which it spent more time than the rank that waits,
    from where the first of the two starts the step to the end of the wait. Lines of the finding come first."""
    assert wait.late is not None, "a wait for a rank that is not known"
    begin, stop = _from_step_to_end(run, clock, wait)
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
    return _Stall(_Stretch(*rows[0]), more[line])


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


def _longest_stretch(run: Run, finding: Finding) -> _Stall | None:
    """Return the longest stretch on the line that the finding costs most on."""
    among = f"and rank in ({_list(finding.ranks)})" if finding.ranks else ""
    for line in sorted(finding.lines, key=lambda line: -finding.lines[line]):
        rows = run.rows(
            f"select rank, start, stop, line from stretches where line = '{line}' {among} "
            "order by stop - start desc, rank, start limit 1"
        )
        if rows:
            return _Stall(_Stretch(*rows[0]))
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

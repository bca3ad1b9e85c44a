"""Sessions of several ranks, grouped into attempts of the job.

A session is a process that was a rank. Sessions are one attempt if they have the same world size, on each host the same
count of restarts, and their times overlap: those of an attempt that was killed end before the next one starts. Counts
of two hosts are not compared: each launcher counts for itself, and only failures of its own. A rank is at most once in
an attempt. Attempts are numbered from 0 in the order in which they began, whatever ranks were in them: a job that
shrinks to one rank and grows again has three, and the rank that was absent in the second is in the first and the third.

Times are those of each host: if clocks of hosts differ by more than a session lasted, its ranks count as attempts of
their own. A session whose first record is lost has no world size, and joins an attempt that it overlaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lostflops.ingest.common.refusals import refuse_many_attempts


class SessionSpan(NamedTuple):
    """A session of a rank, and when it was seen."""

    rank: int
    session: str
    world_size: int | None
    restart: int | None
    start: int
    stop: int
    host: str | None = None


@dataclass(slots=True)
class _Attempt:
    start: int
    stop: int
    world_size: int | None
    sessions: dict[int, str] = field(default_factory=dict)
    restarts: dict[str | None, int | None] = field(default_factory=dict)
    """Restarts by host."""

    def takes(self, span: SessionSpan) -> bool:
        if span.rank in self.sessions or span.start > self.stop or span.stop < self.start:
            return False
        return span.world_size is None or (
            span.world_size == self.world_size and self.restarts.get(span.host, span.restart) == span.restart
        )

    def add(self, span: SessionSpan) -> None:
        self.sessions[span.rank] = span.session
        if span.world_size is not None:
            self.restarts[span.host] = span.restart
        self.stop = max(self.stop, span.stop)


def number(spans: Iterable[SessionSpan]) -> dict[tuple[int, str], int]:
    """Return the attempt of each rank's session.

    >>> first = [SessionSpan(0, "a", 2, 0, 0, 50), SessionSpan(1, "b", 2, 0, 2, 60)]
    >>> second = [SessionSpan(0, "d", 2, 2, 95, 99), SessionSpan(1, "e", 2, 2, 96, 99)]
    >>> number([*first, SessionSpan(0, "c", 1, 1, 70, 90), *second])
    {(0, 'a'): 0, (1, 'b'): 0, (0, 'c'): 1, (0, 'd'): 2, (1, 'e'): 2}
    """
    attempts: list[_Attempt] = []
    # Who lost its first record comes last: it must not keep an attempt from those that know theirs.
    for span in sorted(spans, key=lambda span: (span.world_size is None, span.start, span.rank, span.session)):
        fitting = [attempt for attempt in attempts if attempt.takes(span)]
        if not fitting:
            refuse_many_attempts(len(attempts) + 1)
            attempts.append(_Attempt(span.start, span.stop, span.world_size))
            fitting = attempts[-1:]
        fitting[-1].add(span)
    ordered = sorted(attempts, key=lambda attempt: attempt.start)
    return {(rank, session): place for place, one in enumerate(ordered) for rank, session in one.sessions.items()}

"""Another Python thread of the training process holds the interpreter lock (GIL)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lostflops.account.ledger.lines import COMM_LINES
from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share
from lostflops.explain.advise.claim import Claim, Place
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.job_facts import job_facts
from lostflops.explain.advise.signs.pressure import stretch
from lostflops.explain.advise.signs.series import series

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_LEAST: Final = 0.1
"""A thread is named if it uses at least this part of one core."""
_HELD: Final = ("idle.python", "idle.host", "unexplained")
"""Lines in which the training thread waits for the lock: between ops and between their parts."""
_BLOCKED: Final = (*COMM_LINES, "idle.data", "idle.sync")
"""Lines in which it waits for something else."""
_SMALLEST: Final = 0.03
_MOST: Final = 0.98
_MOSTLY: Final = 0.5
"""The other thread must explain at least this part of the training thread's waits. It holds the lock only while it runs
or waits for a core."""
_DOUBT: Final = "The thread uses only {} of a core, so the training thread may be waiting for something else."
_QUEUES: Final = "The training thread may be waiting for a core instead of the GIL."
_SLEEPS: Final = "The training thread also sleeps inside ops, so it may not be waiting for the GIL between them."


def _find(case: Case) -> Iterator[Claim]:
    told = job_facts(case, "threads")
    by_rank = {rank: _busiest(max(values, key=lambda value: value["time"])) for rank, values in told.items()}
    # With a device the training thread sleeps while autograd's own threads run: that is no wait for the lock.
    busy = {rank: one for rank, one in by_rank.items() if one is not None and rank in case.total.on_thread}
    held = {rank: one for rank, one in _measure_lock_waits(case).items() if rank in busy and one.share >= _SMALLEST}
    if not held:
        return
    worst = max(held, key=lambda rank: held[rank].share)
    name, cpu, places = busy[worst]
    lock = min(held[worst].share, _MOST)
    explained = min(lock, cpu * stretch(case))
    beside = _beside(case, worst, cpu, explained, is_elsewhere=len(held) > 1)
    at = f" at {places[0]}" if places else ""
    taken: dict[Place, int] = {place: ns for one in held.values() for place, ns in one.taken.items()}
    everywhere = len(held) == len(case.lines)
    yield Claim(
        cause="background_thread",
        what=(
            f"Thread {name!r}{at} holds the GIL: the training thread of rank {worst} waits {format_share(lock)} of its "
            "time for it."
        ),
        taken=taken,
        evidence=tuple(_evidence(case, rank, busy[rank], held[rank].share) for rank in sorted(held)[:4]),
        strength=Strength.STRONG,
        certain_if=f"run some steps without thread {name!r}: they must get shorter by the expected gain.",
        fix=(
            f"Move the work of thread {name!r} to another process (multiprocessing, a DataLoader worker) or to code "
            "that releases the GIL (NumPy, torch), or run it less often. Until then, call "
            "sys.setswitchinterval(0.0005) to shorten each wait."
        ),
        saving=Estimate.bound(
            min(min(held[worst].most, cpu * stretch(case)) + beside, _MOST),
            f"the time for which rank {worst}'s training thread neither ran nor waited for a core, data or other "
            "ranks, as far as this thread can hold the GIL; plus the waits for cores and late ranks that it "
            "can cause",
        ),
        ranks=() if everywhere else tuple(sorted(held)),
        suspected=_doubt(held[worst], explained, lock, cpu),
        instead_of=("host_python", "host_bound", "straggler", "optimizer", "small_batch"),
    )


def _doubt(held: _LockWaits, explained: float, lock: float, cpu: float) -> str:
    if explained < _MOSTLY * lock:
        return _DOUBT.format(format_share(cpu))
    if held.least < _SMALLEST:
        return _QUEUES
    return _SLEEPS if held.is_capped and cpu < _MOSTLY else ""


def _beside(case: Case, rank: int, cpu: float, explained: float, *, is_elsewhere: bool) -> float:
    """Return an upper limit of what the thread costs in addition to the lock, as a share of the step: waits of the
    training thread for a core, up to the CPU time of the thread, and waits for other ranks if such a thread delays them
    too."""
    lines = case.lines[rank]
    timed = series(case)
    inside = np.isin(timed.step, sorted(case.total.steps))
    at = timed.ranks.index(rank)
    whole, queued = (timed.column(name)[inside, at] for name in ("stop - start", "queued"))
    known = np.isfinite(queued) & np.isfinite(whole)
    waited = float(queued[known].sum() / max(whole[known].sum(), 1.0))
    late = lines["comm.wait"] / (sum(lines.values()) or 1) if is_elsewhere else 0.0
    return min(waited, cpu) + min(late, explained)


def _busiest(value: Any) -> tuple[str, float, list[str]] | None:
    """Return the busiest thread's name, the share of a core that it used, and where it mostly was; None if no thread is
    busy."""
    found = [(one["cpu"] / max(value["time"], 1), one) for one in value.get("threads", ())]
    busy = [(share, one) for share, one in found if share >= _LEAST]
    if not busy:
        return None
    share, one = max(busy, key=lambda pair: pair[0])
    return one["name"], share, [place for place, _ in one["places"]]


@dataclass(frozen=True, slots=True)
class _LockWaits:
    """Shares of the window's time in which a training thread waits for the lock."""

    least: float
    """Lower limit: none of its waits for a core are inside communication."""
    most: float
    """Upper limit: a proportional part of its waits for a core is inside communication."""
    taken: dict[Place, int]
    is_capped: bool
    """The training thread is off its core for longer than it is between ops."""

    @property
    def share(self) -> float:
        return (self.least + self.most) / 2


def _measure_lock_waits(case: Case) -> dict[int, _LockWaits]:
    """Return by rank the time off its core that the ledger gives no reason for."""
    timed = series(case)
    inside = np.isin(timed.step, sorted(case.total.steps))
    whole, cpu, queued = (timed.column(name)[inside] for name in ("stop - start", "cpu", "queued"))
    found = {}
    for at, rank in enumerate(timed.ranks):
        known = np.isfinite(cpu[:, at]) & np.isfinite(queued[:, at])
        lines = case.lines.get(rank)
        if lines is None or not known.any():
            continue
        wall = sum(lines.values()) or 1
        ran, waited = (float(part[known, at].sum() / whole[known, at].sum()) for part in (cpu, queued))
        free = 1 - sum(lines[line] for line in _BLOCKED) / wall
        room = sum(lines[line] for line in _HELD) / wall
        least, most = (min(max(free - ran - part, 0.0), room) for part in (waited, waited * free))
        is_capped = free - ran - waited > room
        found[rank] = _LockWaits(least, most, _on_lines(rank, lines, (least + most) / 2 * wall), is_capped)
    return found


def _on_lines(rank: int, lines: Mapping[str, int], ns: float) -> dict[Place, int]:
    taken: dict[Place, int] = {}
    for line in _HELD:
        part = min(lines[line], round(ns - sum(taken.values())))
        if part > 0:
            taken[rank, line] = part
    return taken


def _evidence(case: Case, rank: int, busy: tuple[str, float, list[str]], share: float) -> Evidence:
    name, cpu, places = busy
    lines = case.lines[rank]
    return Evidence(
        f"on rank {rank}, thread {name!r} used {format_share(cpu)} of a core; between ops the training thread was off "
        f"its core for {format_ns(round(share * sum(lines.values())))}, without waiting for a core",
        ranks=(rank,),
        steps=tuple(sorted(case.total.steps)),
        sources=tuple(places[:3]),
    )


RULE: Final = Rule(
    cause="background_thread",
    about=(
        "Only one Python thread runs at a time: the one that holds the interpreter lock (GIL). A busy Python thread "
        "holds it for 5 ms at a time, and the training thread needs it back after every op. Loggers, prefetchers and "
        "metric exporters written in Python cause this."
    ),
    find=_find,
)

"""The whole job in answers: its first sentence, its own ledger, what was compiled, and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.source_code import function_of, own_frame, place_of
from lostflops.account.job.compilations import Compilation, compilations
from lostflops.account.job.ending import Ending, describe_ending, ending_of
from lostflops.account.job.life import LIFE, TRAINING, describe_life, life_of, lives
from lostflops.core.results import Field, Pair, Section, Table

if TYPE_CHECKING:
    from lostflops.store.run import Run

JOB: Final = "job"
_MOST_ROWS: Final = 12


def first_sentence(run: Run) -> str:
    """Return how the job ended if that was not well, and what took most of its time if that was not training."""
    return " ".join(filter(None, (describe_ending(ending_of(run)), _describe_life(run))))


def _describe_life(run: Run, **more: int) -> str:
    life = life_of(run)
    by_rank = {rank: _sum(attempts) for rank, attempts in lives(run).items()}
    return describe_life(life, _count_ranks(life, by_rank), is_mean=len(by_rank) > 1, **more)


def headline_of_job(run: Run) -> str:
    """Return the first sentence in a few words."""
    if ended := describe_ending(ending_of(run)):
        return ended.partition(". ")[0].rstrip(".") + "."
    return _describe_life(run, most=1)


def report_job(run: Run) -> tuple[Section, Table, Table] | None:
    """Return the job's own ledger, the same by rank, and what was compiled; None if the collector did not record it."""
    by_rank = {rank: _sum(attempts) for rank, attempts in lives(run).items()}
    life = life_of(run)
    if not by_rank:
        return None
    ranks, whole = _count_ranks(life, by_rank), sum(life.values()) or 1
    rows = tuple(
        (line, round(life[line] / ranks), life[line] / whole, what) for line, what in LIFE.items() if life[line]
    )
    fields = (Field("line"), Field("ns", "ns", "time"), Field("share", "share"), Field("meaning"))
    section = Section(
        JOB, "The whole job", _describe(ending_of(run), life, round(whole / ranks)), Table("life", "", fields, rows)
    )
    return section, _tabulate_ranks(by_rank), _tabulate_compilations(run)


def _count_ranks(life: Mapping[str, int], by_rank: Mapping[int, Counter[str]]) -> float:
    """Return by how many ranks the life of a job is to be divided: attempts may have had more or fewer."""
    longest = max((split.total() for split in by_rank.values()), default=0)
    return sum(life.values()) / longest if longest else 1.0


def _sum(attempts: list[tuple[Counter[str], int, int]]) -> Counter[str]:
    return sum((split for split, _, _ in attempts), Counter[str]())


def _describe(ended: Ending | None, life: Mapping[str, int], wall: int) -> tuple[Pair, ...]:
    first = ended.first if ended is not None else None
    return (
        Pair("wall_ns", wall, "ns", "from start to end"),
        Pair("largest", max(life, key=life.__getitem__), shown=False),
        Pair("is_training", 2 * life.get(TRAINING, 0) >= sum(life.values()), shown=False),
        Pair("ended", describe_ending(ended) or None, label="how it ended", shown=ended is not None),
        Pair("exit_code", ended.exit_code if ended is not None else None, shown=False),
        Pair("signal", ended.signal if ended is not None else None, shown=False),
        Pair("failed_rank", first.rank if first is not None else None, shown=False),
        Pair("error", first.error if first is not None else None, shown=False),
        Pair("line", first.line if first is not None else None, shown=False),
        Pair("last_step", ended.step if ended is not None else None, shown=False),
    )


def _tabulate_ranks(by_rank: dict[int, Counter[str]]) -> Table:
    used = tuple(line for line in LIFE if any(split[line] for split in by_rank.values()))
    fields = (Field("rank"), Field("wall_ns", "ns", "all"), *(Field(line, "ns", within="lines") for line in used))
    rows = tuple((rank, split.total(), *(split[line] for line in used)) for rank, split in sorted(by_rank.items()))
    return Table("life_by_rank", "The whole job, by rank", fields, rows, most_shown=_MOST_ROWS)


def _tabulate_compilations(run: Run) -> Table:
    """Tabulate what was compiled by its call in the program and the guard that failed, the longest first."""
    found: dict[tuple[str, str, bool, str | None], list[Compilation]] = {}
    for one in compilations(run):
        frame = own_frame(one.stack)
        found.setdefault((place_of(frame), function_of(frame), one.is_forward, one.reason), []).append(one)
    rows = tuple(
        (
            place or None,
            function or None,
            "forward" if is_forward else "backward",
            len(ones),
            sum(one.ns for one in ones),
            len({one.rank for one in ones}),
            min((one.step for one in ones if one.step is not None), default=None),
            sum(one.is_cached for one in ones),
            reason,
        )
        for (place, function, is_forward, reason), ones in sorted(
            found.items(), key=lambda item: -sum(one.ns for one in item[1])
        )
    )
    fields = (
        Field("place", label="called at"),
        Field("function", label="in"),
        Field("pass"),
        Field("count", "count", "times"),
        Field("ns", "ns", "time, all ranks"),
        Field("ranks", "count"),
        Field("step", label="first in step"),
        Field("cached", "count", "from a cache", shown=False),
        Field("reason", label="guard that failed"),
    )
    return Table("compilations", "Compiled by torch.compile", fields, rows, most_shown=_MOST_ROWS)

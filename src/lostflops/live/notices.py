"""Notices between the steps: attempts, ranks that stop reporting, stalls, collectors that record less."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from lostflops.account.facts.changes import JobChange
from lostflops.core.units import format_bytes, format_ns, format_percent, pluralise
from lostflops.live.sessions import Attempt
from lostflops.live.stall import Heads, behind

NoticeKind = Literal["attempt", "ended", "silent", "back", "stall", "overhead", "change"]
LEVELS: Final = ("everything", "no collectives and no stacks", "only step boundaries", "nothing")
_MOST_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class Notice:
    kind: NoticeKind
    attempt: int
    ranks: tuple[int, ...]
    text: str


def attempt_begins(attempt: Attempt) -> Notice:
    hosts = pluralise(attempt.hosts, "host")
    so_far = "" if attempt.is_whole else f" ({len(attempt.sessions):,} so far)"
    restarted = "The job restarted, attempt" if attempt.number else "Attempt"
    text = f"{restarted} {attempt.number}: {pluralise(attempt.world_size, 'rank')}{so_far}, {hosts}."
    return Notice("attempt", attempt.number, (), text)


def all_ended(attempt: Attempt) -> Notice:
    text = f"All {pluralise(attempt.world_size, 'rank')} ended; still watching for another attempt."
    return Notice("ended", attempt.number, (), text.replace("All 1 rank ", "The rank "))


def ranks_are_silent(attempt: Attempt, ranks: Iterable[int], now: float) -> Notice:
    named = tuple(ranks)
    parts = []
    never = [rank for rank in named if rank not in attempt.sessions]
    if never:
        parts.append(f"{name_ranks(never)} never reported")
    by_host: dict[str, list[int]] = {}
    for rank in named:
        if rank in attempt.sessions:
            by_host.setdefault(attempt.sessions[rank].host, []).append(rank)
    for host, some in list(by_host.items())[:_MOST_NAMED]:
        steps = [attempt.sessions[rank].last_step for rank in some]
        heard = min(now - attempt.sessions[rank].heard for rank in some)
        last = "no step so far" if max(steps) < 0 else f"no step after {min(steps)}"
        parts.append(f"{name_ranks(some)} on {host}: {last}, last heard from {format_ns(round(heard * 1e9))} ago")
    if len(by_host) > _MOST_NAMED:
        parts.append(f"{len(by_host) - _MOST_NAMED} more hosts")
    return Notice("silent", attempt.number, named, "Other ranks continue without: " + "; ".join(parts) + ".")


def ranks_are_back(attempt: Attempt, ranks: set[int]) -> Notice:
    named = tuple(sorted(ranks))
    verb = "reports" if len(named) == 1 else "report"
    return Notice("back", attempt.number, named, f"{_capital(name_ranks(named))} {verb} steps again.")


def report_stall(attempt: Attempt, quiet: float, heads: Heads) -> Notice:
    text = f"No rank has finished a step for {format_ns(round(quiet * 1e9))}"
    found = behind(heads)
    if found is None:
        return Notice(
            "stall", attempt.number, (), f"{text}; the recorded collectives do not show which rank blocks the job."
        )
    others = "1 other has" if found.others == 1 else f"{found.others:,} others have"
    has = "has" if len(found.ranks) == 1 else "have"
    who = f"{name_ranks(found.ranks)} {has} not reached {found.op} {found.seq} of group {found.group}; {others}."
    return Notice("stall", attempt.number, found.ranks, f"{text}: {who}")


def report_change(attempt: int, change: JobChange) -> Notice:
    ranks = () if change.rank is None else (change.rank,)
    return Notice("change", attempt, ranks, describe_change(change))


def describe_change(change: JobChange) -> str:
    """Return a sentence about what became worse, since when, and by how much."""
    since, rise = f"Since about step {change.step}", format_percent(change.rise)
    if change.kind == "memory":
        sizes = f"{format_bytes(round(change.after))}, from {format_bytes(round(change.before))}"
        return f"{since}, memory has kept growing, by {rise} so far: {sizes}."
    times = f"{format_ns(round(change.after))} instead of {format_ns(round(change.before))}"
    cause = {
        "late_rank": f"; rank {change.rank} is the last to enqueue collectives",
        "data": f"; most of this is {'' if change.rank is None else f'rank {change.rank} '}waiting for data",
    }.get(change.kind, "")
    return f"{since}, steps take {rise} longer: {times}{cause}."


def less_is_recorded(attempt: Attempt, known: dict[int, int]) -> Notice | None:
    """Return a notice of ranks whose collector changed what it records since the last look; None if no rank's did.

    `known` keeps the last level of each rank, and is updated.
    """
    changed = {rank: one for rank, one in attempt.sessions.items() if one.level != known.get(rank, 0)}
    if not changed:
        return None
    known.update({rank: session.level for rank, session in changed.items()})
    worst = max(changed.values(), key=lambda session: session.level)
    records = LEVELS[min(worst.level, len(LEVELS) - 1)]
    reason = f": {worst.level_reason}" if worst.level_reason else ""
    text = f"The collector of {name_ranks(sorted(changed))} now records {records}{reason}."
    return Notice("overhead", attempt.number, tuple(sorted(changed)), text)


def name_ranks(ranks: Iterable[int]) -> str:
    """Return ranks as text, with ranges for consecutive ranks.

    >>> name_ranks([3]), name_ranks([0, 1, 2, 7]), name_ranks(range(0, 40, 2))
    ('rank 3', 'ranks 0-2, 7', 'ranks 0, 2, 4, 6, 8, 10, 12, 14, ... (20)')
    """
    numbers = sorted(ranks)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    if len(texts) > _MOST_NAMED:
        texts = [*texts[:_MOST_NAMED], f"... ({len(numbers):,})"]
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(texts)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

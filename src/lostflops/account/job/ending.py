"""How a job ended: which rank failed first, of what, where in the program, and what the others did then.

A rank that raised an error says so itself. One that was killed says nothing: its launcher knows the signal, and
`lostflops run` that of the command. A rank that was killed comes before those that raised an error, because errors of
collectives follow from it; else the earliest error is first.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lostflops.account.facts.source_code import function_of, own_frame, place_of
from lostflops.collect.capture import COMMAND, ENDED, FAILED, STOPPED
from lostflops.core.units import format_ns, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

_KEYS: Final = (ENDED, FAILED, COMMAND, STOPPED)
_LAST: Final = f"""
    with newest as (from attempts where attempt = (select max(attempt) from attempts)),
    stepped as (select rank, max(step) as step from timings join newest using (rank, attempt) group by rank),
    said as (
        select rank, {", ".join(f"list(value) filter (key = '{key}') as {key}" for key in _KEYS)}
        from job semi join newest using (rank, attempt) group by rank
    )
    select rank, newest.ended, stop, step, said.ended, failed, command, stopped
    from newest left join stepped using (rank) left join said using (rank) order by rank"""
_ASKED: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that ask a process to end: a launcher sends them to the ranks that are left."""
_OF_COLLECTIVES: Final = frozenset({"RuntimeError", "DistBackendError", "DistNetworkError", "DistStoreError"})
_FOLLOWS: Final = ("torch/distributed/", "torch/nn/parallel/", "torch/autograd/graph.py", "torch/_tensor.py")
"""Such an error from these files may follow from the death of another rank: DDP reduces inside the backward pass."""
_NAME: Final = re.compile(r"[A-Za-z_][\w.]{0,99}")
"""What a type may be called; a capture may come from anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """The end of one rank; None is unknown."""

    rank: int
    step: int | None
    """Last step that it finished."""
    time: int
    is_cut: bool = False
    """Whether the collector stopped before it ended, so that later steps are not known."""
    error: str | None = None
    line: str | None = None
    """Line of the program that raised, as `train.py:31`."""
    function: str | None = None
    signal: int | None = None
    exit_code: int | None = None
    is_ended: bool = True
    """Whether its program came to an end of its own."""
    is_seen: bool = False
    """Whether its launcher named it."""
    is_consequence: bool = False
    """Whether its error is one that the death of another rank causes."""
    command: tuple[int | None, int | None] | None = None
    """Exit code and signal of the command that it belonged to."""

    @property
    def is_well(self) -> bool:
        """Whether its command ended well, so that an error that it kept ended nothing."""
        return self.command is not None and self.command[0] == 0

    @property
    def has_failed(self) -> bool:
        if self.is_well:
            return False
        return bool(self.error or self.exit_code) or (self.signal is not None and self.signal not in _ASKED)

    def describe(self) -> str:
        """Return what happened to it, such as "raised ValueError at train.py:31 (train_step)"."""
        if self.error is not None:
            if self.error == KeyboardInterrupt.__name__:
                return "was interrupted" + self._where()
            return f"raised {self.error}" + self._where()
        if self.signal is not None:
            return f"was ended by {name_signal(self.signal)}"
        return f"ended with exit code {self.exit_code}" if self.exit_code else "was stopped"

    def _where(self) -> str:
        return "" if self.line is None else f" at {self.line} ({self.function})"


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of the newest attempt of a job."""

    exit_code: int | None
    signal: int | None
    """Of the command; both None if it is not known how it ended."""
    first: RankEnd | None
    """The rank that failed first; None if none failed, or it is not known which."""
    others: tuple[RankEnd, ...]
    step: int | None
    """Last step that every rank finished."""


def ending_of(run: Run) -> Ending | None:
    """Return how a job ended; None if it ended well, or it is not known that it ended."""
    ends = [_read_end(*row[:4], *map(_last_of, row[4:])) for row in run.rows(_LAST)]
    commands = [one.command for one in ends if one.command is not None]
    code = next((one for one, _ in commands if one), 0 if commands else None)
    received = next((one for _, one in commands if one), None)
    failed = sorted((one for one in ends if one.has_failed), key=partial(_order, among=ends))
    # A launcher names all that had failed when it noticed: whom it does not name, it stopped afterwards.
    silent = [one for one in ends if not (one.is_ended or one.has_failed or one.signal or one.is_well)]
    is_unseen = not any(one.is_seen for one in ends)
    if failed and failed[0].is_consequence and is_unseen and len(silent) == 1:
        failed.insert(0, silent[0])  # it was killed without a record, and the others noticed
    if not (failed or code or received):
        return None
    first = failed[0] if failed else None
    steps = [one.step for one in ends if one.step is not None]
    return Ending(code, received, first, tuple(one for one in ends if one is not first), min(steps, default=None))


def describe_ending(found: Ending | None) -> str:
    """Return how a job ended in a sentence or two; empty if it ended well."""
    if found is None:
        return ""
    first = found.first
    if first is None:
        how = f"by {name_signal(found.signal)}" if found.signal else f"with exit code {found.exit_code}"
        after = f" after step {found.step}" if found.step is not None else " before its first step ended"
        return f"The job was ended {how}{after}." if found.signal else f"The job ended {how}{after}."
    after = "in its first step" if first.step is None else f"after step {first.step}{' or a later one' * first.is_cut}"
    told = f"Rank {first.rank} {first.describe()}, {after}."
    if not (first.has_failed or first.signal):
        told = f"Rank {first.rank} was killed {after}; by what was not recorded."
    return " ".join((told, *_describe_others(found.others, first)))


def _describe_others(others: Sequence[RankEnd], first: RankEnd) -> Sequence[str]:
    by_end: dict[str, list[RankEnd]] = {}
    for one in others:
        if one.has_failed or one.signal or not one.is_ended:
            by_end.setdefault(one.describe() if one.has_failed else "was stopped", []).append(one)
    told = []
    for how, ranks in by_end.items():
        who = f"rank {ranks[0].rank}" if len(ranks) == 1 else pluralise(len(ranks), "other rank")
        verb = how if len(ranks) == 1 else how.replace("was ", "were ", 1)
        later = min(one.time for one in ranks) - first.time
        told.append(
            f"{who} {verb}" + (f" {format_ns(later)} later" if ranks[0].error and first.error and later > 0 else "")
        )
    return ["Then " + ", ".join(told) + "."] if told else []


def _last_of(texts: list[str] | None) -> dict[str, Any]:
    """Return the last fact of a key; a capture may come from anybody."""
    found = json.loads(texts[-1]) if texts else None
    return found if isinstance(found, dict) else {}


def _read_end(  # noqa: PLR0917 - the columns of a query
    rank: int,
    ended: bool | None,
    stop: int | None,
    step: int | None,
    said: dict[str, Any],
    seen: dict[str, Any],
    command: dict[str, Any],
    stopped: dict[str, Any],
) -> RankEnd:
    """Return how a rank ended, by what it said itself, what its launcher saw, and its command."""
    error = said.get("error") or seen.get("error")
    stack = str(said.get("stack") or seen.get("stack") or "")
    frame = own_frame(stack)
    return RankEnd(
        rank=rank,
        step=step,
        is_cut=bool(stopped),
        time=_number(said, "wall") or stop or 0,
        error=error if isinstance(error, str) and _NAME.fullmatch(error) else None,
        line=place_of(frame) or None,
        function=function_of(frame) or None,
        signal=_number(seen, "signal"),
        exit_code=_number(seen, "exit_code"),
        is_ended=bool(ended),
        is_seen=bool(seen),
        is_consequence=error in _OF_COLLECTIVES and any(part in stack.rpartition(";")[2] for part in _FOLLOWS),
        command=(_number(command, "exit_code"), _number(command, "signal")) if command else None,
    )


def _order(one: RankEnd, among: Sequence[RankEnd]) -> tuple[bool, bool, int]:
    """Killed ranks come first, then errors of their own, then those that may follow from another rank's death. A
    watchdog of collectives aborts ranks that wait for one with an error of its own."""
    has_own = any(other.error is not None and not other.is_consequence for other in among)
    is_killed = one.signal is not None and one.signal not in _ASKED
    is_killed = is_killed and not (one.signal == signal.SIGABRT and has_own)
    is_aborted = one.signal == signal.SIGABRT and has_own and one.error is None
    return not is_killed, one.is_consequence or is_aborted, one.time


def _number(value: Mapping[str, Any], name: str) -> int | None:
    found = value.get(name)
    return found if type(found) is int else None


def name_signal(number: int) -> str:
    """Return the name of a signal.

    >>> name_signal(15), name_signal(999)
    ('SIGTERM', 'signal 999')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

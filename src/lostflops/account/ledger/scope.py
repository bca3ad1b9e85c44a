"""Ranks, steps and window that a question is about, checked against the content of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.windows import WindowKind, choose
from lostflops.core.errors import UsageError

if TYPE_CHECKING:
    from lostflops.store.run import Run


MOST_LISTED: Final = 16


@dataclass(frozen=True, slots=True)
class Scope:
    """Ranks, steps and window that a question is about."""

    kind: WindowKind
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    """Empty if all steps are meant."""


def scope(run: Run, kind: WindowKind | None, ranks: Sequence[int] = (), steps: Sequence[int] = ()) -> Scope:
    chosen = tuple(sorted(set(ranks))) or run.ranks
    if unknown := sorted(set(chosen) - set(run.ranks)):
        raise UsageError(f"the run has no rank {_shortly(unknown)}; it has {_shortly(run.ranks)}")
    if steps and kind is WindowKind.TRACE:
        raise UsageError("--step does not work with --window trace: leave out one of them")
    held = run.rows(f"select distinct step from steps where rank in ({_join_numbers(chosen)}) order by step")
    recorded = [step for (step,) in held]
    if unknown := sorted(set(steps) - set(recorded)):
        raise UsageError(f"no step {_shortly(unknown)} was recorded; recorded steps: {_shortly(recorded) or 'none'}")
    if kind is WindowKind.STEPS and not recorded:
        raise UsageError("no steps were recorded: use --window trace, or call profiler.step() in the training loop")
    return Scope(WindowKind.STEPS if steps else kind or choose(run, chosen), chosen, tuple(sorted(set(steps))))


def _join_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _shortly(numbers: Sequence[int]) -> str:
    """List numbers; only their count and range if there are many.

    >>> _shortly([0, 1, 2]), _shortly(range(10_000))
    ('0, 1, 2', '10,000 from 0 to 9999')
    """
    return (
        _join_numbers(numbers)
        if len(numbers) <= MOST_LISTED
        else f"{len(numbers):,} from {min(numbers)} to {max(numbers)}"
    )

"""A run under diagnosis: the data that signs and rules read, each computed once, on first use.

Signs are functions of a case, so this module does not import them; `once_per_case` lets each compute its answer once.
"""

from __future__ import annotations

from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lostflops.account.align.mesh import Mesh, recognise
from lostflops.account.late.ranks import Judgement, judge_ranks
from lostflops.account.ledger.answers import ledgers, profiles_of
from lostflops.account.ledger.few_steps import few_steps
from lostflops.account.ledger.from_rows import has_accounts
from lostflops.account.ledger.scope import Scope, scope
from lostflops.account.ledger.total import RunLedger
from lostflops.account.pace.timed_steps import TimedSteps
from lostflops.core.errors import LostflopsError, ReplayDiffers, UnknownCost, UsageError
from lostflops.predict.whatif import predictions
from lostflops.predict.whatif.answer import answer, parse_change
from lostflops.predict.whatif.baseline import Baseline, baseline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lostflops.account.ledger.by_rank import Progress
    from lostflops.account.ledger.profile import StepProfile
    from lostflops.core.estimate import Estimate
    from lostflops.predict.whatif.change import Facts
    from lostflops.predict.whatif.predictions import StoredPrediction
    from lostflops.predict.whatif.run_facts import LearnTimes
    from lostflops.store.run import Run

_Answer = TypeVar("_Answer")

ENOUGH_STEPS: Final = 20
"""Profiled steps that suffice for rules: `lostflops run` records about as many by itself, and a saving that has no
clear sign in so many is not made clear by twice as many, whose error is still 0.7 times as large."""


class Case:
    """A run under diagnosis, read once for all signs and rules; a large run is represented by a few steps. `times`
    gives the durations of collectives if they differ from this run's own, as for `whatif`."""

    def __init__(self, run: Run, times: LearnTimes | None = None, progress: Progress | None = None) -> None:
        self._whole = run
        self.run = few_steps(run)
        self._times = times
        self._progress = progress
        self.answers: dict[Callable[[Case], Any], Any] = {}
        """Answers of signs, by the function that computed them."""
        self._savings: dict[tuple[str, ...], Estimate | None] = {}
        self.predictions: dict[tuple[str, ...], StoredPrediction] = {}
        """What-ifs that were answered, without their graphs: a diagnosis needs many, and graphs are large."""
        self.refused: dict[tuple[str, ...], str] = {}
        """Why requested what-ifs do not apply."""

    @cached_property
    def scope(self) -> Scope:
        return scope(self.run, None)

    @cached_property
    def total(self) -> RunLedger:
        return RunLedger.of(ledgers(self.run, self.scope, self._progress))

    @cached_property
    def profiles(self) -> tuple[StepProfile, ...]:
        """The figures of each rank by which ranks are compared."""
        return tuple(profiles_of(self.run, self.scope, self._progress))

    @cached_property
    def lines(self) -> dict[int, Mapping[str, int]]:
        """The ledger of each rank."""
        return {rank.rank: rank.lines for rank in self.total.ranks}

    @property
    def more_steps(self) -> str:
        """Flags that record enough steps; empty if this run has as many, so that more would not settle anything."""
        return "" if len(self.total.steps) >= ENOUGH_STEPS else f"--steps 8:{ENOUGH_STEPS}"

    @property
    def wall(self) -> int:
        """Wall time of all ranks together, in ns."""
        return self.total.total_ns

    @cached_property
    def mesh(self) -> Mesh:
        return recognise(self.run)

    @cached_property
    def judgement(self) -> Judgement:
        """Ranks that are late, compared with ranks that do the same work: in all steps if they are accounted for, as in
        `lostflops ranks`. A few steps of a large run need not show it."""
        asked = scope(self._whole, None)
        if self._whole is not self.run and has_accounts(self._whole, asked):
            return judge_ranks(self._whole, asked, self.mesh, self._progress)
        return judge_ranks(self.run, self.scope, self.mesh, profiles=self.profiles)

    @cached_property
    def timed_steps(self) -> TimedSteps | None:
        """Timings of all steps; None if the collector recorded none."""
        return TimedSteps.of(self.run)

    @cached_property
    def _baseline_or_error(self) -> Baseline | LostflopsError:
        try:
            return baseline(self.run, self._times, progress=self._progress)
        except (UnknownCost, UsageError) as error:
            return error

    @property
    def baseline(self) -> Baseline | None:
        """The replay of the unchanged run; None if it does not match the recorded steps or is impossible."""
        return None if isinstance(self._baseline_or_error, LostflopsError) else self._baseline_or_error

    @property
    def why_unpriced(self) -> str:
        return str(self._baseline_or_error) if isinstance(self._baseline_or_error, LostflopsError) else ""

    @property
    def replay_differs(self) -> bool:
        """Whether the replay does not match the recorded steps: the ledger may then be wrong as well."""
        return isinstance(self._baseline_or_error, ReplayDiffers)

    @property
    def facts(self) -> Facts | None:
        return self.baseline.facts if self.baseline is not None else None

    @property
    def job(self) -> Mapping[str, Any]:
        """Facts that the collector recorded about the job (table `job`); empty if there are none."""
        return self.facts.job if self.facts is not None else {}

    def price(self, *changes: str) -> Estimate | None:
        """Return what these what-ifs save together; None if they do not apply: `refused` says why."""
        if changes not in self._savings:
            self._savings[changes] = self._price_changes(changes)
        return self._savings[changes]

    def _price_changes(self, changes: tuple[str, ...]) -> Estimate | None:
        if self.baseline is None:
            self.refused[changes] = self.why_unpriced
            return None
        try:
            found = answer(self.baseline, [parse_change(text) for text in changes])
        except (UnknownCost, UsageError) as error:
            self.refused[changes] = str(error)
            return None
        self.predictions[changes] = predictions.make_prediction(self.run, found)
        return found.saving


def once_per_case(find: Callable[[Case], _Answer]) -> Callable[[Case], _Answer]:
    """Make a sign compute its answer for a case at the first call, and return the same answer at later calls."""

    @wraps(find)
    def ask(case: Case) -> _Answer:
        if ask not in case.answers:
            case.answers[ask] = find(case)
        answer: _Answer = case.answers[ask]
        return answer

    return ask

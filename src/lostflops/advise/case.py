"""A run under diagnosis: what rules read of it, each made once and when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from lostflops.advise.price import Price, price
from lostflops.advise.signs.computed import Computed, computed
from lostflops.advise.signs.fullness import Recorded, recorded
from lostflops.advise.signs.late import LateRank, late_ranks
from lostflops.advise.signs.traffic import Traffic, traffic
from lostflops.advise.signs.work_done import Done, work_done
from lostflops.align.mesh import Mesh, recognise
from lostflops.blame.judgement import Judgement, judged
from lostflops.errors import LostflopsError, ReplayDiffers, UnknownCost, UsageError
from lostflops.ledger.accounts import ledgers
from lostflops.ledger.few_steps import few_steps
from lostflops.ledger.scope import Scope, scope
from lostflops.ledger.total import RunLedger
from lostflops.pace.lateness import find_habits
from lostflops.pace.told import Told
from lostflops.predict.answers.answer import answer, wanted
from lostflops.predict.answers.baseline import Baseline, baseline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lostflops.ledger.by_rank import Progress
    from lostflops.predict.answers.facts_of import Told as Times
    from lostflops.predict.change import Facts
    from lostflops.store.run import Run


class Case:
    """`times` tells what collectives cost elsewhere than in this run, as for `whatif`. Of a large run a few steps are
    looked at."""

    def __init__(self, run: Run, times: Times | None = None, progress: Progress | None = None) -> None:
        self.run = few_steps(run)
        self._times = times
        self._progress = progress
        self._prices: dict[tuple[str, ...], Price | None] = {}
        self.refused: dict[tuple[str, ...], str] = {}
        """Why what-ifs do not apply, of those that were asked for."""

    @cached_property
    def asked(self) -> Scope:
        return scope(self.run, None)

    @cached_property
    def total(self) -> RunLedger:
        return RunLedger.of(ledgers(self.run, self.asked, self._progress))

    @cached_property
    def lines(self) -> dict[int, Mapping[str, int]]:
        """The ledger of each rank."""
        return {rank.rank: rank.lines for rank in self.total.ranks}

    @property
    def wall(self) -> int:
        """Of all ranks together, in ns."""
        return self.total.total_ns

    @cached_property
    def computed(self) -> list[Computed]:
        """What some ranks computed, piece by piece."""
        return computed(self.run, self.asked)

    @cached_property
    def mesh(self) -> Mesh:
        return recognise(self.run)

    @cached_property
    def judgement(self) -> Judgement:
        """Who is late, compared with ranks that do the same work."""
        return judged(self.run, self.asked, self.mesh, self.total.profiles, find_habits(self.run))

    @cached_property
    def done(self) -> list[Done]:
        """How much each rank did in each step, by what counts it."""
        return work_done(self)

    @cached_property
    def late(self) -> list[LateRank]:
        """Ranks that are late by habit, most waited for first."""
        return late_ranks(self)

    @cached_property
    def told(self) -> Told | None:
        """What the timings of all steps tell; None where the collector recorded none."""
        return Told.of(self.run)

    @cached_property
    def memory(self) -> Recorded:
        """Whose memory it is, where a window recorded it."""
        return recorded(self)

    @cached_property
    def _replayed(self) -> Baseline | LostflopsError:
        try:
            return baseline(self.run, self._times, progress=self._progress)
        except (UnknownCost, UsageError) as error:
            return error

    @property
    def baseline(self) -> Baseline | None:
        """The run replayed as it was; None where that does not come near it."""
        return None if isinstance(self._replayed, LostflopsError) else self._replayed

    @property
    def why_unpriced(self) -> str:
        return str(self._replayed) if isinstance(self._replayed, LostflopsError) else ""

    @property
    def replay_differs(self) -> bool:
        """Return whether the replay does not come near the recorded steps: then the ledger may be wrong as well."""
        return isinstance(self._replayed, ReplayDiffers)

    @cached_property
    def traffic(self) -> Traffic:
        """Its communication; raises `UnknownCost` where the run cannot be replayed."""
        if self.baseline is None:
            raise UnknownCost(self.why_unpriced)
        return traffic(self.run, self.baseline.graph, self.baseline.facts)

    @property
    def facts(self) -> Facts | None:
        return self.baseline.facts if self.baseline is not None else None

    @property
    def job(self) -> Mapping[str, Any]:
        """What the collector read of the job (table `job`), empty where nothing did."""
        return self.facts.job if self.facts is not None else {}

    def price(self, *changes: str) -> Price | None:
        """What the step takes with these what-ifs together; None where they do not apply, and `refused` says why."""
        if changes not in self._prices:
            self._prices[changes] = self._priced(changes)
        return self._prices[changes]

    def _priced(self, changes: Sequence[str]) -> Price | None:
        if self.baseline is None:
            self.refused[tuple(changes)] = self.why_unpriced
            return None
        try:
            return price(self.run, answer(self.baseline, [wanted(text) for text in changes]))
        except (UnknownCost, UsageError) as error:
            self.refused[tuple(changes)] = str(error)
            return None

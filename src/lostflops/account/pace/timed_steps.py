"""Timings of all steps, added to the answers of other questions, or shown in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from lostflops.account.pace import answers
from lostflops.account.pace.timings import JobPace, choose_pace, paces, within
from lostflops.core.errors import UsageError
from lostflops.core.results import Result, Table

if TYPE_CHECKING:
    from lostflops.store.run import Run

NO_LEDGER: Final = (
    "The run has no deep window, so only the phases of steps are known. For a ledger, record a window: lostflops run "
    "--steps FIRST:COUNT, or lostflops snap while the job runs."
)


class LateAnswer(NamedTuple):
    """What timed steps say about late ranks."""

    verdict: str
    table: Table
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TimedSteps:
    """Timings of some ranks of a run."""

    run: Run
    ranks: tuple[int, ...]
    paces: tuple[JobPace, ...]
    pace: JobPace

    @classmethod
    def of(cls, run: Run, ranks: Sequence[int] = ()) -> TimedSteps | None:
        """Return the timings; None if no step was timed."""
        found = paces(run, ranks)
        pace = choose_pace(found)
        return None if pace is None else cls(run, tuple(ranks), tuple(found), pace)

    def refuse_untimed(self, steps: set[int]) -> None:
        """Raise `UsageError` if one of these steps was not timed, in the attempt that is shown."""
        listed = ", ".join(map(str, sorted(steps))) or "null"
        of = f"{within(self.ranks, self.pace.attempt)} and step in ({listed})"
        timed = {step for (step,) in self.run.rows(f"select distinct step from timings where {of}")}
        if unknown := sorted(steps - timed):
            named, first, last = ", ".join(map(str, unknown)), self.pace.first_step, self.pace.last_step
            raise UsageError(f"no step {named} was recorded; attempt {self.pace.attempt} has steps {first} to {last}")

    def report(self, result: Result, late: LateAnswer | None = None) -> Result:
        """Add what was recorded in all steps to the report; if `late` is given, show that alone."""
        recorded = answers.report_recording(self.run, self.paces, self.pace)
        phases = answers.phases(self.pace)
        attempts = answers.attempts(self.run, self.paces)
        if late is None:
            return replace(
                result,
                blocks=(*result.blocks, recorded),
                notes=(*result.notes, *answers.notes(self.run, self.paces, self.pace)),
                more=(*result.more, phases, attempts),
            )
        return replace(
            result,
            verdict=f"{answers.went(self.run, self.pace)} {self._describe_late(late)}".strip(),
            blocks=(phases, recorded, *self._several(attempts), *_if_any(late.table)),
            notes=self._notes(late),
            more=(*result.blocks, *result.more, *self._single(attempts)),
            folded=(),
        )

    def steps(self, result: Result, steps: Sequence[int]) -> Result:
        """Add the timed steps to the answer about steps."""
        traced = f"Profiled: {result.verdict}" if result.verdict else ""
        recorded = answers.report_recording(self.run, self.paces, self.pace)
        listed = answers.list_steps(self.run, self.pace, self.ranks, steps)
        attempts = answers.attempts(self.run, self.paces)
        return replace(
            result,
            verdict=" ".join(filter(None, (traced, answers.went(self.run, self.pace)))),
            blocks=(*result.blocks, listed, recorded, *self._several(attempts)),
            notes=(*result.notes, *answers.notes(self.run, self.paces, self.pace)),
            more=(*result.more, *self._single(attempts)),
        )

    def late_ranks(self, result: Result, late: LateAnswer, is_empty: bool) -> Result:
        """Add which rank comes last to collectives to the answer about ranks; if it `is_empty`, show that alone."""
        table = late.table
        if not is_empty:
            return replace(result, more=(*result.more, table))
        return replace(
            result,
            verdict=late.verdict,
            blocks=_if_any(table),
            notes=self._notes(late),
            more=(*result.blocks, *result.more, *(() if table.rows else (table,))),
        )

    def _describe_late(self, late: LateAnswer) -> str:
        """Return what is said of late ranks; of a rank alone nothing."""
        return late.verdict if self.run.world_size > 1 else ""

    def _notes(self, late: LateAnswer) -> tuple[str, ...]:
        return (NO_LEDGER, *answers.notes(self.run, self.paces, self.pace), *late.notes)

    def _several(self, attempts: Table) -> tuple[Table, ...]:
        return (attempts,) if len(attempts.rows) > 1 else ()

    def _single(self, attempts: Table) -> tuple[Table, ...]:
        return () if len(attempts.rows) > 1 else (attempts,)


def _if_any(table: Table) -> tuple[Table, ...]:
    return (table,) if table.rows else ()

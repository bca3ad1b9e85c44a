"""The first findings, for the end of a report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lostflops.advise.case import Case
from lostflops.advise.diagnose import diagnosis
from lostflops.ledger.few_steps import is_large
from lostflops.results import Field, Finding, Result, Table, Value

if TYPE_CHECKING:
    from lostflops.store.run import Run

FIRST: Final = 3
LARGE: Final = "Causes were not looked for, because the run is large: lostflops diagnose names them."


def with_findings(report: Result, run: Run) -> Result:
    """The report, with the causes whose fix gains most; and how many there are in all. Without, where the run is
    large."""
    if is_large(run):
        return replace(report, notes=(*report.notes, LARGE))
    found = diagnosis(Case(run)).findings
    fields = (
        Field("cause"),
        Field("gain", "share"),
        Field("what"),
        Field("fix"),
        Field("lost_share", "share", shown=False),
        Field("confidence", "share", shown=False),
    )
    rows = tuple(_row(one) for one in found[:FIRST])
    table = Table("findings", "What to do about it", fields, rows, left_out=len(found) - len(rows))
    return replace(report, blocks=(*report.blocks, table)) if rows else replace(report, more=(*report.more, table))


def _row(one: Finding) -> tuple[Value, ...]:
    assert one.prediction is not None
    return one.cause, one.prediction.gain, one.what, one.fix, one.lost_share, one.confidence

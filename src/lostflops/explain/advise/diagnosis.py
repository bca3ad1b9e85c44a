"""A diagnosis as plain values: read from the run that stores it, and put in the same words by every verb.

This module knows no rule, so that a verb which only shows findings starts at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from lostflops.account.job.headline import describe_recording
from lostflops.core.results import Field, Figure, Finding, Findings, Result, Table
from lostflops.core.units import format_percent, pluralise
from lostflops.predict.whatif import predictions
from lostflops.predict.whatif.predictions import StoredPrediction
from lostflops.store.derived import code_digest
from lostflops.store.tables import DIAGNOSIS

if TYPE_CHECKING:
    from lostflops.store.run import Run

FOUND: Final = "found"
SUSPECTED: Final = "suspected"
LOCATED: Final = "located"
NOTHING: Final = "nothing"
SMALL: Final = "too small"
NOT_CHECKED: Final = "not checked"
NAMED_BETTER: Final = "named better"
_NEXT_RUN: Final = "lostflops run {} -- COMMAND"
SMALLEST: Final = 0.03
"""A fix is reported only if it saves at least this part of the step."""
_LARGEST_LEFT: Final = 0.01
"""A loss without a cause is named only if it takes at least this share of the time of all ranks."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Outcome of one rule."""

    cause: str
    outcome: str
    why: str = ""
    record: str = ""
    """Flags of `lostflops run` that record the missing data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedLoss:
    """A loss whose cause is not known, and the line of the program that it is at."""

    place: str
    function: str
    does: str
    """What the function does there: a pass of the step, or its own code."""
    ns: int
    share: float
    lines: dict[str, int]
    """Its time by line of the ledger, in ns over all ranks."""
    named: tuple[str, ...]
    """Frames to look at, as `step train.py:12`."""
    calls: tuple[str, ...]
    """Functions of libraries that it calls."""
    what: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Findings: certain ones first, then by what their fix saves. Plain values, so that a run can store them."""

    findings: tuple[Finding, ...]
    whatifs: tuple[StoredPrediction | None, ...]
    """The what-if that prices each finding, or None."""
    checked: tuple[Checked, ...]
    job: str
    """The job in a sentence."""
    wall: int
    """Wall time of all ranks together, in ns."""
    lines: dict[str, int]
    """Time of all ranks by line of the ledger, in ns."""
    excess: int
    """Compute time that findings claim, in ns."""
    notes: tuple[str, ...]
    """What was analysed, if that is not the whole run."""
    located: tuple[LocatedLoss, ...] = ()
    """Losses that no finding explains, the largest first."""

    @property
    def found(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if not one.is_suspected)

    @property
    def suspected(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.is_suspected)


def stored_diagnosis(run: Run) -> Diagnosis | None:
    """Return the diagnosis that the run stores; None if it stores no diagnosis, or one that other code made."""
    if run.steps or not run.manifest.files.get(DIAGNOSIS.name):
        return None
    rows = run.rows(f"select document from diagnosis where code = '{diagnosis_code()}'")
    if not rows:
        return None
    try:
        found = msgspec.json.decode(rows[0][0], type=Diagnosis)
    except (msgspec.MsgspecError, AssertionError, RecursionError):  # changed after it was written: it is made again
        return None
    # The run may have been moved since.
    moved = (one and structs.replace(one, run=structs.replace(one.run, path=str(run.path))) for one in found.whatifs)
    return replace(found, whatifs=tuple(moved))


def diagnosis_code() -> str:
    """Return the digest of the code that diagnoses, and of its calibration."""
    return code_digest("account", "core", "explain", "explain/advise/calibration.json", "predict", "store")


def as_result(run: Run, found: Diagnosis, most: int | None = None, *, keep: bool = False) -> Result:
    """Return a diagnosis as the answer to a question. Screens show the first `most` findings; `keep` stores their
    what-ifs in the run, for a later run to score."""
    return Result(
        name="diagnosis",
        version=3,
        title="Diagnosis",
        verdict=" ".join(filter(None, (found.job, in_short(found), describe_recording(run)))),
        blocks=(
            Findings("findings", "Findings", found.findings, most),
            *([located] if (located := tabulate_located(found)).rows else []),
        ),
        notes=(*_notes(found), *(store_predictions(run, found.whatifs[:most]) if keep else ())),
        more=(
            *([] if located.rows else [located]),
            _build_checked_table(found.checked),
            Figure("lost_ns", lost_ns(found)),
            Figure("wall_ns", found.wall),
        ),
    )


def tabulate_located(found: Diagnosis) -> Table:
    fields = (
        Field("what", label="where"),
        Field("share", "share"),
        *(Field(name, shown=False) for name in ("place", "function", "does", "level")),
        Field("ns", "ns", shown=False),
    )
    rows = tuple((one.what, one.share, one.place, one.function, one.does, LOCATED, one.ns) for one in found.located)
    more = tuple({"lines": one.lines, "named": list(one.named), "calls": list(one.calls)} for one in found.located)
    return Table("located", "Located: where time goes whose cause is not known", fields, rows, more=more)


def store_predictions(run: Run, whatifs: Sequence[StoredPrediction | None]) -> Iterator[str]:
    """Store the what-ifs of findings as predictions of the run; yield a note if that fails."""
    try:
        for one in whatifs:
            if one is not None:
                predictions.keep(one)
    except OSError as error:
        yield f"Predictions were not stored, so no later run can score them: {run.path}: {error.strerror}."


def lost_ns(found: Diagnosis) -> int:
    """Return all time that is not compute, and the part of compute that findings claim."""
    return found.wall - found.lines["compute"] + found.excess


def verdict(found: Diagnosis) -> str:
    """Name the first finding and what its fix saves; without findings, the first suspicion or the largest loss without
    a cause."""
    if found.found:
        return " ".join(filter(None, (says(found.found[0]), _others(found))))
    if found.suspected:
        first = found.suspected[0]
        more = f" To confirm, record: {_NEXT_RUN.format(first.record)}." if first.record else ""
        return f"No cause is certain yet. {says(first)} {first.doubt}{more}"
    return _nothing(found)


def in_short(found: Diagnosis) -> str:
    """Count the findings and say what fixing the first saves, if the findings themselves follow."""
    unsure = f", {len(found.suspected)} suspected" if found.suspected else ""
    if not found.found:
        return f"No cause is certain yet{unsure}." if unsure else _nothing(found)
    first = found.found[0]
    which = "it" if len(found.found) == 1 else "the first"
    if first.saving is None:
        return f"No cause of lost time found{unsure}; {pluralise(len(found.found), 'warning')} below."
    return f"{pluralise(len(found.found), 'cause')} found{unsure}. Fixing {which} saves {first.saves}."


def _nothing(found: Diagnosis) -> str:
    if not found.wall:
        return "No cause found. No steps were recorded in detail, so most causes could not be checked."
    return f"No cause found that costs {SMALLEST:.0%} of the step or more. {_describe_largest_loss(found)}"


def says(one: Finding) -> str:
    """Return a finding in words, with what its fix saves: the same in every verb."""
    if one.is_suspected:
        return f"Suspected: {one.what}" + ("" if one.saving is None else f" Fixing it may save {one.saves}.")
    return f"{one.what} It costs no time yet." if one.saving is None else f"{one.what} Fixing it saves {one.saves}."


def _others(found: Diagnosis) -> str:
    more, unsure = len(found.found) - 1, len(found.suspected)
    parts = ([f"{pluralise(more, 'other cause')} found"] if more else []) + ([f"{unsure} suspected"] if unsure else [])
    return f"{', '.join(parts)}." if parts else ""


def _describe_largest_loss(found: Diagnosis) -> str:
    """Describe the largest loss that no finding explains."""
    lost = {line: ns for line, ns in found.lines.items() if line != "compute"}
    line = max(lost, key=lambda name: lost[name], default="")
    share = lost.get(line, 0) / found.wall
    if share < _LARGEST_LEFT:
        return f"Compute takes {format_percent(found.lines['compute'] / found.wall)} of the time."
    said = f"The largest loss without a cause is {line}: {format_percent(share)} of the time of all ranks."
    where = max(found.located, key=lambda one: one.lines.get(line, 0), default=None)
    return f"{said} {where.what}" if where is not None and where.lines.get(line) else said


def _notes(found: Diagnosis) -> Iterator[str]:
    yield from found.notes
    if len(found.findings) > 1:
        yield "Each saving is for that fix alone; savings do not add up."
    yield from not_checked(found)


def not_checked(found: Diagnosis) -> Iterator[str]:
    """Yield the causes that the run has no data for, grouped by what would record it."""
    by_flags: dict[str, list[str]] = {}
    for one in found.checked:
        if one.outcome == NOT_CHECKED:
            by_flags.setdefault(f"needs `lostflops run {one.record}`" if one.record else one.why, []).append(one.cause)
    for why, causes in sorted(by_flags.items(), reverse=True):
        yield f"Not checked ({why.removesuffix('.')}): {', '.join(causes)}."


def _build_checked_table(rows: Sequence[Checked]) -> Table:
    fields = (Field("cause"), Field("outcome"), Field("why"), Field("record"))
    return Table("checked", "Checked", fields, tuple((one.cause, one.outcome, one.why, one.record) for one in rows))

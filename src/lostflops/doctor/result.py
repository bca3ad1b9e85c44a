"""All checks as one result."""

from __future__ import annotations

from collections.abc import Sequence

from lostflops.core.results import Field, Figure, Result, Table
from lostflops.doctor.check import DoctorCheck

_FIELDS = (
    Field("check"),
    Field("state"),
    Field("finding"),
    Field("consequence", shown=False),
    Field("do", shown=False),
    Field("is_needed", shown=False),
)


def result(checks: Sequence[DoctorCheck]) -> Result:
    rows = tuple(
        (check.name, check.state, check.finding, check.consequence, check.remedy, check.is_needed) for check in checks
    )
    notes = tuple(_note(check) for check in checks if check.state != "ok")
    return Result(
        "doctor",
        "What can be measured here",
        _verdict(checks),
        (Table("checks", "", _FIELDS, rows),),
        notes,
        more=(Figure("is_usable", is_usable(checks)),),
    )


def is_usable(checks: Sequence[DoctorCheck]) -> bool:
    """Return whether anything can be recorded at all."""
    return not any(check.is_needed and check.state == "no" for check in checks)


def _verdict(checks: Sequence[DoctorCheck]) -> str:
    lacking = [check.consequence for check in checks if check.is_needed and check.state == "no"]
    if lacking:
        return f"Cannot record: {'; '.join(lacking)}."
    limited = sum(check.state != "ok" for check in checks)
    return (
        f"Steps can be recorded; {limited} of {len(checks)} checks found a limit."
        if limited
        else "Everything can be measured."
    )


def _note(check: DoctorCheck) -> str:
    """Return the consequence of a check, and how to fix it.

    >>> full = {"name": "space", "state": "no", "finding": "1 MB free", "consequence": "records would be lost"}
    >>> _note(DoctorCheck(**full, remedy="make room"))
    'space: records would be lost. To fix it: make room.'
    """
    remedy = f" To fix it: {check.remedy}." if check.remedy else ""
    return f"{check.name}: {check.consequence.rstrip('.')}.{remedy}"

"""Outcomes of a library as tables: how often each rule is right, and whether ranges and probabilities hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from clinic.calibrate import (
    COVERAGE,
    Bin,
    Held,
    bin_chances,
    calibration_error,
    check_odds,
    check_ranges,
    elsewhere,
    fit_odds,
    probability,
)
from clinic.outcomes import Row, earlier_rows
from clinic.scoring import Count, Outcome, count
from clinic.tables import table
from lostflops.core.estimate import Kind
from lostflops.explain.advise.findings import FOUND_FROM


def reliability(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the tables, each with its heading."""
    yield f"### Entries\n\n{_entries(rows)}"
    yield f"### Findings\n\n{_findings(rows)}"
    yield f"### Ranges of savings\n\n{_ranges(check_ranges(rows))}\n\n{_measuring(rows)}"
    yield f"### Probability that a finding is right\n\n{_odds(rows)}"
    yield f"### Rules\n\n{_rules(rows)}"


def _entries(rows: Sequence[Row]) -> str:
    kinds = (("recorded, with a fault", True, True), ("recorded, healthy", True, False))
    kinds += (("simulated, with a fault", False, True), ("simulated, healthy", False, False))
    lines = []
    for name, is_real, is_sick in kinds:
        own = [row for row in rows if row.is_real is is_real and row.is_sick is is_sick]
        loads = {row.entry: row.load for row in own if row.load}
        busy = [len({row.entry for row in own if row.busy == cores}) for cores in (0, 1, 2)]
        jobs = str(len({row.job for row in own}))
        lines.append(
            (name, jobs, str(sum(busy)), *map(str, busy[1:]), f"{median(loads.values()):.0f}" if loads else "")
        )
    heads = ("kind", "jobs", "entries", "of them one core busy", "two cores busy", "median load")
    return table(heads, lines, right=range(1, 6))


def _findings(rows: Sequence[Row]) -> str:
    entries: dict[str, list[tuple[bool, Row]]] = {}
    for row, is_found in zip(rows, found(rows), strict=True):
        entries.setdefault(row.entry, []).append((is_found, row))
    lines = []
    for name, is_real in (("recorded", True), ("simulated", False)):
        seen = [own for own in entries.values() if own[0][1].is_real is is_real]
        sick = [own for own in seen if own[0][1].is_sick]
        healthy = [own for own in seen if not own[0][1].is_sick]
        first = [max(own, key=lambda pair: (pair[0], pair[1].value)) for own in sick]
        right = count(bool(is_found and row.is_right) for is_found, row in first)
        named = count(any(row.is_right for _, row in own) for own in sick)
        alarms = count(any(is_found for is_found, _ in own) for own in healthy)
        lines.append((name, str(right), str(named), str(alarms)))
    heads = (
        "jobs",
        "first finding right and at level found",
        "cause found or suspected",
        "false alarms in healthy jobs",
    )
    return table(heads, lines, right=(1, 2, 3))


def found(rows: Sequence[Row]) -> list[bool]:
    """Return whether each row is found and not suspected, by the outcomes of other jobs."""
    chances = elsewhere(rows, fit_odds, probability)
    return [
        bool(row.cause) and chance >= FOUND_FROM and row.kind is not Kind.GUESS and not _may_be_zero(row)
        for row, chance in zip(rows, chances, strict=True)
    ]


def _may_be_zero(row: Row) -> bool:
    return row.kind is not Kind.BOUND and row.low is not None and row.low <= 0


def _ranges(held: Sequence[Held]) -> str:
    heads = (
        "kind",
        "jobs that are",
        "jobs",
        "inside before",
        f"inside after ({COVERAGE:.0%} aimed at)",
        "with the error of measuring",
        "width before",
        "width after",
    )
    lines = [
        (
            str(one.kind),
            "recorded" if one.is_real else "simulated",
            str(one.jobs),
            *(f"{share:.0%}" for share in (one.raw, one.inside, one.inside_with_error)),
            *(f"{100 * width:.0f}" for width in (one.raw_width, one.width)),
        )
        for one in held
    ]
    return table(heads, lines, right=range(2, 8))


def _measuring(rows: Sequence[Row]) -> str:
    errors = [row.error for row in rows if row.has_range and row.is_real]
    if not errors:
        return "No saving of a recorded job was measured."
    return f"Measured savings of recorded jobs have a median standard error of {100 * median(errors):.1f} points."


def printed_odds(outcomes: Sequence[Outcome]) -> str:
    """Return how reliable the probabilities were that diagnoses printed; empty if they printed none."""
    pairs = [
        (row, finding.probability)
        for one in outcomes
        for row, finding in zip(earlier_rows(one, one.name, is_unseen=True), one.findings, strict=False)
        if row.is_right is not None and finding.probability is not None
    ]
    return _bins(bin_chances(*map(list, zip(*pairs, strict=True)))) if pairs else ""


def _odds(rows: Sequence[Row]) -> str:
    return _bins(check_odds(rows))


def _bins(bins: Sequence[Bin]) -> str:
    lines = [
        (f"{100 * one.low:.0f} to {one.high:.0%}", f"{one.weight:.0f}", f"{one.expected:.0%}", f"{one.right:.0%}")
        for one in bins
    ]
    shown = table(("probability", "jobs", "mean probability", "right"), lines, right=(1, 2, 3))
    return f"{shown}\n\nExpected calibration error: {calibration_error(bins):.3f}."


def _rules(rows: Sequence[Row]) -> str:
    chance_of = dict(zip(map(id, rows), elsewhere(rows, fit_odds, probability), strict=True))
    lines = []
    for cause in sorted({row.cause for row in rows if row.cause}):
        own = [row for row in rows if row.cause == cause]
        judged = [row for row in own if row.is_right is not None]
        chances = [chance_of[id(row)] for row in own]
        sure = [row for row in judged if chance_of[id(row)] >= FOUND_FROM]
        likely, right = (count(bool(row.is_right) for row in chosen) for chosen in (sure, judged))
        side = len(own) - len(judged)
        lines.append(
            (cause, str(right), _count(likely), str(side or ""), f"{100 * min(chances):.0f} to {max(chances):.0%}")
        )
    return table(
        ("cause", "right", "right when given 90% or more", "side effects", "probabilities given"),
        lines,
        right=range(1, 5),
    )


def _count(one: Count) -> str:
    return str(one) if one.of else ""

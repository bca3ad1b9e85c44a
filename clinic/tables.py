"""Outcomes as text: what the clinic prints, and the tables of docs/diagnosis-accuracy.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import shorten
from typing import Final

from clinic.scoring import HEALTHY, NEAR, NOTHING, Outcome, Score

NO_RULE: Final = "(no rule)"
"""The cause of a job with a fault that no rule can name; it counts as wrong."""
_WIDEST: Final = 60
"""Characters of a reason why a job could not be scored; the results have all of it."""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Of Markdown, padded so that it reads as text too; columns in `right` are flush right."""
    widths = [max(3, *(len(row[i]) for row in (heads, *rows))) for i in range(len(heads))]
    edges = [f"{'-' * (width - 1)}:" if i in right else "-" * width for i, width in enumerate(widths)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join(padded)} |"

    return "\n".join([line(heads), line(edges), *(line(row) for row in rows)])


def summary(outcomes: Sequence[Outcome]) -> str:
    score = Score.of(outcomes)
    rows = (
        ("first finding is right and found", str(score.top_1)),
        ("first finding is right, found or suspected", str(score.first_shown)),
        ("all causes are in the first three findings", str(score.top_3)),
        ("first finding names the rank at fault", str(score.rank)),
        *([("first finding names the layer at fault", str(score.layer))] if score.layer.of else ()),
        ("faults that no rule can name", str(score.unnamed)),
        ("false alarms in healthy jobs", str(score.false_alarms)),
        ("healthy jobs with any finding, suspected ones too", str(score.suspicions)),
        (f"if correct: predicted saving within {100 * NEAR:.0f} points of the measured", str(score.near)),
        ("if correct: measured saving inside the interval", str(score.inside)),
        ("for any finding that names the cause, found or suspected", str(score.inside_if_shown)),
        (
            "median width of the intervals, in points of the step",
            "" if score.width is None else f"{100 * score.width:.0f}",
        ),
        ("intervals that contain zero", str(score.about_zero)),
        ("not run here", str(score.skipped)),
    )
    return table(("", ""), rows, right=(1,))


def patients(outcomes: Sequence[Outcome]) -> str:
    heads = ("patient", "causes", "found", "right", "predicted", "interval", "measured", "load")
    return table(heads, [_patient(one) for one in outcomes], right=(4, 5, 6, 7))


def _patient(one: Outcome) -> tuple[str, ...]:
    first = (one.name, _named(["|".join(ids) or NO_RULE for ids in one.names], HEALTHY))
    if one.skipped or one.failed:
        return (*first, one.skipped or shorten(f"failed: {one.failed}", _WIDEST), "", "", "", "", "")
    found = _named([finding.cause for finding in one.found[:3]], NOTHING)
    if one.suspected:
        found += f" (suspected: {', '.join(finding.cause for finding in one.suspected)})"
    low_high = "" if one.interval is None else " to ".join(map(_share, one.interval))
    load = "" if one.load is None else f"{one.load:.1f}"
    return (*first, found, _verdict(one), _share(one.predicted), low_high, _share(one.measured), load)


def _verdict(one: Outcome) -> str:
    if not one.causes:
        return "false alarm" if one.is_false_alarm else "yes"
    said = "yes" if one.is_top_1 and one.is_top_3 else "first" if one.is_top_1 else "in three" if one.is_top_3 else "NO"
    missed = [("rank", one.rank is None or one.names_rank), ("layer", not one.layer or one.names_layer)]
    parts = [part for part, is_named in missed if one.is_top_1 and not is_named]
    return ", not the ".join((said, *parts))


def text(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield patients(outcomes)
    yield summary(outcomes)


def _named(causes: Sequence[str], otherwise: str) -> str:
    return ", ".join(causes) or otherwise


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"

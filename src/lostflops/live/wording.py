"""A step and a notice as a line of text, and as JSON."""

from __future__ import annotations

from typing import Any, Final

from lostflops.core.units import format_bytes, format_ns, format_share
from lostflops.live.board import StepLine
from lostflops.live.notices import Notice, name_ranks

SCHEMA: Final = "lostflops.watch/2"
_COLUMNS: Final = (
    ("step", 7),
    ("time", 8),
    ("median", 8),
    ("data", 6),
    ("samples/s", 9),
    ("tokens/s", 9),
    ("memory", 8),
    ("MFU", 6),
)
HEADING: Final = " ".join(name.rjust(width) for name, width in _COLUMNS) + "  late rank"


def step_text(line: StepLine, mfu: float | None) -> str:
    figures = (
        str(line.step),
        format_ns(line.time),
        format_ns(line.median),
        "-" if line.data_share is None else format_share(line.data_share),
        _rate(line.rate(line.samples)),
        _rate(line.rate(line.tokens)),
        "-" if line.peak_memory is None else format_bytes(line.peak_memory),
        "-" if mfu is None else format_share(mfu),
    )
    late = line.latecomer
    words = [f"rank {late.rank} +{format_ns(round(late.ns))} ({late.in_steps})" if late else "-"]
    words += line.marks
    if line.missing:
        words.append(f"missing: {name_ranks(line.missing)}")
    cells = (figure.rjust(width) for figure, (_, width) in zip(figures, _COLUMNS, strict=True))
    return " ".join(cells) + "  " + ", ".join(words)


def step_json(line: StepLine, mfu: float | None) -> dict[str, Any]:
    late = line.latecomer
    return {
        "schema": SCHEMA,
        "kind": "step",
        "attempt": line.attempt,
        "step": line.step,
        "time_ns": line.time,
        "median_ns": line.median,
        "slowest_rank": line.slowest,
        "data_share": line.data_share,
        "samples_per_second": line.rate(line.samples),
        "tokens_per_second": line.rate(line.tokens),
        "peak_memory": line.peak_memory,
        "mfu": mfu,
        "ranks": line.ranks,
        "missing": list(line.missing),
        "late": late
        and {
            "rank": late.rank,
            "lateness_ns": round(late.ns),
            "share": late.share,
            "late_steps": late.late_steps,
            "steps": late.steps,
            "since": late.since,
        },
        "marks": list(line.marks),
    }


def notice_json(notice: Notice) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "notice",
        "notice": notice.kind,
        "attempt": notice.attempt,
        "ranks": list(notice.ranks),
        "text": notice.text,
    }


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"

"""Summary of an ingest, as an answer for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.core.results import Field, Pair, Pairs, Result, Table
from lostflops.core.units import format_bytes, format_ns, pluralise

if TYPE_CHECKING:
    from lostflops.ingest.ingest import IngestSummary

_MOST_SKIPPED: Final = 10
_MOST_DOUBTFUL: Final = 3


def summarise(summary: IngestSummary, quality: Result | None) -> Result:
    """Return what was read; `quality` of the run adds a note if data of ranks is incomplete."""
    skipped = Table(
        "skipped",
        "Skipped files",
        (Field("file"), Field("reason")),
        tuple(summary.skipped[:_MOST_SKIPPED]),
        max(len(summary.skipped) - _MOST_SKIPPED, 0),
    )
    counts = _counts(summary)
    return Result(
        name="ingest",
        title="Ingested",
        verdict=_verdict(summary),
        blocks=(counts, skipped) if summary.skipped else (counts,),
        notes=_notes(quality),
    )


def _verdict(summary: IngestSummary) -> str:
    if not summary.bytes_read:
        return f"Nothing to do: {pluralise(len(summary.ranks_unchanged), 'rank')} already in the run, unchanged."
    ranks = len(summary.ranks_added) + len(summary.ranks_replaced)
    rate = f" ({format_bytes(round(summary.bytes_read / summary.seconds))}/s)" if summary.seconds > 0 else ""
    duration = format_ns(round(summary.seconds * 1e9))
    return f"{pluralise(ranks, 'rank')} and {pluralise(summary.events, 'event')} in {duration}{rate}."


def _counts(summary: IngestSummary) -> Pairs:
    return Pairs(
        "ingested",
        "",
        (
            Pair("run", str(summary.run), "", "Run"),
            Pair("ranks_added", len(summary.ranks_added), "count", "Ranks added"),
            Pair("ranks_replaced", len(summary.ranks_replaced), "count", "Ranks replaced"),
            Pair("ranks_unchanged", len(summary.ranks_unchanged), "count", "Ranks unchanged"),
            Pair("events", summary.events, "count", "Events"),
            Pair("bytes_read", summary.bytes_read, "bytes", "Read"),
            Pair("ns", round(summary.seconds * 1e9), "ns", "Time"),
        ),
    )


def _notes(quality: Result | None) -> tuple[str, ...]:
    doubtful = quality.to_json().get("doubtful_ranks", ()) if quality else ()
    if quality is None or not doubtful:
        return ()
    ranks = (f"Rank {row['rank']} ({row['quality']}): {row['reasons']}" for row in doubtful[:_MOST_DOUBTFUL])
    return (quality.verdict, *ranks)

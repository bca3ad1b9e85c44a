"""Figures of a run for experiment trackers: single ones from the report, and some for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lostflops.pace.timings import PHASES

if TYPE_CHECKING:
    from lostflops.results import Result
    from lostflops.store.run import Run

_NS_PER_MS = 1e6


def metrics(report: Result) -> dict[str, float]:
    """Return step time, MFU, the share of each line of the ledger, and what the first fix saves."""
    found = report.to_json()
    figures: dict[str, float | None] = {
        "mean_step_ms": (found["throughput"]["step_ns"] or 0) / _NS_PER_MS or None,
        "steps_per_second": found["throughput"]["steps_per_second"],
        "mfu": found["mfu"]["value"],
        **{f"share/{line['line']}": line["share"] for line in found["ledger"]["lines"] if line["ns"]},
    }
    sure = [one for one in report.findings if not one.is_suspected and one.prediction is not None]
    figures["first_finding_saves"] = sure[0].prediction.gain if sure and sure[0].prediction else None
    figures["findings"] = float(len(sure))
    return {name: value for name, value in figures.items() if value is not None}


def series(run: Run) -> tuple[tuple[int, dict[str, float]], ...]:
    """Return the time of each step and of its phases, in ms: the median of the ranks."""
    columns = ", ".join(f"median({phase})" for phase in PHASES)
    rows = run.sql(f"select step, median(stop - start), {columns} from timings group by step order by step").fetchall()
    return tuple(
        (
            step,
            {name: ns / _NS_PER_MS for name, ns in zip(("step_ms", *_names()), times, strict=True) if ns is not None},
        )
        for step, *times in rows
    )


def _names() -> tuple[str, ...]:
    return tuple(f"phase_ms/{phase}" for phase in PHASES)

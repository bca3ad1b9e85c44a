"""Figures of a run for experiment trackers: single values from the report, and some for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lostflops.account.pace.timings import PHASES, choose_pace, paces, within

if TYPE_CHECKING:
    from lostflops.core.results import Result
    from lostflops.store.run import Run

_NS_PER_MS = 1e6


def metrics(report: Result) -> dict[str, float]:
    """Return step time, MFU, HFU, the share of each line of the ledger, and what the first fix saves."""
    found = report.to_json()
    figures: dict[str, float | None] = {
        "mean_step_ms": (found["throughput"]["step_ns"] or 0) / _NS_PER_MS or None,
        "steps_per_second": found["throughput"]["steps_per_second"],
        "mfu": found["mfu"]["value"],
        "hfu": found["utilization"]["hfu"],
        **{f"share/{line['line']}": line["share"] for line in found["ledger"]["lines"] if line["ns"]},
    }
    savings = [one.saving.value for one in report.findings if one.saving is not None and not one.is_suspected]
    figures["first_finding_saves"] = savings[0] if savings else None
    figures["findings"] = float(len(savings))
    return {name: value for name, value in figures.items() if value is not None}


def series(run: Run) -> tuple[tuple[int, dict[str, float]], ...]:
    """Return the time of each step and of its phases, in ms: the median of the ranks, in the attempt that is shown."""
    pace = choose_pace(paces(run))
    if pace is None:
        return ()
    columns = ", ".join(f"median({phase})" for phase in PHASES)
    rows = run.rows(
        f"""select step, median(stop - start), {columns} from timings where {within((), pace.attempt)}
            group by step order by step"""
    )
    return tuple(
        (
            step,
            {name: ns / _NS_PER_MS for name, ns in zip(("step_ms", *_names()), times, strict=True) if ns is not None},
        )
        for step, *times in rows
    )


def _names() -> tuple[str, ...]:
    return tuple(f"phase_ms/{phase}" for phase in PHASES)

"""Every real trace with a known truth: counts and unions from the store equal it to the nanosecond."""

import csv
from pathlib import Path

import duckdb
import pytest

from lostflops.ingest import ingest
from lostflops.store.intervals import Intervals
from lostflops.store.run import Run
from tests.shared_data import TRACES, needs_traces

TRUTH = TRACES / "truth.csv"
ROWS = list(csv.DictReader(TRUTH.read_text().splitlines())) if TRUTH.exists() else []


def _intervals(events: duckdb.DuckDBPyRelation) -> Intervals:
    columns = events.fetchnumpy()
    return Intervals.of(columns["start"], columns["start"] + columns["dur"])


def device_window(run: Run) -> dict[str, int]:
    """What truth.csv states, from the store: compute before communication before copies before idle."""
    device = "select start, dur from events where kind in "
    compute = _intervals(run.sql(f"{device} ('kernel')"))
    comm = _intervals(run.sql(f"{device} ('comm')"))
    copies = _intervals(run.sql(f"{device} ('memcpy', 'memset')"))
    everything = run.sql(f"{device} ('kernel', 'comm', 'memcpy', 'memset')").fetchnumpy()
    start, stop = int(everything["start"].min()), int((everything["start"] + everything["dur"]).max())
    busy = compute | comm | copies
    counts = dict(run.sql("select kind, count(*) from events group by kind").fetchall())
    return {
        "kernels": counts.get("kernel", 0) + counts.get("comm", 0),
        "copies": counts.get("memcpy", 0) + counts.get("memset", 0),
        "comm_kernels": counts.get("comm", 0),
        "window_ns": stop - start,
        "busy_ns": busy.total,
        "compute_ns": compute.total,
        "comm_ns": comm.total,
        "hidden_comm_ns": (comm & compute).total,
        "exposed_comm_ns": (comm - compute).total,
        "exposed_copy_ns": (copies - compute - comm).total,
        "idle_ns": busy.gaps(start, stop).total,
    }


@needs_traces
def test_there_are_88_rows() -> None:
    assert len(ROWS) == 88


@needs_traces
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["trace"])
def test_store_equals_truth(row: dict[str, str], tmp_path: Path) -> None:
    ingest([TRACES / row["trace"]], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = device_window(run)
    assert found == {name: int(row[name]) for name in found}

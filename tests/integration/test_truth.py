"""Every real trace with a known truth: counts and unions from the store equal it to the nanosecond."""

import csv

import duckdb
import pytest

from lostflops.store.intervals import Intervals
from lostflops.store.run import Run
from tests.integration.real_runs import RealRun, real_runs
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


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    return real_runs(tmp_path_factory)


@needs_traces
def test_there_are_88_rows() -> None:
    assert len(ROWS) == 88


@needs_traces
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["trace"])
@pytest.mark.few(20)
def test_store_equals_truth(row: dict[str, str], real_run: RealRun) -> None:
    with Run.open(real_run(TRACES / row["trace"])) as run:
        found = device_window(run)
    assert found == {name: int(row[name]) for name in found}

"""Who is late in recorded jobs: where it was published, planted, or is plain from the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lostflops import Run
from lostflops.explain.analyze.comm import comm
from lostflops.explain.analyze.pipeline import pipeline
from lostflops.explain.analyze.ranks import ranks
from lostflops.explain.analyze.report import report
from report_checks import check_report
from shared_data import TRACES, needs_traces
from tests.integration.real_runs import RealRun, real_runs

pytestmark = needs_traces

TORCHREC = "meta-pytorch__torchrec"
SETS = sorted(folder.name for folder in (TRACES / TORCHREC).glob("sst_*"))
SLEEPING = [name for name in SETS if name.startswith("sst_sleep")]
PUBLISHED = "ByteDance-Seed__StragglerAnalysis"
Json = dict[str, Any]
Ns = npt.NDArray[np.int64]


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    return real_runs(tmp_path_factory)


def made(real_run: RealRun, pattern: str) -> Path:
    files = sorted(TRACES.glob(pattern))
    assert files
    return real_run(*files)


def judged(real_run: RealRun, pattern: str) -> Json:
    with Run.open(made(real_run, pattern)) as run:
        return ranks(run).to_json()


def published(name: str) -> Json:
    found: Json = json.loads((TRACES / PUBLISHED / f"result-{name}.json").read_text())
    return found


@pytest.mark.parametrize("name", [*SLEEPING, "sst_long_a2a_optimizer", "sst_long_a2a_optimizer_2"])
def test_the_torchrec_rank_that_sleeps(name: str, real_run: RealRun) -> None:
    first = judged(real_run, f"{TORCHREC}/{name}/*.gz")["stragglers"][0]
    assert (first["rank"], first["cause"]["line"], first["cause"]["name"]) == (2, "idle.python", "host_stall")


@pytest.mark.parametrize("name", SETS)
@pytest.mark.few(2)
def test_waits_fit_into_their_window(name: str, real_run: RealRun) -> None:
    with Run.open(made(real_run, f"{TORCHREC}/{name}/*.gz")) as run:
        found, told, talk = report(run).to_json(), ranks(run).to_json(), comm(run).to_json()
    check_report(found)
    walls = {rank["rank"]: rank["wall_ns"] for rank in found["ranks"]}
    waits = {rank["rank"]: rank["lines"]["comm.wait"] + rank["lines"]["comm.bubble"] for rank in found["ranks"]}
    steps = max(len(found["window"]["steps"]), 1)
    assert sum(waits.values()) > 0
    assert all(0 <= waits[rank] < wall for rank, wall in walls.items())
    for row in told["ranks"]:
        assert row["wait_ns"] * steps == pytest.approx(waits[row["rank"]], abs=steps)
    assert sum(row["charged_ns"] for row in told["ranks"]) == pytest.approx(sum(waits.values()), rel=1e-6, abs=8)
    for row in talk["collectives"]:
        assert 0 <= (row["wait_ns"] or 0) <= row["ns"]
        assert row["transfer_ns"] == row["ns"] - (row["wait_ns"] or 0)


def test_two_ranks_of_megatron_are_late_because_of_their_host(real_run: RealRun) -> None:
    late = judged(real_run, "astra-sim__astra-sim/megatron-tp8/*kineto*")["stragglers"]
    assert {row["rank"] for row in late} == {0, 6}
    assert {row["cause"]["line"] for row in late} == {"idle.host"}
    assert {row["cause"]["name"] for row in late} == {"host_stall"}


LAUNCHED = """
    select e.start, e.start + e.dur as stop, l.start as launched from events e
    join events l on e.rank = l.rank and e.correlation = l.correlation and l.kind = 'runtime'
    where e.kind in ('kernel', 'comm', 'memcpy', 'memset') and e.rank = {rank} order by e.start"""


def long_gaps(run: Run, rank: int) -> tuple[Ns, Ns]:
    """When a device began again after half a millisecond or more, and how long before that it had been told to."""
    start, stop, launched = (np.asarray(column) for column in run.sql(LAUNCHED.format(rank=rank)).fetchnumpy().values())
    ends = 1 + np.flatnonzero(start[1:] - np.maximum.accumulate(stop)[:-1] > 500_000)
    return start[ends], (start - launched)[ends]


def test_the_device_of_megatron_rank_0_takes_its_queue_up_late(real_run: RealRun) -> None:
    """Its kernels run in bursts, a turn every 2.4 ms, and those that begin one were launched about as long before: as
    where a device is shared."""
    with Run.open(made(real_run, "NVIDIA__Megatron-LM/tp2/rank*.pt.trace.json.gz")) as run:
        (first,) = ranks(run).to_json()["stragglers"]
        (begun, queued), (other, _) = long_gaps(run, 0), long_gaps(run, 1)
    assert (first["rank"], first["cause"]["line"], first["cause"]["name"]) == (0, "idle.dependency", "device_queue")
    assert (begun.size > 20, other.size <= 1) == (True, True)
    assert 2_000_000 < np.median(queued) < 2_600_000
    assert 2_300_000 < np.median(np.diff(begun)) < 2_600_000


def test_nanogpt(real_run: RealRun) -> None:
    """Rank 1 has extra time in two of four steps, and none in one: too few to call it late, but all wait for it."""
    found = judged(real_run, "KellerJordan__modded-nanogpt/2025-12-11*/*.gz")
    assert found["stragglers"] == []
    assert found["verdict"].startswith("No rank is late.")
    first, second = found["ranks"][:2]
    assert first["rank"] == 1
    assert first["charged_ns"] > 5 * second["charged_ns"]


def test_the_one_slow_worker_of_the_published_job(real_run: RealRun) -> None:
    """Stage 0 of data-parallel rank 0, as replacing its durations shows."""
    truth = published("AR")
    assert max(truth["blocking_decompose_by_dp_rank"].items(), key=lambda item: item[1])[0] == "0"
    assert max(truth["blocking_decompose_by_stage"].items(), key=lambda item: item[1])[0] == "0"
    found = judged(real_run, f"{PUBLISHED}/trace-AR.parquet")
    (first,) = found["stragglers"]
    assert (first["rank"], first["cause"]["line"], first["kind"]) == (0, "compute", "persistent")
    assert found["ranks"][0] | {"rank": 0, "place": "dp0,pp0"} == found["ranks"][0]
    waits = sum(row["wait_ns"] for row in found["ranks"]) * first["step"]["steps"]
    assert waits / 2 < first["charged_ns"] < waits


def test_a_long_stage_is_no_late_rank(real_run: RealRun) -> None:
    truth = published("ST")
    assert max(truth["blocking_decompose_by_stage"].items(), key=lambda item: item[1])[0] == "3"
    found = judged(real_run, f"{PUBLISHED}/trace-ST.parquet")
    assert found["stragglers"] == []
    assert found["verdict"].startswith("No rank is late")
    assert "Stage 3 takes" in found["verdict"]
    with Run.open(made(real_run, f"{PUBLISHED}/trace-ST.parquet")) as run:
        stages = pipeline(run).to_json()["stages"]
    assert max(stages, key=lambda row: row["vs_mean"])["stage"] == 3


def test_uneven_sequences_are_no_late_rank(real_run: RealRun) -> None:
    """Replacing the durations of any data-parallel rank saves about as much; that of number 8 most."""
    truth = published("SE")["blocking_decompose_by_dp_rank"]
    assert max(truth.items(), key=lambda item: item[1])[0] == "8"
    found = judged(real_run, f"{PUBLISHED}/trace-SE.parquet")
    places = {row["rank"]: row["place"] for row in found["ranks"]}
    assert {places[row["rank"]].split(",")[0] for row in found["stragglers"]} <= {"dp8"}
    assert found["stragglers"] or "Work is uneven" in found["verdict"]
    assert found["evenness"]["slowest_excess"] > 0.1

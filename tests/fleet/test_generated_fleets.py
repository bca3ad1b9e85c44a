"""Generated fleets, and runs of MLPerf: sums are closed, truth is planted, and the same plan gives the same fleet."""

from collections import Counter
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
import pytest

import lostflops
from lostflops.fleet.changes import add_runs
from lostflops.fleet.regressions import find_regressions
from lostflops.fleet.step_times import read_step_times
from lostflops.fleet.summary import RunSummary, check_summary
from lostflops.testing.fleet import FleetPlan, GeneratedFleet
from lostflops.testing.mlperf_runs import read_mlperf_runs
from shared_data import SHARED

MLPERF = SHARED / "mlperf"


def test_all_sums_are_closed_and_runs_are_in_order() -> None:
    runs = list(GeneratedFleet(FleetPlan(runs=200)).summaries())
    for run in runs:
        check_summary(run)
        assert sum(host.ranks for host in run.hosts) == run.ranks
        assert sum(host.window_ns for host in run.hosts) == run.window_ns
        assert 64 <= run.ranks <= 1024
    assert [run.start for run in runs] == sorted(run.start for run in runs)
    assert len({run.run for run in runs}) == 200
    assert {run.attempts > 1 for run in runs} == {True, False}


def test_a_summary_of_1024_ranks_is_small_and_read_back() -> None:
    runs = GeneratedFleet(FleetPlan(runs=400, jobs=80)).summaries()
    run = next(run for run in runs if run.ranks == 1024)
    data = msgspec.json.encode(run)
    assert len(data) < 200_000
    assert msgspec.json.decode(data, type=RunSummary) == run


def test_the_same_plan_gives_the_same_fleet() -> None:
    plan = FleetPlan(runs=100, seed=7)
    fleet = GeneratedFleet(plan)
    assert list(islice(fleet.summaries(), 5)) == list(islice(GeneratedFleet(plan).summaries(), 5))
    assert fleet.truth == GeneratedFleet(plan).truth
    assert fleet.truth != GeneratedFleet(FleetPlan(runs=100, seed=8)).truth


def test_slow_hosts_are_slow_and_hold_up_the_others() -> None:
    fleet = GeneratedFleet(FleetPlan(runs=200, hosts=256, changed=0))
    slow = {host.host: host.slower for host in fleet.truth.slow_hosts}
    assert len(slow) == 5
    seen: dict[str, list[float]] = {name: [] for name in slow}
    waits: dict[bool, list[float]] = {True: [], False: []}
    for run in fleet.summaries():
        for host in run.hosts:
            if host.host in slow and host.slower is not None:
                seen[host.host].append(host.slower)
        waits[any(host.host in slow for host in run.hosts)].append(run.lines["comm.wait"] / run.window_ns)
    for name, values in seen.items():
        assert np.median(values) == pytest.approx(slow[name], abs=0.01)
    assert np.median(waits[True]) > 2 * np.median(waits[False])


def test_regressions_begin_at_their_commit() -> None:
    fleet = GeneratedFleet(FleetPlan(runs=400, regressions=1, slow_hosts=0, run_noise=1e-4))
    runs = list(fleet.summaries())
    assert len(fleet.truth.regressions) == 10
    for change in fleet.truth.regressions:
        own = [run for run in runs if run.name == change.job]
        before, after = own[: change.index], own[change.index :]
        assert (before[-1].commit, after[0].commit) == (change.commit_before, change.commit)
        assert after[0].run == change.run
        rise = np.median([run.step_ns for run in after]) / np.median([run.step_ns for run in before])
        assert rise == pytest.approx(1.03, abs=0.006)


@pytest.mark.skipif(not MLPERF.exists(), reason="no step series of MLPerf beside the checkout")
def test_mlperf_runs_have_a_pace_and_show_no_change() -> None:
    runs = read_mlperf_runs(MLPERF)
    for run in runs:
        check_summary(run)
        assert run.step_ns is not None
        assert run.hosts == []
        assert run.window_ns == 0
        assert sum(pace.steps for pace in run.pace) <= (run.steps or 0)
    assert len(runs) == 42
    assert Counter(Counter(run.name for run in runs).values()) == {3: 14}
    assert max(run.ranks for run in runs) == 8192
    assert all(pace.changes == () for pace in find_regressions(read_step_times(runs)))


@pytest.mark.skipif(not MLPERF.exists(), reason="no step series of MLPerf beside the checkout")
def test_mlperf_runs_and_generated_runs_share_a_table(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="the extra fleet is not installed")
    generated, logged = list(GeneratedFleet(FleetPlan(runs=60, hosts=64)).summaries()), read_mlperf_runs(MLPERF)
    add_runs(tmp_path / "fleet", [*generated, *logged])
    found = lostflops.ask_fleet(tmp_path / "fleet", by="week").to_json()
    assert found["runs"] == 60 + 42
    hours = sum(run.total_ns for run in [*generated, *logged]) / 3.6e12
    assert found["hours_in_all"] == pytest.approx(hours)
    assert {row["name"][:4] for row in found["groups"]} == {"2025", "2026"}
    assert sum(row["compute"] is None for row in found["groups"]) == 1  # a week of MLPerf alone has no detail
    jobs = {row["job"] for row in found["jobs"]}
    assert {run.name for run in logged} <= jobs
    alone = lostflops.ask_fleet(tmp_path / "fleet", labels=["job=llama31_405b"]).to_json()
    assert (alone["runs"], alone.get("changes", []), alone.get("slow_hosts", [])) == (42, [], [])
    assert lostflops.ask_fleet(tmp_path / "fleet", since="2025-10-01").to_json()["runs"] == 60

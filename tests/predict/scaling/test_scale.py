"""Predictions from synthetic runs, against the same cluster with more ranks."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lostflops import Run
from lostflops.core.errors import UnknownCost, UsageError
from lostflops.explain.analyze.steps import steps as analyse_steps
from lostflops.predict.costs.collective_times import CollectiveTimes
from lostflops.predict.costs.times import CollectiveTime, CommGroup, CommTimes, Op
from lostflops.predict.scaling.own_times import OwnTimes
from lostflops.predict.scaling.scale import scale
from lostflops.testing import LostRecords, Model, Network, Straggler, SyntheticCluster, store

SLOW = Network(gbs=20, inter_gbs=5)
MODEL = Model(buckets=4)


class Truth:
    """The network of a synthetic cluster, as a source of times."""

    def __init__(self, network: Network = SLOW, faster: float = 1.0) -> None:
        self._network, self._faster = network, faster

    def time(self, op: Op, size: int, group: CommGroup, algorithm: str | None = None) -> CollectiveTime:
        assert op == "all_reduce"
        assert algorithm is None
        ns = self._network.all_reduce(size, group.ranks, group.hosts > 1) / self._faster
        return CollectiveTime(ns=ns, low=0.9 * ns, high=1.2 * ns, algorithm="ring", source="the truth")


def truth(_: OwnTimes) -> CommTimes:
    return Truth()


def learned(own: OwnTimes) -> CommTimes:
    return CollectiveTimes.of(learned=own)


def cluster(ranks: int, per_host: int = 1, **more: Any) -> SyntheticCluster:
    return SyntheticCluster(ranks=ranks, ranks_per_host=per_host, network=SLOW, model=MODEL, steps=5, **more)


def run_of(folder: Path, made: SyntheticCluster) -> Path:
    return store(made.generate(), folder / f"run{made.ranks}", host_names=True)


def predict(run: Path, *ranks: int, times: Callable[[OwnTimes], CommTimes] = truth, **options: Any) -> dict[int, Any]:
    with Run.open(run) as opened:
        told = scale(opened, ranks, times, **options).to_json()
    return {row["ranks"]: row for row in told["ranks"]}


def measured(run: Path) -> float:
    with Run.open(run) as opened:
        return float(analyse_steps(opened).to_json()["spread"]["median_ns"])


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("eight"), cluster(8))


@pytest.fixture(scope="module")
def thirty_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("more"), cluster(32))


@pytest.mark.parametrize("times", [truth, learned])
@pytest.mark.few(1)
def test_more_ranks_take_what_they_take(eight: Path, thirty_two: Path, times: Callable[[OwnTimes], CommTimes]) -> None:
    told = predict(eight, 32, times=times)
    now, then = measured(eight), measured(thirty_two)
    assert told[8]["step_ns"] == pytest.approx(now, abs=1)
    assert told[32]["step_ns"] == pytest.approx(then, rel=0.01)
    assert told[32]["low_ns"] < then < told[32]["high_ns"]
    assert then > 1.08 * now, "growth must be there to be told"
    assert told[32]["efficiency"] == pytest.approx(now / then, rel=0.01)


@pytest.mark.parametrize(
    "more",
    [
        {"per_host": 4, "tensor_parallel": 2},
        {"stragglers": (Straggler(rank=3, cause="slow_kernels", factor=1.5),)},
    ],
    ids=["tensor parallel", "a late rank"],
)
@pytest.mark.few(1)
def test_what_does_not_grow_stays(tmp_path: Path, more: dict[str, Any]) -> None:
    before, after = (run_of(tmp_path, cluster(ranks, **more)) for ranks in (8, 32))
    assert predict(before, 32)[32]["step_ns"] == pytest.approx(measured(after), rel=0.01)


def test_from_one_host_to_several(tmp_path: Path, thirty_two: Path) -> None:
    one_host = run_of(tmp_path, cluster(8, per_host=8))
    told = predict(one_host, 16, 32)
    assert [told[ranks]["hosts"] for ranks in (8, 16, 32)] == [1, 2, 4]
    assert told[32]["step_ns"] == pytest.approx(measured(thirty_two), rel=0.01)
    with pytest.raises(UnknownCost, match="or describe the machine with --topology"):
        predict(one_host, 16, times=learned)


def test_a_faster_network_is_never_slower(eight: Path) -> None:
    found = [predict(eight, 64, times=lambda _, f=faster: _Slower(f))[64]["step_ns"] for faster in (0.5, 1.0, 2.0, 8.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


class _Slower(Truth):
    """Only larger groups are on the faster network."""

    def __init__(self, faster: float) -> None:
        super().__init__()
        self._rest = Truth(faster=faster)

    def time(self, op: Op, size: int, group: CommGroup, algorithm: str | None = None) -> CollectiveTime:
        return self._rest.time(op, size, group, algorithm) if group.ranks > 8 else super().time(op, size, group)


def test_one_rank_exchanges_nothing(eight: Path) -> None:
    told = predict(eight, 1)
    with Run.open(eight) as run:
        ledger = {row["rank"]: row["lines"] for row in analyse_steps(run).to_json()["ranks"]}
    assert told[1]["exposed_ns"] < 0.01 * told[8]["exposed_ns"] + 20_000  # waits for late ranks are kept
    assert told[8]["exposed_ns"] == pytest.approx(
        sum(lines["comm.transfer"] + lines["comm.wait"] for lines in ledger.values()) / len(ledger), rel=0.02
    )


def test_strong_scaling_divides_compute(eight: Path) -> None:
    weak, strong = predict(eight, 16), predict(eight, 16, strong=True)
    assert strong[8]["step_ns"] == weak[8]["step_ns"]
    assert strong[16]["step_ns"] < weak[16]["step_ns"]
    assert strong[16]["speedup"] == pytest.approx(strong[8]["step_ns"] / strong[16]["step_ns"])
    assert strong[16]["efficiency"] == pytest.approx(strong[16]["speedup"] / 2)


def test_ranks_must_be_whole_replicas(tmp_path: Path) -> None:
    run = run_of(tmp_path, cluster(8, tensor_parallel=2))
    with pytest.raises(UsageError, match=r"9 ranks are not a whole number of replicas: each has 2 ranks \(tp=2\)"):
        predict(run, 9)


def test_a_pipeline_cannot_be_told(tmp_path: Path) -> None:
    run = run_of(tmp_path, cluster(4, pipeline_parallel=2, microbatches=2))
    with pytest.raises(UnknownCost, match="pipeline of 2 stages"):
        predict(run, 8)


def test_a_run_without_replicas_cannot_be_told(tmp_path: Path) -> None:
    run = run_of(tmp_path, cluster(2, tensor_parallel=2))
    with pytest.raises(UnknownCost, match="no data-parallel group"):
        predict(run, 4)


def test_hosts_must_be_known(tmp_path: Path) -> None:
    run = store(cluster(4).generate(), tmp_path / "run")
    with pytest.raises(UnknownCost, match="give --ranks-per-host"):
        predict(run, 8)
    assert predict(run, 8, ranks_per_host=1)[8]["hosts"] == 8


FAST = Network(gbs=1000, inter_gbs=1000, alpha=100, inter_alpha=100)
LATE = (Straggler(rank=0, cause="slow_kernels", factor=1.5),)


def test_one_rank_waits_for_nobody(tmp_path: Path) -> None:
    made = SyntheticCluster(ranks=4, ranks_per_host=1, network=FAST, model=MODEL, steps=3, stragglers=LATE)
    told = predict(run_of(tmp_path, made), 1)
    assert told[4]["exposed_ns"] > 100_000
    assert told[1]["exposed_ns"] == 0
    assert told[1]["efficiency_alone"] == 1


def test_waits_may_shrink_with_compute(tmp_path: Path) -> None:
    """A late rank computes for longer; with an eighth of the work it is an eighth as late."""
    made = SyntheticCluster(ranks=4, ranks_per_host=1, network=FAST, model=MODEL, steps=3, stragglers=LATE)
    told = predict(run_of(tmp_path, made), 32, strong=True)
    assert told[32]["low_ns"] < told[32]["step_ns"] - 0.5 * told[4]["exposed_ns"]


def test_a_rank_recorded_alone_does_not_know_its_waits(tmp_path: Path) -> None:
    """What it waited does not grow with transfers, as far as another call of the kind waited less."""
    made = SyntheticCluster(ranks=4, ranks_per_host=1, network=SLOW, model=MODEL, steps=5, noise=0.2).generate()
    whole = predict(store(made, tmp_path / "whole", host_names=True), 64)[64]
    first = replace(made, traces=replace(made.traces, by_rank=made.traces.by_rank[1:2]))
    with Run.open(store(first, tmp_path / "first", host_names=True)) as run:
        found = scale(run, (64,), truth, ranks_per_host=1)
    told = found.to_json()["ranks"][-1]
    assert any("a member was not recorded" in note for note in found.notes)
    assert told["low_ns"] < whole["step_ns"] < told["high_ns"]
    assert told["step_ns"] == pytest.approx(whole["step_ns"], rel=0.05)


def test_calls_without_a_size_may_grow_as_others_do(tmp_path: Path, thirty_two: Path) -> None:
    run = run_of(tmp_path, cluster(8, lost=LostRecords(metadata=0.3)))
    with Run.open(run) as opened:
        found = scale(opened, (32,), truth)
    told = found.to_json()["ranks"][-1]
    assert told["low_ns"] < measured(thirty_two) < told["high_ns"]
    assert any("Kept as measured although their groups grow (" in note for note in found.notes)


def test_a_run_that_hardly_knows_its_sizes_is_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path, cluster(8, lost=LostRecords(metadata=0.9)))
    with Run.open(run) as opened, pytest.raises(UnknownCost, match="have no recorded operation and size"):
        scale(opened, (32,), truth)

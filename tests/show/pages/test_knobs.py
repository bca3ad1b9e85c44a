"""Knobs of clusters whose truth is known: what a position predicts is what the cluster does when it is built so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lostflops import Run
from lostflops.account.ledger.few_steps import AFFORDED
from lostflops.core.errors import AlreadySo
from lostflops.core.pictures import Knob, Knobs, Setting
from lostflops.core.results import Result
from lostflops.core.units import format_ns
from lostflops.predict.whatif.baseline import Baseline, baseline, replayed_once
from lostflops.predict.whatif.change import Change
from lostflops.predict.whatif.changes import CHANGES as KNOWN
from lostflops.show.pages.knob_positions import MOST_TIMES, try_changes
from lostflops.show.pages.knobs import LARGE, knobs, turn_knobs
from lostflops.show.pages.scales import AS_RECORDED
from lostflops.testing import Model, Network, Straggler, SyntheticCluster, store
from made_whatif import CHANGES, LARGER_STEPS, made, of
from memory_run import MemoryRun

SLOW = Network(alpha=5_000, gbs=5)
CLUSTER = SyntheticCluster(
    ranks=4, steps=3, network=SLOW, model=Model(first_bucket=1), stragglers=(Straggler(2, "slow_kernels", factor=1.5),)
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Result]:
    with Run.open(store(CLUSTER.generate(), tmp_path_factory.mktemp("knobs") / "run")) as run:
        yield knobs(run)


@pytest.fixture
def measured(tmp_path: Path) -> Callable[[SyntheticCluster], int]:
    """The mean step of another cluster."""

    def mean_step(other: SyntheticCluster) -> int:
        with Run.open(store(other.generate(), tmp_path / "other")) as run:
            return round(baseline(run).measured)

    return mean_step


@pytest.fixture(scope="module")
def start() -> Iterator[Baseline]:
    """A step computes 80, then exchanges for 20."""
    with MemoryRun() as run:
        yield baseline(run, build=of(made()))


def block(result: Result) -> Knobs:
    (found,) = (one for one in result.blocks if isinstance(one, Knobs))
    return found


def knob(result: Result, change: str) -> Knob:
    return next(one for one in block(result).items if one.change == change)


def position(result: Result, change: str, value: str) -> Setting:
    return next(one for one in knob(result, change).settings if one.value == value)


def test_lines_sum_at_every_position(cluster: Result) -> None:
    found = block(cluster)
    assert sum(ns for _, ns in found.lines) == found.measured_ns
    told = [one for own in found.items for one in own.settings if one.predicted_ns is not None]
    assert len(told) > 20
    for one in told:
        assert sum(ns for _, ns in one.lines) == one.predicted_ns
        assert one.low_ns < one.predicted_ns < one.high_ns


def test_now_is_the_measured_step_exactly(cluster: Result) -> None:
    found = block(cluster)
    for own in found.items:
        now = own.settings[own.now]
        assert (now.predicted_ns, now.lines) == (found.measured_ns, found.lines)
    at = {own.change: own.settings[own.now].value for own in found.items}
    assert at["network.bandwidth"] == "1x"
    assert at["world_size"] == "4"
    assert at["straggler"] == at["bucket_mb"] == AS_RECORDED


def test_a_faster_network_is_what_the_cluster_does_on_one(cluster: Result, measured) -> None:
    found = position(cluster, "network.bandwidth", "4x")
    assert found.predicted_ns == pytest.approx(measured(replace(CLUSTER, network=replace(SLOW, gbs=20))), rel=0.01)
    before, after = dict(block(cluster).lines), dict(found.lines)
    assert after["comm.transfer"] < 0.5 * before["comm.transfer"]
    assert after["compute"] == pytest.approx(before["compute"], rel=0.001)


def test_without_its_straggler_the_cluster_is_as_predicted(cluster: Result, measured) -> None:
    found = position(cluster, "straggler", "removed")
    assert found.predicted_ns == pytest.approx(measured(replace(CLUSTER, stragglers=())), rel=0.02)
    before, after = dict(block(cluster).lines), dict(found.lines)
    assert after.get("comm.wait", 0) < 0.1 * before["comm.wait"]


def test_values_stand_in_order(cluster: Result) -> None:
    def values(change: str) -> str:
        return " ".join(one.value for one in knob(cluster, change).settings)

    assert values("network.bandwidth") == "0.25x 0.5x 1x 2x 4x 8x"
    assert values("world_size") == "1 2 4 8 16 64 256"
    assert values("accumulate") == "1 2 4 8"
    assert [one.work for one in knob(cluster, "accumulate").settings] == [1, 2, 4, 8]


def test_switches_that_move_most_come_first_behind_what_is_gradual(cluster: Result) -> None:
    found = block(cluster)
    assert [own.change for own in found.items[:2]] == ["bucket_mb", "network.bandwidth"]
    switches = found.items[[own.change for own in found.items].index("straggler") :]
    moved = [max(abs(one.predicted_ns - found.measured_ns) for one in own.settings if one.lines) for own in switches]
    assert len(moved) > 3
    assert moved == sorted(moved, reverse=True)


def test_what_does_not_apply_says_why(cluster: Result) -> None:
    refused = {row["change"]: row["reason"] for row in cluster.to_json()["not_applicable"]}
    reason = next(reason for names, reason in refused.items() if "microbatches" in names.split(", "))
    assert reason == "no microbatch passes and no transfers between stages were recorded: this is not a pipeline"


def test_the_verdict_names_the_best_that_can_be_set(cluster: Result) -> None:
    best = min(
        (
            one
            for own in block(cluster).items
            if own.change not in ("python", "overlap", "world_size", "network.bandwidth", "network.latency")
            for one in own.settings
        ),
        key=lambda one: (one.work > 1, one.predicted_ns is None, one.predicted_ns),
    )
    assert f"={best.value} a step takes {format_ns(best.predicted_ns)}, " in cluster.verdict.partition(". ")[0]


def test_hardware_is_no_setting_and_named_as_what_it_is(tmp_path: Path) -> None:
    def verdict_of(*names: str) -> str:
        return turn_knobs(start, [change for change in KNOWN if change.name in names]).verdict

    with Run.open(store(CLUSTER.generate(), tmp_path / "run")) as run:
        start = baseline(run)
        setting, hardware = verdict_of("straggler", "network.bandwidth").split(". Other hardware would save more: ")
        alone = verdict_of("network.bandwidth")
    gains_most = "The best setting among 2 changes, each tried alone: "
    assert setting.startswith(f"{gains_most}with straggler=removed a step takes ")
    assert hardware.startswith("with network.bandwidth=8x a step takes ")
    none = "None of 1 change shortens the step by more than chance, except other hardware: "
    assert alone == none + hardware


def test_fewer_ranks_are_no_gain_since_they_train_on_less(tmp_path: Path) -> None:
    ranks = [change for change in KNOWN if change.name == "world_size"]
    with Run.open(store(CLUSTER.generate(), tmp_path / "run")) as run:
        found = turn_knobs(baseline(run), ranks)
    assert position(found, "world_size", "1").high_ns < block(found).measured_ns
    assert found.verdict == "None of 1 change shortens the step by more than chance."


def test_large_runs_are_not_replayed_for_a_page() -> None:
    with MemoryRun(ranks=[{"rank": 0, "events": AFFORDED + 1}]) as run:
        found = knobs(run)
    assert (found.verdict, found.blocks) == (LARGE, ())


def test_large_graphs_get_fewer_positions(start: Baseline) -> None:
    change = replace(CHANGES[0], tried=tuple(f"{factor}x" for factor in range(1, 9)))
    few, all_of_them = (knob(turn_knobs(start, (change,), afforded), "network") for afforded in (1, 10_000))
    assert [one.value for one in all_of_them.settings] == [AS_RECORDED, *change.tried]
    assert [one.value for one in few.settings] == [AS_RECORDED, "1x", "8x"]


def test_a_page_replays_a_run_once(tmp_path: Path) -> None:
    with Run.open(store(SyntheticCluster(ranks=1).generate(), tmp_path / "run")) as run:
        with replayed_once():
            once = baseline(run)
            assert baseline(run) is once
        assert baseline(run) is not once


def test_knobs_together(start: Baseline) -> None:
    found = try_changes(start, [("network", "2x"), ("compute", "2x")], CHANGES)
    assert (found.value, found.predicted_ns) == ("network=2x, compute=2x", 50)
    assert found.lines == (("compute", 40), ("comm.transfer", 10))
    assert found.how == "network 2x\ncompute 2x"
    assert found.notes == ("bytes stay",)


def test_a_step_of_more_work_says_how_much(start: Baseline) -> None:
    assert try_changes(start, [("twice", "on")], LARGER_STEPS).work == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([("never", "on")], "no loader was recorded"),
        ([("network", "2x"), ("never", "on")], "never=on does not apply: no loader was recorded"),
        ([("network", "fast")], "network=fast: give a factor such as 2x or 0.5x"),
        ([("nothing", "1")], "no change is called 'nothing'. lostflops whatif RUN --list shows all"),
        (
            [("accumulate", "1000000")],
            f"accumulate=1000000 is too large for a page, which replays at most {MOST_TIMES}",
        ),
    ],
)
def test_what_cannot_be_told_is_said_in_words(start: Baseline, changes: list[tuple[str, str]], why: str) -> None:
    found = try_changes(start, changes, CHANGES)
    assert found.predicted_ns is found.low_ns is found.high_ns is None
    assert found.why_not == why


def test_what_is_so_already_changes_nothing(start: Baseline) -> None:
    def already(*_: object) -> None:
        raise AlreadySo("so it is")

    same = Change(name="same", form="same=on", about="", cost="", how=str, apply=already, tried=("on",))
    assert try_changes(start, [("same", "on")], (same,)).predicted_ns == 100
    assert try_changes(start, [("network", "2x"), ("same", "on")], (*CHANGES, same)).predicted_ns == 90

"""The report on synthetic clusters: every rank's and every step's ledger is the truth, to the nanosecond.

Until ranks are matched with each other, waiting in a collective counts with its transfer. A launching call is the
host's until it returns, also past the smallest launch latency.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.windows import WindowKind
from lostflops.explain.analyze.report import report
from lostflops.explain.analyze.steps import steps
from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.testing import (
    CAUSES,
    Clock,
    Generated,
    HostCosts,
    Losses,
    LostRecords,
    Model,
    Network,
    RankTruth,
    Straggler,
    SyntheticCluster,
    Trace,
)
from lostflops.testing.program import ITEM_COPY
from lostflops.testing.strategies import small_clusters
from tests.report_checks import COMM, IDLE, LINES, check_report

SLOW_EXAMPLES = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""An example takes a second; shrinking one takes minutes, and is left to the slow tests."""

CLEAN = SyntheticCluster(ranks=2, steps=3)
ALL_LOSSES = Losses(
    data=2_000_000, copy_bytes=1_000_000, memset_bytes=3_000_000, sync=True, alloc=300_000, python=900_000
)
TWO_HOSTS = replace(CLEAN, ranks=4, ranks_per_host=2)
SLOW_CALLS = HostCosts(dispatch=500, launch_call=30_000, launch_latency=2_000)

CLUSTERS = {
    "data parallel": CLEAN,
    "one rank": replace(CLEAN, ranks=1),
    "one step": replace(CLEAN, steps=1, first_step=0),
    "all losses": replace(CLEAN, losses=ALL_LOSSES),
    "all losses, launch-bound": replace(CLEAN, losses=replace(ALL_LOSSES, launch_factor=20)),
    "all losses on one rank and step": replace(CLEAN, losses=replace(ALL_LOSSES, steps=(11,), ranks=(1,))),
    "two losses": replace(CLEAN, losses=Losses(data=2_000_000, sync=True)),
    "compilation": replace(CLEAN, losses=Losses(compile=2_000_000, sync=2)),
    "pageable batches": replace(CLEAN, losses=Losses(data=300_000, copy_bytes=1_000_000, pageable=True)),
    "jitter and stacks": replace(
        CLEAN, host=HostCosts(jitter=0.1), network=Network(jitter=0.1), stacks=True, losses=ALL_LOSSES, overlap=False
    ),
    "slow host": replace(CLEAN, host=HostCosts(dispatch=100_000, between_ops=3_000, between_steps=50_000)),
    "slow launch calls": replace(CLEAN, host=SLOW_CALLS),
    "slow launch calls and streams": replace(CLEAN, host=SLOW_CALLS, kernel_gap=20_000, losses=Losses(launch_factor=3)),
    "gaps within streams": replace(CLEAN, kernel_gap=900),
    **{
        f"straggler: {cause}": replace(CLEAN, ranks=3, stragglers=(Straggler(1, cause, factor=1.5, delay=1_500_000),))
        for cause in CAUSES
    },
    "two stragglers and losses": replace(
        CLEAN,
        ranks=4,
        losses=ALL_LOSSES,
        stragglers=(Straggler(0, "slow_kernels", factor=2.0, steps=(11,)), Straggler(3, "host_stall", delay=700_000)),
    ),
    "tensor parallel": replace(CLEAN, ranks=4, tensor_parallel=2, losses=Losses(sync=True, alloc=300_000)),
    "pipeline": replace(CLEAN, ranks=4, pipeline_parallel=4, microbatches=4),
    "pipeline, all forward first": replace(
        CLEAN, ranks=4, pipeline_parallel=2, microbatches=3, schedule="gpipe", losses=ALL_LOSSES
    ),
    "tensor, data and pipeline": replace(
        CLEAN,
        ranks=8,
        steps=2,
        tensor_parallel=2,
        pipeline_parallel=2,
        microbatches=2,
        stragglers=(Straggler(5, "slow_kernels", factor=1.5),),
    ),
    "two clocks": replace(TWO_HOSTS, clocks={1: Clock(offset=-987_654_321)}, losses=ALL_LOSSES),
    "two clocks that drift": replace(
        TWO_HOSTS, clocks={0: Clock(12_345, drift_ppm=-20.0), 1: Clock(-987_654_321, drift_ppm=37.5)}, losses=ALL_LOSSES
    ),
    "two compute streams": replace(CLEAN, compute_streams=2, losses=Losses(sync=True)),
    "two compute streams and stages": replace(
        CLEAN, ranks=4, compute_streams=2, pipeline_parallel=2, microbatches=2, losses=ALL_LOSSES, kernel_gap=700
    ),
    "no metadata of collectives": replace(CLEAN, lost=LostRecords(metadata=0.5), seed=3),
}


@contextmanager
def ingested(generated: Generated) -> Iterator[Run]:
    with TemporaryDirectory() as folder:
        ingest(generated.traces.write(Path(folder) / "traces"), Path(folder) / "run", workers=1)
        with Run.open(Path(folder) / "run") as run:
            yield run


def expected_steps(rank: RankTruth, trace: Trace) -> dict[int, dict[str, int]]:
    """Lines of each step of a rank, on its own clock."""
    enders = {}
    for event in trace.record.device_events:
        known = enders.get(event.start)
        if known is None or event.launch.start < known.launch.start:
            enders[event.start] = event
    found = {step.step: dict.fromkeys(LINES, 0) for step in rank.steps}
    for segment in rank.segments:
        line = segment.line
        pieces = [(line, segment.start, segment.stop)]
        if line == "idle.dependency" and "DtoH" not in enders[segment.stop].name:
            returned = min(max(enders[segment.stop].launch.stop, segment.start), segment.stop)
            pieces = [("idle.host", segment.start, returned), (line, returned, segment.stop)]
        for step in rank.steps:
            for name, start, stop in pieces:
                begin, end = max(start, step.start), min(stop, step.stop)
                if begin < end:
                    found[step.step][name] += rank.clock.read(end) - rank.clock.read(begin)
    return found


def check_lines(found: dict[str, int], expected: dict[str, int], rounding: int, waits_are_told: bool) -> None:
    """Clocks that drift are read in whole nanoseconds, which may move the border between two reasons for a gap, or
    between a wait and the transfer after it."""
    assert sum(found.values()) == sum(expected.values())
    if not waits_are_told:
        found, expected = ({**lines, **dict.fromkeys(COMM, sum(lines[c] for c in COMM))} for lines in (found, expected))
    if rounding:
        moved = (*IDLE, *COMM)
        expected = {line: pytest.approx(ns, abs=rounding) if line in moved else ns for line, ns in expected.items()}
    assert found == expected


def check_ledger(generated: Generated, run: Run) -> None:
    whole = report(run, window=WindowKind.STEPS).to_json()
    check_report(whole)
    by_step = {(row["rank"], row["step"]): row for row in steps(run).to_json()["ranks"]}
    by_rank = {row["rank"]: row for row in whole["ranks"]}
    assert by_rank.keys() == {rank.rank for rank in generated.truth.ranks}
    assert by_step.keys() == {(rank.rank, step.step) for rank in generated.truth.ranks for step in rank.steps}
    for rank, trace in zip(generated.truth.ranks, generated.traces, strict=True):
        rounding = 2 * len(rank.segments) if any(clock.drift_ppm for clock in generated.truth.clocks.values()) else 0
        expected = expected_steps(rank, trace)
        for step, lines in expected.items():
            row = by_step[rank.rank, step]
            check_lines(row["lines"], lines, rounding, not generated.truth.lost)
            assert row["wall_ns"] == sum(lines.values())
        whole_rank = {line: sum(lines[line] for lines in expected.values()) for line in LINES}
        check_lines(by_rank[rank.rank]["lines"], whole_rank, rounding, not generated.truth.lost)
        assert by_rank[rank.rank]["wall_ns"] == rank.own_wall


def check_trace_window(generated: Generated, run: Run) -> None:
    found = report(run, window=WindowKind.TRACE).to_json()
    check_report(found)
    for row, rank in zip(found["ranks"], generated.truth.ranks, strict=True):
        truth, lines = rank.device_window, row["lines"]
        assert row["wall_ns"] == truth.window_ns
        assert lines["compute"] == truth.compute_ns
        assert sum(lines[line] for line in COMM) == truth.exposed_comm_ns
        assert lines["copy"] == truth.exposed_copy_ns
        assert sum(lines[line] for line in IDLE) == truth.idle_ns
    windows = [rank.device_window for rank in generated.truth.ranks]
    assert found["overlap"]["comm_ns"] == sum(window.comm_ns for window in windows)
    assert found["overlap"]["hidden_ns"] == sum(window.hidden_comm_ns for window in windows)


def check_flops(generated: Generated, run: Run) -> None:
    """What all steps and each alone launched; and that what ran in the time of each sums to all of it."""
    numbers = [step.step for step in generated.truth.ranks[0].steps]
    ran = {}
    for chosen in ((), *((number,) for number in numbers)):
        found = {ledger.rank: ledger.work for ledger in ledgers(run, scope(run, None, steps=chosen))}
        assert {rank: work.launched_flops for rank, work in found.items()} == {
            rank.rank: sum(step.flops for step in rank.steps if not chosen or step.step in chosen)
            for rank in generated.truth.ranks
        }
        ran[chosen] = {
            rank: sum(effort.model_flops * count for effort, (count, _) in work.efforts.items())
            for rank, work in found.items()
        }
    for rank in generated.truth.ranks:
        whole = sum(step.flops for step in rank.steps)
        assert ran[()][rank.rank] == whole
        assert sum(ran[(number,)][rank.rank] for number in numbers) == pytest.approx(whole, rel=1e-9)


def without_blocking_copy(cluster: SyntheticCluster) -> SyntheticCluster:
    """A pageable copy whose call outlasts it blocks by the rules of the ledger, and does not in the simulator, where
    only the call after it does."""
    host = cluster.host
    if host.launch_call < host.launch_latency + ITEM_COPY:
        return cluster
    return replace(cluster, losses=replace(cluster.losses, sync=False))


def check(cluster: SyntheticCluster) -> None:
    generated = cluster.generate()
    with ingested(generated) as run:
        check_ledger(generated, run)
        check_trace_window(generated, run)
        check_flops(generated, run)


SELDOM = {
    "one step", "all losses", "two losses", "slow launch calls", "straggler: more_work", "straggler: larger_batch",
    "straggler: late_data", "straggler: allocation", "pipeline", "pipeline, all forward first", "two clocks",
    "two compute streams",
}  # fmt: skip
"""Each is close to another one that is always tried."""


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(cluster, marks=pytest.mark.slow if name in SELDOM else (), id=name)
        for name, cluster in CLUSTERS.items()
    ],
)
@pytest.mark.few(5)
def test_the_ledger_is_the_truth(cluster: SyntheticCluster) -> None:
    check(cluster)


def test_the_clusters_reach_every_line_that_one_rank_can_tell() -> None:
    reached = {line for cluster in CLUSTERS.values() for line, ns in cluster.generate().truth.lines.items() if ns}
    assert reached == set(LINES) - {"idle.bubble", "unexplained"}


PLANTED = {
    "idle.data": {"losses": Losses(data=5_000_000)},
    "idle.sync": {"losses": Losses(sync=True)},
    "idle.alloc": {"losses": Losses(alloc=1_000_000)},
    "idle.python": {"losses": Losses(python=5_000_000)},
    "idle.host": {"losses": Losses(launch_factor=50)},
    "copy": {"losses": Losses(copy_bytes=10_000_000, memset_bytes=50_000_000)},
    "comm.transfer": {"model": Model(gradient_bytes=40_000_000, buckets=1)},
    "idle.dependency": {"kernel_gap": 900},
}


def rank_lines(cluster: SyntheticCluster) -> tuple[list[dict[str, int]], list[dict[str, int]], dict[str, Any]]:
    """Lines of each rank as reported and as they are, waiting counted with the transfer, and the report."""
    generated = cluster.generate()
    with ingested(generated) as run:
        found = report(run).to_json()
    truth = [rank.lines for rank in generated.truth.ranks]
    for lines in truth:
        lines["comm.transfer"] = sum(lines[line] for line in COMM)
    return [rank["lines"] for rank in found["ranks"]], truth, found


@cache
def clean_lines() -> list[dict[str, int]]:
    return rank_lines(CLEAN)[0]


@pytest.mark.parametrize(("line", "planted"), PLANTED.items(), ids=PLANTED.keys())
@pytest.mark.few(3)
def test_a_planted_loss_is_on_its_line(line: str, planted: dict[str, Any]) -> None:
    sick, truth, found = rank_lines(replace(CLEAN, **planted))
    for own, expected in zip(sick, truth, strict=True):
        assert expected[line] > 0.004 * sum(expected.values())
        assert own[line] == pytest.approx(expected[line], rel=0.01)
    assert line in [loss["line"] for loss in found["losses"]]
    clean = clean_lines()
    if line == "comm.transfer":
        assert all(own[line] > 10 * healthy[line] for own, healthy in zip(sick, clean, strict=True))
    else:
        assert all(healthy[line] == 0 for healthy in clean)


def test_what_the_losses_are_made_of() -> None:
    cluster = replace(CLEAN, losses=replace(ALL_LOSSES, launch_factor=20))
    generated = cluster.generate()
    with ingested(generated) as run:
        found = report(run).to_json()
    parts = {line["line"]: {part["line"] for part in line["parts"]} for line in found["ledger"]["lines"]}
    assert parts["idle.sync"] == {"aten::_local_scalar_dense (cudaStreamSynchronize)"}
    assert parts["idle.alloc"] == {"cudaFree", "cudaMalloc"}
    assert parts["idle.host"] == {"op dispatch", "launch API"}
    assert parts["copy"] == {"HtoD", "DtoH", "memset"}
    assert parts["compute"] == {"matmul", "elementwise", "optimizer"}
    assert parts["comm.transfer"] == {"0@0-1"}
    assert {row["name"] for row in found["phases"]} == {"forward", "backward", "data", "other"}


def test_mfu_is_the_flops_over_the_peak() -> None:
    """The H100 of the traces does 989.5 dense TFLOPS in bf16, 989,500 FLOPs a nanosecond."""
    generated = CLEAN.generate()
    flops = sum(step.flops for rank in generated.truth.ranks for step in rank.steps)
    with ingested(generated) as run:
        mfu = report(run).to_json()["mfu"]
    assert mfu["value"] == pytest.approx(flops / (generated.truth.wall * 989_500), rel=1e-3)
    assert "bf16" in mfu["convention"]


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_lost_launches_are_not_guessed(share: float) -> None:
    """What a lost launch leaves behind is unexplained or a dependency; all that is busy stays exact.

    Tolerance: no other line exceeds the truth by more than 1% of the wall (with the first launch after a blocking call
    lost, the refilling seems to last longer).
    """
    complete = replace(CLEAN, losses=replace(ALL_LOSSES, launch_factor=20), seed=5)
    generated = replace(complete, lost=LostRecords(launches=share)).generate()
    with ingested(generated) as run:
        check_trace_window(generated, run)
        found = report(run, window=WindowKind.TRACE).to_json()
    lost = sum(
        event.launch.lost for trace in generated.traces for event in trace.record.device_events if event.role != "copy"
    )
    assert found["quality"]["kernels_without_launch"] == lost > 0
    assert found["quality"]["unexplained"] > 0.5 * share
    for rank, truth in zip(found["ranks"], rank_lines(complete)[0], strict=True):
        del rank["lines"]["unexplained"]
        assert all(ns <= truth[line] + 0.01 * rank["wall_ns"] for line, ns in rank["lines"].items())


def test_lost_kernels_leave_a_ledger_of_what_was_written() -> None:
    cluster = replace(CLEAN, losses=ALL_LOSSES, lost=LostRecords(kernels=0.1, launches=0.1, metadata=0.1), seed=5)
    generated = cluster.generate()
    with ingested(generated) as run:
        check_trace_window(generated, run)
        found = report(run, window=WindowKind.STEPS).to_json()
        check_report(found)
    for row, rank in zip(found["ranks"], generated.truth.ranks, strict=True):
        assert row["wall_ns"] == pytest.approx(rank.wall, rel=0.02)


@given(small_clusters())
@settings(SLOW_EXAMPLES, max_examples=4, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate))
def test_any_cluster(cluster: SyntheticCluster) -> None:
    check(without_blocking_copy(cluster))


@given(small_clusters(lost=True))
@settings(SLOW_EXAMPLES, max_examples=4, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate))
def test_any_cluster_that_lost_records(cluster: SyntheticCluster) -> None:
    check_what_is_left(cluster)


def check_what_is_left(cluster: SyntheticCluster) -> None:
    generated = cluster.generate()
    with ingested(generated) as run:
        check_report(report(run).to_json())
        if all(rank.device_window.window_ns for rank in generated.truth.ranks):
            check_trace_window(generated, run)


@pytest.mark.slow
@given(small_clusters())
@settings(SLOW_EXAMPLES, max_examples=200)
def test_many_clusters(cluster: SyntheticCluster) -> None:
    check(without_blocking_copy(cluster))


@pytest.mark.slow
@given(small_clusters(lost=True))
@settings(SLOW_EXAMPLES, max_examples=100)
def test_many_clusters_that_lost_records(cluster: SyntheticCluster) -> None:
    check_what_is_left(cluster)

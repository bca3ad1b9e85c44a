"""Causes in communication: synthetic jobs with one of them each, and the same jobs without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.predict.graph.tiny import L, M, T, graph

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.core.results import Finding
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.diagnose import diagnosis
from lostflops.explain.advise.rules import bucket_size, exposed_comm, missing_no_sync, slow_link, small_messages, sync
from lostflops.explain.advise.signs.traffic import Traffic, traffic_of
from lostflops.predict.graph.tasks import LaneKind, TaskKind
from lostflops.store.run import Run
from lostflops.testing import Kernel, Losses, Model, Network, SyntheticCluster, store

RULES = tuple(one.RULE for one in (bucket_size, exposed_comm, missing_no_sync, slow_link, small_messages, sync))
MODEL = Model(
    layers=4,
    kernels=(Kernel(2_000_000, (1024, 512, 512)),),
    gradient_bytes=40_000_000,
    buckets=4,
    optimizer_kernels=1,
    optimizer_duration=200_000,
)
SHORT = replace(MODEL, kernels=(Kernel(60_000, (1024, 512, 512)),), gradient_bytes=400_000)
HEALTHY = SyntheticCluster(ranks=2, steps=3, model=MODEL, network=Network(alpha=20_000, gbs=40), annotations=True)
TWO_HOSTS = replace(HEALTHY, ranks=4, ranks_per_host=2, network=Network(alpha=20_000, gbs=80, inter_gbs=40))
SICK = {
    "exposed_comm": replace(HEALTHY, overlap=False),
    "bucket_size": replace(HEALTHY, model=replace(MODEL, buckets=1)),
    "missing_no_sync": replace(HEALTHY, network=Network(gbs=10), microbatches=2, reduce_always=True),
    "sync": replace(HEALTHY, model=SHORT, losses=Losses(sync=12)),
    "slow_link": replace(TWO_HOSTS, network=replace(TWO_HOSTS.network, inter_gbs=4)),
}


def found(cluster: SyntheticCluster, folder: Path) -> tuple[Finding, ...]:
    with Run.open(store(cluster.generate(), folder, host_names=True)) as run:
        case = Case(run)
        findings = diagnosis(case, rules=RULES).findings
        held = sum(case.total.lines[line] for line in ("comm.transfer", "comm.wait", "idle.sync"))
        assert sum(one.lost_ns for one in findings) <= held
        return findings


@pytest.mark.parametrize("cause", SICK)
@pytest.mark.few(2)
def test_one_cause_is_found_and_nothing_else(cause: str, tmp_path: Path) -> None:
    (one,) = found(SICK[cause], tmp_path / "run")
    assert one.cause == cause
    assert one.lost_ns > 0
    assert one.saving is not None
    assert one.saving.value > 0.05
    assert one.evidence[0].events
    assert one.evidence[0].steps


@pytest.mark.parametrize("cluster", [TWO_HOSTS, replace(HEALTHY, microbatches=2)])
def test_a_healthy_job_has_none(cluster: SyntheticCluster, tmp_path: Path) -> None:
    assert found(cluster, tmp_path / "run") == ()


def _small(op: str, *, is_sharded: bool = False) -> Any:
    """A case with 16 exposed messages of 4 KB a step in each pass."""
    lanes, meetings = [], {}
    for rank in (0, 1):
        tasks = []
        for phase in (FORWARD, BACKWARD):
            for at in range(16):
                meetings[f"m{phase}.{at}"] = M(1000, op=op, size=4096)
                tasks.append(T(f"c{phase}.{at}.{rank}", kind=TaskKind.COMM, meets=f"m{phase}.{at}", phase=phase))
        lanes.append(L(rank, LaneKind.STREAM, tasks))
    made = graph(lanes, meetings=meetings)
    none, each = np.zeros(len(meetings), np.bool_), np.full(len(made.tasks), 1000)
    row, meeting = np.arange(len(made.tasks)), made.tasks.meeting.astype(np.int64)
    traffic = Traffic(
        graph=made,
        row=row,
        rank=made.rank.astype(np.int64),
        meeting=meeting,
        exposed=each,
        took=each,
        waited=each,
        in_backward=none,
        by_hand=none,
        is_ddp=False,
        is_sharded=is_sharded,
    )
    run = SimpleNamespace(rows=lambda _: [])
    return SimpleNamespace(answers={traffic_of: traffic}, wall=100_000, facts=None, run=run)


@pytest.mark.parametrize(
    ("case", "fixes"),
    [
        pytest.param(_small("all_to_all"), ["all_to_all_single"], id="experts"),
        pytest.param(_small("all_gather", is_sharded=True), ["fully_shard()"], id="FSDP units"),
        pytest.param(_small("all_gather"), [], id="all-gathers of nothing known"),
        pytest.param(_small("all_reduce"), ["ColwiseParallel"], id="tensor parallel layers"),
    ],
)
def test_the_fix_of_small_messages_fits_their_operation(
    case: Any, fixes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_messages, "are_small", lambda _, meetings: bool(meetings.any()))
    monkeypatch.setattr(small_messages, "latency_share", lambda *_: 0.9)
    claims = list(small_messages.RULE.find(case))
    assert [fix in claim.fix for claim, fix in zip(claims, fixes, strict=True)] == [True] * len(fixes)
    assert all(claim.taken for claim in claims)

"""Rules about memory speak where it is short, and are silent where it is not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lostflops.account.memory.growth import Grown, Holder
from lostflops.account.memory.owners import Owner
from lostflops.account.memory.peak import PeakPart
from lostflops.core.errors import UnknownCost
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import Claim, NotChecked
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.rules import activations, fragmentation, larger_batch, memory_growth, optimizer_memory
from lostflops.explain.advise.signs.fullness import Fullness, Recorded, read_recorded_memory
from lostflops.store.run import Run
from lostflops.testing import SyntheticCluster, store
from memory_run import MemoryRun

GIB, MIB = 2**30, 2**20
H100 = "NVIDIA H100 80GB HBM3"
LAYER = PeakPart(Owner.ACTIVATIONS, "layers.0", 5 * GIB, 40)


def said(rule: Rule, fullness: Fullness | None = None, grown: tuple[Grown, ...] = (), **rows: Any) -> list[Claim]:
    run: Any = MemoryRun(**rows)
    case = Case(run)
    case.answers[read_recorded_memory] = Recorded(fullness, grown)
    with run:
        return list(rule.find(case))


def full(used: int, *, ran_out: bool = False, capacity: int | None = 80 * GIB, **owners: int) -> Fullness:
    held = {name: size * GIB for name, size in owners.items()}
    return Fullness(
        rank=1,
        step=9,
        phase="backward",
        total=sum(held.values()),
        used=used * GIB,
        capacity=capacity,
        owners=held,
        parts=(LAYER,),
        has_run_out=ran_out,
    )


@pytest.mark.parametrize(
    ("fullness", "expected"),
    [
        (full(75, activations=50, parameters=20), True),
        (full(75, activations=20, parameters=50), False),
        (full(40, activations=30, parameters=5), False),
        (full(75, activations=20, parameters=50, capacity=None), False),
        (full(10, activations=8, parameters=2, capacity=None, ran_out=True), True),
    ],
)
def test_activations_that_fill_a_device(fullness: Fullness, expected: bool) -> None:
    found = said(activations.RULE, fullness)
    assert bool(found) is expected
    for claim in found:
        assert not claim.costs_time
        assert "checkpoint(self.layers.0, x, use_reentrant=False)" in claim.fix
        assert claim.evidence[0].ranks == (1,)


@pytest.mark.parametrize(("ranks", "fix"), [(1, "AdamW8bit"), (8, "ZeroRedundancyOptimizer")])
def test_optimizer_state_that_fills_a_device(ranks: int, fix: str) -> None:
    rows = [{"rank": rank, "world_size": ranks} for rank in range(ranks)]
    (claim,) = said(optimizer_memory.RULE, full(75, optimizer_state=40, parameters=20, activations=10), ranks=rows)
    assert claim.fix.startswith(("Shard the state over ranks: torch.distributed.optim", "Use bitsandbytes"))
    assert fix in claim.fix
    assert "2 times the parameters" in claim.evidence[1].what
    assert said(optimizer_memory.RULE, full(75, optimizer_state=20, activations=50), ranks=rows) == []
    assert said(optimizer_memory.RULE, full(40, optimizer_state=20, parameters=10), ranks=rows) == []


@pytest.mark.parametrize("rule", [activations.RULE, optimizer_memory.RULE])
def test_without_memory_nothing_can_be_told(rule: Rule) -> None:
    with pytest.raises(NotChecked, match="not recorded") as error:
        said(rule)
    assert error.value.record == "--with shapes,modules,samples,memory"


def test_how_full_a_device_of_unknown_size_is_cannot_be_told() -> None:
    with pytest.raises(UnknownCost, match="memory size is unknown"):
        said(activations.RULE, full(75, activations=50, parameters=20, capacity=None))


def blocks(split: int, used: int) -> list[dict[str, Any]]:
    """One segment with a block in use and a hole, in GiB."""
    base = {"rank": 0, "device_index": 0, "segment": 0, "segment_bytes": (split + used) * GIB, "pool": "large"}
    base |= {"stream": 0, "expandable": False}
    return [
        base | {"address": 0, "bytes": used * GIB, "requested": used * GIB, "state": "allocated", "line": "net.py:3"},
        base | {"address": used * GIB, "bytes": split * GIB, "state": "free"},
    ]


@pytest.mark.parametrize(("split", "used", "expected"), [(20, 55, True), (3, 72, False), (20, 20, False)])
def test_holes_matter_on_a_full_device(split: int, used: int, expected: bool) -> None:
    ranks = [{"rank": 0, "device": H100}]
    found = said(fragmentation.RULE, allocator_blocks=blocks(split, used), ranks=ranks)
    assert bool(found) is expected
    for claim in found:
        assert "expandable_segments:True" in claim.fix
        assert "kept by net.py:3" in claim.evidence[0].what


def ended(**more: Any) -> list[dict[str, Any]]:
    state = {"asked": 2 * GIB, "device": "cuda:0", "capacity": 80 * GIB, "step": 4, **more}
    return [{"rank": 0, "attempt": 0, "key": "out_of_memory", "value": json.dumps(state)}]


def test_a_job_that_ran_out_beside_free_memory_was_fragmented() -> None:
    ranks = [{"rank": 0, "device": H100}]
    (claim,) = said(fragmentation.RULE, job=ended(unused_then=6 * GIB), ranks=ranks)
    assert claim.strength == "fair"
    for more in ({"unused_then": GIB}, {"unused_then": 90 * GIB, "asked": 81 * GIB}):
        with pytest.raises(UnknownCost, match="_dump_snapshot"):
            said(fragmentation.RULE, job=ended(**more), ranks=ranks)
    assert said(fragmentation.RULE, ranks=[{"rank": 0}]) == []


def batch(peak: int, samples: int, fixed: int, device: str | None = H100) -> list[Claim]:
    timings = [{"rank": 0, "attempt": 0, "step": n, "peak_memory": peak * GIB, "samples": samples} for n in range(5)]
    run: Any = MemoryRun(ranks=[{"rank": 0, "device": device}], timings=timings)
    lines = {"comm.transfer": fixed, "idle.host": 0, "idle.python": 0}
    case: Any = SimpleNamespace(run=run, wall=100, total=SimpleNamespace(lines=lines, phases={}, steps=(3,)))
    return list(larger_batch.RULE.find(case))


def test_room_for_a_larger_batch() -> None:
    (claim,) = batch(peak=10, samples=32, fixed=30)
    assert "A batch 6 times as large fits in memory" in claim.what
    assert not claim.costs_time
    assert batch(peak=40, samples=32, fixed=30) == []
    assert batch(peak=10, samples=32, fixed=10) == []
    assert batch(peak=10, samples=2, fixed=30) == []
    with pytest.raises(UnknownCost):
        batch(peak=10, samples=32, fixed=30, device=None)


def grown(held: int = 11, steps: int = 3, a_step: int = MIB) -> Grown:
    left = tuple(a_step * (n + 1) for n in range(steps))
    numbers, holder = tuple(range(8, 8 + steps)), Holder("kept", "train.py:12")
    return Grown(
        rank=0,
        device="cpu",
        op="aten::linear",
        module="net",
        owner=Owner.ACTIVATIONS,
        steps=numbers,
        left=left,
        count=1,
        holder=holder,
        held=held,
    )


def timings(after: int = 20, rises: int = 0) -> list[dict[str, Any]]:
    """The window ends with step 10; then the peak rises by so many bytes a step."""
    peaks = [500 * MIB + max(0, number - 10) * rises for number in range(11 + after)]
    return [
        {"rank": 0, "attempt": 0, "step": n, "start": n * 10, "stop": n * 10 + 10, "peak_memory": peak}
        | {"compiled": False, "profiled": 7 <= n <= 11}
        for n, peak in enumerate(peaks)
    ]


def test_growth_that_a_window_shows_is_named_with_its_line() -> None:
    ranks = [{"rank": 0}]
    (claim,) = said(memory_growth.RULE, grown=(grown(),), timings=timings(), ranks=ranks)
    assert claim.what == "Memory grows by 1.05 MB per step, held by kept at train.py:12: 1.05 GB in 1,000 steps."
    assert claim.evidence[0].sources == ("train.py:12",)
    assert "kept at train.py:12 holds 11 tensors" in claim.evidence[1].what


def test_three_steps_of_growth_may_be_a_cache() -> None:
    ranks = [{"rank": 0}]
    assert said(memory_growth.RULE, grown=(grown(held=3),), timings=timings(), ranks=ranks) == []
    assert len(said(memory_growth.RULE, grown=(grown(held=0, steps=6),), timings=timings(), ranks=ranks)) == 1


def test_growth_that_stopped_after_the_window_is_none() -> None:
    ranks = [{"rank": 0}]
    large = grown(a_step=20 * MIB)
    assert said(memory_growth.RULE, grown=(large,), timings=timings(), ranks=ranks) == []
    assert len(said(memory_growth.RULE, grown=(large,), timings=timings(rises=20 * MIB), ranks=ranks)) == 1


def test_the_peak_is_that_of_all_steps_where_a_few_stand_for_them(tmp_path: Path) -> None:
    with Run.open(store(SyntheticCluster(ranks=2, steps=4, memory=True).generate(), tmp_path / "run")) as run:
        first, *_, last = (step for (step,) in run.sql("select distinct step from steps order by 1").fetchall())
        few = Case(run.of_steps([last]))
        assert few.run.steps == (last,)
        recorded = read_recorded_memory(few)
        assert recorded == read_recorded_memory(Case(run))
        assert recorded.fullness is not None
        assert recorded.fullness.step == first

"""Step times on made-up machines, on which every part is known."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from lostflops.errors import UnknownCost
from lostflops.predict.costs.times import CollectiveTime, Group, Op
from lostflops.predict.estimate.demand import described
from lostflops.predict.estimate.description import Job, Model
from lostflops.predict.estimate.estimate import Estimate, Machine, estimate
from lostflops.predict.estimate.ranges import Range, exactly
from lostflops.predict.estimate.result import result
from lostflops.predict.estimate.work import attention_flops, model_flops, product_flops

MODEL = Model(layers=4, hidden=256, heads=4, ffn=1024, vocabulary=1000)


@dataclass(frozen=True)
class MadeRates:
    flop_rate: float = 1e12
    byte_rate: float = 1e30
    launch_ns: float = 0
    source: str = "made up"

    @property
    def peak(self) -> float:
        return self.flop_rate

    def flops(self, m: int, n: int, k: int) -> Range:
        return exactly(self.flop_rate)

    def attention(self, sequence: int) -> Range:
        return exactly(self.flop_rate)

    @property
    def memory(self) -> Range:
        return exactly(self.byte_rate)


@dataclass(frozen=True)
class MadeTimes:
    each: float = 0

    def time(self, op: Op, size: int, group: Group, algorithm: str | None = None) -> CollectiveTime:
        if group.hosts > 2:
            raise UnknownCost("no network is known")
        return CollectiveTime(self.each, self.each, self.each, "ring", "made up")


def step(job: Job, rates: MadeRates, times: MadeTimes | None = None, **known: int) -> Estimate:
    return estimate(described(MODEL, job, 8), Machine("nothing", rates, times, **known))


def test_a_device_that_only_computes_takes_its_flops() -> None:
    job = Job(sequence=1024, microbatch=2)
    found = step(job, MadeRates())
    assert found.step is not None
    assert found.step.limiter == "compute"
    # A causal kernel computes the tiles up to the diagonal (36 of 64 here), and scores once more on the way back.
    attention = 3.5 * attention_flops(MODEL, job) * 36 / 64
    executed = 3 * product_flops(MODEL, job) + attention
    assert found.step.total.low == pytest.approx(executed / 1e12 * 1e9)
    assert found.mfu is not None
    assert found.mfu.low == pytest.approx(model_flops(MODEL, job) / executed)


def test_a_device_that_only_moves_bytes_is_limited_by_memory() -> None:
    found = step(Job(sequence=64), MadeRates(1e30, 1e9))
    assert found.step is not None
    assert found.step.limiter == "memory bandwidth"
    assert found.step.compute.high == pytest.approx(0, abs=1)


def test_a_slow_host_is_limited_by_launches_unless_the_model_is_compiled() -> None:
    slow = MadeRates(1e30, 1e30, 1e6)
    eager, compiled = step(Job(sequence=64), slow).step, step(Job(sequence=64, compiled=True), slow).step
    assert eager is not None
    assert compiled is not None
    assert (eager.limiter, eager.launches.low) == ("launches", 0)
    assert eager.launches.high == pytest.approx(3 * 32 * 4 * 1e6, rel=0.001)
    assert compiled.launches.high == 0


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 1), (4, 8), (4, 64)])
def test_the_bubble_is_that_of_1f1b(stages: int, microbatches: int) -> None:
    even = Model(layers=4, hidden=256, heads=4, ffn=1024, vocabulary=1000, head="none", final_norm=False)
    job = Job(sequence=64, pp=stages, batch=microbatches, optimizer="sgd")
    found = estimate(described(even, job, 8), Machine("nothing", MadeRates(), MadeTimes())).step
    assert found is not None
    share = found.bubble.low / found.total.low
    assert share == pytest.approx((stages - 1) / (microbatches + stages - 1), rel=0.001)


def test_communication_hides_at_best_and_is_exposed_at_worst() -> None:
    job = Job(sequence=1024, dp=4)
    backward = model_flops(MODEL, job) / 4 / 1e12 * 1e9 * 2 / 3
    hidden = step(job, MadeRates(), MadeTimes(0.1 * backward)).step
    assert hidden is not None
    assert hidden.communication.low == 0
    assert hidden.communication.high == pytest.approx(0.1 * backward)
    exposed = step(job, MadeRates(), MadeTimes(10 * backward)).step
    assert exposed is not None
    assert exposed.limiter == "exposed communication"
    assert exposed.communication.low == pytest.approx(9 * backward, rel=0.05)


def test_sums_of_tensor_parallelism_are_waited_for() -> None:
    found = step(Job(sequence=64, tp=2), MadeRates(), MadeTimes(1000)).step
    assert found is not None
    assert found.communication == exactly((4 * 4 + 2) * 1000)


def test_recomputation_runs_forward_again() -> None:
    none, full = (step(Job(sequence=1024, recompute=again), MadeRates()).step for again in ("none", "full"))
    selective = step(Job(sequence=1024, recompute="selective"), MadeRates()).step
    assert none is not None
    assert full is not None
    assert selective is not None
    assert full.compute.low == pytest.approx(none.compute.low * 4 / 3, rel=0.05)
    assert (selective.compute.low, selective.compute.high) == (none.compute.low, full.compute.high)


def test_what_cannot_be_told_is_said() -> None:
    unnamed = estimate(described(MODEL, Job(sequence=64), 8), Machine("an unnamed device"))
    assert (unnamed.step, unnamed.fits) == (None, "cannot tell")
    assert "give --device" in result(unnamed).verdict
    unconnected = step(Job(sequence=64, dp=2), MadeRates())
    assert "give --topology" in unconnected.unknown
    unmeasured = step(Job(sequence=64, dp=64), MadeRates(), MadeTimes())
    assert unmeasured.unknown == "no network is known"


@pytest.mark.parametrize(("capacity", "fits"), [(10, "no"), (10**12, "yes")])
def test_whether_it_fits(capacity: int, fits: str) -> None:
    assert step(Job(sequence=64), MadeRates(), capacity=capacity).fits == fits


def test_between_the_ends_it_may_fit() -> None:
    held = step(Job(sequence=64), MadeRates()).fullest.memory.total
    assert step(Job(sequence=64), MadeRates(), capacity=round((held.low + held.high) / 2)).fits == "maybe"


def test_the_result_adds_up() -> None:
    answer = result(step(Job(sequence=64, dp=2, pp=2, zero=1), MadeRates(), MadeTimes(1000), capacity=10**9)).to_json()
    owners = {row["owner"]: row for row in answer["memory"]["owners"]}
    total = owners.pop("total")
    assert sum(row["low"] for row in owners.values()) == pytest.approx(total["low"], abs=5)
    assert sum(row["high"] for row in owners.values()) == pytest.approx(total["high"], abs=5)
    assert sum(row["high"] for row in answer["step"]["parts"]) == pytest.approx(answer["step"]["high"], abs=5)
    assert {row["dimension"] for row in answer["communication"]} == {"dp", "pp"}
    assert len(answer["stages"]) == 2


def test_a_tied_embedding_is_summed_once() -> None:
    model = Model(layers=4, hidden=256, heads=4, ffn=1024, vocabulary=1000, tied=True)
    job = Job(sequence=1024, pp=4, batch=1)
    quick, slow = (
        estimate(described(model, job, 8), Machine("nothing", MadeRates(), MadeTimes(each))).step for each in (0, 1e9)
    )
    assert quick
    assert slow
    assert slow.bubble.high <= quick.bubble.high

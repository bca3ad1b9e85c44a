"""Step times on made-up machines, on which every part is known."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from lostflops.core.errors import UnknownCost, UsageError
from lostflops.predict.costs.times import CollectiveTime, CommGroup, Op
from lostflops.predict.estimate.demand import estimate_demand
from lostflops.predict.estimate.description import ModelDescription, PlannedJob
from lostflops.predict.estimate.estimate import LaunchEstimate, PlannedMachine, estimate
from lostflops.predict.estimate.ranges import Range, exactly
from lostflops.predict.estimate.result import result
from lostflops.predict.estimate.step_time import EstimatedStep
from lostflops.predict.estimate.work import attention_flops, model_flops, product_flops

MODEL = ModelDescription(layers=4, hidden=256, heads=4, ffn=1024, vocabulary=1000)


@dataclass(frozen=True)
class MadeRates:
    flop_rate: float = 1e12
    byte_rate: float = 1e30
    launch_ns: float = 0
    source: str = "made up"
    said_peak: float | None = None

    @property
    def peak(self) -> float:
        return self.said_peak or self.flop_rate

    def flops(self, m: int, n: int, k: int) -> Range:
        return exactly(self.flop_rate)

    def attention(self, sequence: int) -> Range:
        return exactly(self.flop_rate)

    @property
    def memory(self) -> Range:
        return exactly(self.byte_rate)


class WideRates(MadeRates):
    def flops(self, m: int, n: int, k: int) -> Range:
        return Range(self.flop_rate / 4, self.flop_rate)


@dataclass(frozen=True)
class MadeTimes:
    each: float = 0
    sends: float | None = None
    """Time of a send between stages; None: as long as a collective."""

    def time(self, op: Op, size: int, group: CommGroup, algorithm: str | None = None) -> CollectiveTime:
        if group.hosts > 2:
            raise UnknownCost("no network is known")
        ns = self.sends if op == "send_recv" and self.sends is not None else self.each
        return CollectiveTime(ns=ns, low=ns, high=ns, algorithm="ring", source="made up")


def step(job: PlannedJob, rates: MadeRates, times: MadeTimes | None = None, **known: int) -> LaunchEstimate:
    return estimate(estimate_demand(MODEL, job, 8), PlannedMachine("nothing", rates, times, **known))


def test_a_device_that_only_computes_takes_its_flops() -> None:
    job = PlannedJob(sequence=1024, microbatch=2)
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
    found = step(PlannedJob(sequence=64), MadeRates(1e30, 1e9))
    assert found.step is not None
    assert found.step.limiter == "memory bandwidth"
    assert found.step.compute.high == pytest.approx(0, abs=1)


def test_a_slow_host_is_limited_by_launches_unless_the_model_is_compiled() -> None:
    slow = MadeRates(1e30, 1e30, 1e6)
    either, eager, compiled = (
        step(PlannedJob(sequence=64, compiled=known), slow).step for known in (None, False, True)
    )
    assert either is not None
    assert eager is not None
    assert compiled is not None
    assert (either.limiter, either.launches.low) == ("launches", 0)
    assert either.launches.high == pytest.approx(3 * 32 * 4 * 1e6, rel=0.001)
    assert (eager.launches.low, eager.launches.high) == (either.launches.high / 2, either.launches.high)
    assert (compiled.launches.low, compiled.launches.high) == (0, pytest.approx(3 * 12 * 4 * 1e6, rel=0.001))


@pytest.mark.parametrize("launch_ns", [10.0**power for power in range(2, 8)])
@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_known_of_compilation_narrows_the_step(launch_ns: float, compiled: bool) -> None:
    known, either = (
        step(PlannedJob(sequence=1024, compiled=one), WideRates(1e12, 1e11, launch_ns)).step for one in (compiled, None)
    )
    assert known is not None
    assert either is not None
    assert either.total.low <= known.total.low <= known.total.high <= either.total.high


def test_an_eager_host_is_as_slow_as_its_launches_at_best() -> None:
    found = step(PlannedJob(sequence=1024, compiled=False), WideRates(1e15, 1e30, 10_000)).step
    assert found is not None
    assert found.total.low >= 3 * 16 * 4 * 10_000


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 1), (4, 8), (4, 64)])
def test_the_bubble_is_that_of_1f1b(stages: int, microbatches: int) -> None:
    even = ModelDescription(layers=4, hidden=256, heads=4, ffn=1024, vocabulary=1000, head="none", final_norm=False)
    job = PlannedJob(sequence=64, pp=stages, batch=microbatches, optimizer="sgd")
    found = estimate(estimate_demand(even, job, 8), PlannedMachine("nothing", MadeRates(), MadeTimes())).step
    assert found is not None
    share = found.bubble.low / found.total.low
    assert share == pytest.approx((stages - 1) / (microbatches + stages - 1), rel=0.001)


def test_communication_hides_at_best_and_is_exposed_at_worst() -> None:
    job = PlannedJob(sequence=1024, dp=4)
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
    found = step(PlannedJob(sequence=64, tp=2), MadeRates(), MadeTimes(1000)).step
    assert found is not None
    assert found.communication == exactly((4 * 4 + 2) * 1000)


def test_recomputation_runs_forward_again() -> None:
    none, full = (step(PlannedJob(sequence=1024, recompute=again), MadeRates()).step for again in ("none", "full"))
    selective = step(PlannedJob(sequence=1024, recompute="selective"), MadeRates()).step
    assert none is not None
    assert full is not None
    assert selective is not None
    assert full.compute.low == pytest.approx(none.compute.low * 4 / 3, rel=0.05)
    assert (selective.compute.low, selective.compute.high) == (none.compute.low, full.compute.high)


def test_what_cannot_be_told_is_said() -> None:
    unnamed = estimate(estimate_demand(MODEL, PlannedJob(sequence=64), 8), PlannedMachine("an unnamed device"))
    assert (unnamed.step, unnamed.fits) == (None, "unknown")
    assert "give --device" in result(unnamed).verdict
    unconnected = step(PlannedJob(sequence=64, dp=2), MadeRates())
    assert "give --topology" in unconnected.unknown
    unmeasured = step(PlannedJob(sequence=64, dp=64), MadeRates(), MadeTimes())
    assert unmeasured.unknown == "no network is known"


@pytest.mark.parametrize(("capacity", "fits"), [(10, "no"), (10**12, "yes")])
def test_whether_it_fits(capacity: int, fits: str) -> None:
    assert step(PlannedJob(sequence=64), MadeRates(), capacity=capacity).fits == fits


def test_between_the_ends_it_may_fit() -> None:
    held = step(PlannedJob(sequence=64), MadeRates()).fullest.memory.total
    assert step(PlannedJob(sequence=64), MadeRates(), capacity=round((held.low + held.high) / 2)).fits == "maybe"


@pytest.mark.parametrize(("spare", "fits"), [(0, "maybe"), (3 * 2**30 - 2, "maybe"), (3 * 2**30, "yes")])
def test_a_job_that_fills_the_device_may_not_fit(spare: int, fits: str) -> None:
    held = step(PlannedJob(sequence=64), MadeRates()).fullest.memory.total
    found = step(PlannedJob(sequence=64), MadeRates(), capacity=round(held.high) + 1 + spare)
    assert found.fits == fits
    assert any("for the driver context" in note for note in result(found).notes) == (fits == "maybe")


@pytest.mark.parametrize(("sequence", "is_above"), [(64, False), (1024, True)])
def test_mfu_above_the_peak_is_explained(sequence: int, is_above: bool) -> None:
    found = step(PlannedJob(sequence=sequence), MadeRates())
    assert found.mfu is not None
    assert (found.mfu.high > 1) == is_above
    assert (
        any("above 100% because model FLOPs count attention over all" in one for one in result(found).notes) == is_above
    )


def test_products_faster_than_the_peak_are_said_to_be() -> None:
    found = step(PlannedJob(sequence=64), MadeRates(said_peak=1e11))
    assert found.mfu is not None
    assert found.mfu.low > 1
    assert any("measured faster than the known peak" in note for note in result(found).notes)


def test_the_result_adds_up() -> None:
    answer = result(
        step(PlannedJob(sequence=64, dp=2, pp=2, zero=1), MadeRates(), MadeTimes(1000), capacity=10**9)
    ).to_json()
    owners = {row["owner"]: row for row in answer["memory"]["owners"]}
    total = owners.pop("total")
    assert sum(row["low"] for row in owners.values()) == pytest.approx(total["low"], abs=5)
    assert sum(row["high"] for row in owners.values()) == pytest.approx(total["high"], abs=5)
    assert sum(row["high"] for row in answer["step"]["parts"]) == pytest.approx(answer["step"]["high"], abs=5)
    assert {row["dimension"] for row in answer["communication"]} == {"dp", "pp"}
    assert len(answer["stages"]) == 2


def test_a_tied_embedding_is_summed_once() -> None:
    model = ModelDescription(layers=4, hidden=256, heads=4, ffn=1024, vocabulary=1000, tied=True)
    job = PlannedJob(sequence=1024, pp=4, batch=1)
    quick, slow = (
        estimate(estimate_demand(model, job, 8), PlannedMachine("nothing", MadeRates(), MadeTimes(each, sends=0))).step
        for each in (0, 1e9)
    )
    assert quick
    assert slow
    assert slow.bubble.high <= quick.bubble.high


EVEN = ModelDescription(layers=16, hidden=256, heads=4, ffn=1024, vocabulary=1000, head="none", final_norm=False)


def even_step(job: PlannedJob, times: MadeTimes, model: ModelDescription = EVEN) -> EstimatedStep:
    found = estimate(estimate_demand(model, job, 64), PlannedMachine("nothing", MadeRates(), times)).step
    assert found is not None
    return found


@pytest.mark.parametrize(("stages", "parts", "microbatches"), [(4, 1, 8), (4, 2, 8), (4, 4, 8), (2, 8, 2)])
def test_interleaved_parts_divide_the_bubble(stages: int, parts: int, microbatches: int) -> None:
    """The bubble is (p - 1) / (v m) of the work, as Megatron's paper on interleaved schedules says."""
    job = PlannedJob(sequence=64, pp=stages, virtual_stages=parts, batch=microbatches, optimizer="sgd")
    found = even_step(job, MadeTimes())
    assert found.bubble.low / found.compute.low == pytest.approx((stages - 1) / (parts * microbatches), rel=0.001)


def test_the_first_microbatch_is_sent_through_all_parts() -> None:
    job = PlannedJob(sequence=64, pp=4, virtual_stages=2, batch=8)
    still, sending = (even_step(job, MadeTimes(0, sends=each)) for each in (0, 1000))
    assert sending.total.low - still.total.low == pytest.approx(2 * (4 * 2 - 1) * 1000)
    assert sending.communication == still.communication


def test_overlap_saves_no_more_than_the_work_beside_it() -> None:
    """Also in the bubble: sums that take far longer than the products stay exposed there."""
    jobs = (PlannedJob(sequence=64, tp=4, pp=4, batch=4, tp_overlap=overlaps) for overlaps in (False, True))
    waiting, beside = (even_step(job, MadeTimes(1e9, sends=0)) for job in jobs)
    work = beside.compute.high * (1 + 3 / 4)
    assert 0 < waiting.total.high - beside.total.high <= work


def test_interleaved_parts_need_whole_rounds_of_microbatches() -> None:
    with pytest.raises(UsageError, match="must be a multiple of pp 4"):
        PlannedJob(sequence=64, pp=4, virtual_stages=2, batch=6)
    with pytest.raises(UsageError, match="needs a pipeline"):
        PlannedJob(sequence=64, virtual_stages=2)
    with pytest.raises(UsageError, match="pp x virtual_stages 32 is more than the number of layers"):
        estimate_demand(EVEN, PlannedJob(sequence=64, pp=4, virtual_stages=8, batch=4), 8)


@pytest.mark.parametrize(("layers", "expected"), [(16, (4, 4, 4, 4)), (14, (3, 4, 4, 3)), (15, (4, 4, 4, 3))])
def test_embedding_and_head_count_as_layers_if_that_divides(layers: int, expected: tuple[int, ...]) -> None:
    model = ModelDescription(layers=layers, hidden=256, heads=4, ffn=1024, vocabulary=1000)
    job = PlannedJob(sequence=64, pp=4, virtual_stages=2, batch=4)
    assert tuple(stage.layers for stage in estimate_demand(model, job, 8).stages) == expected


def test_overlapped_sums_expose_one_part_or_what_exceeds_the_products() -> None:
    waiting, beside = (PlannedJob(sequence=1024, tp=4, tp_overlap=overlaps) for overlaps in (False, True))
    each = 1000.0
    whole = even_step(waiting, MadeTimes(each)).communication.low
    assert even_step(beside, MadeTimes(each)).communication == exactly(whole / 4)
    slow = even_step(beside, MadeTimes(1e9))
    assert slow.communication.low == pytest.approx(whole / each * 1e9 - slow.compute.low * 3 / 4)


def test_interleaved_parts_hide_all_gradients_but_those_of_one() -> None:
    job = PlannedJob(sequence=1024, dp=2, pp=4, virtual_stages=4, zero=1, batch=16)
    found = even_step(job, MadeTimes(1000, sends=0))
    gradients, parameters = (one.count for one, _ in found.transfers if one.dimension == "dp")
    assert found.communication.low == pytest.approx((gradients + parameters) * 1000 / 4)
    plain = even_step(msgspec.structs.replace(job, virtual_stages=1), MadeTimes(1000, sends=0))
    assert plain.communication.low == 0


def test_a_head_in_bf16_takes_twice_as_long_as_in_fp8() -> None:
    model = ModelDescription(layers=1, hidden=256, heads=4, ffn=1024, vocabulary=100_000)
    bf16, fp8 = (even_step(PlannedJob(sequence=64, dtype=dtype), MadeTimes(), model) for dtype in ("bf16", "fp8"))
    head = 3 * 2 * 64 * 256 * 100_000 / 1e12 * 1e9
    assert fp8.compute.low - bf16.compute.low == pytest.approx(head)


def test_sequence_parallelism_shares_the_bytes_of_norms() -> None:
    whole, shared = (estimate_demand(EVEN, PlannedJob(sequence=64, tp=tp), 8).stages[0].work for tp in (1, 4))
    assert whole is not None
    assert shared is not None
    assert shared.moved == whole.moved * (1 / 4)

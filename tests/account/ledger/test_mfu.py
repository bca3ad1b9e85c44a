"""MFU of several dtypes: each counts by the time that it needs at its own peak."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lostflops.account.facts.op_arguments import CallWork
from lostflops.account.ledger.mfu import Claims, hfu, waterfall
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.total import RankLines, RunLedger
from lostflops.account.ledger.work import Effort, RankWork
from lostflops.core.results import Waterfall
from memory_run import MemoryRun

BF16, FP8, FP32 = 989_000, 1_979_000, 67_000
"""FLOP per ns of an H100 at peak."""
WALL, COMPUTE = 2_000, 1_500


def effort(dtype: str, flops: int, again: int = 0) -> Effort:
    return Effort("aten::mm", CallWork(model=flops, recompute=again, bytes=1, dtype=dtype), again=False)


def ask(efforts: dict[Effort, int], **given: float) -> tuple[Waterfall, float | None]:
    """Return the waterfall and HFU of one rank; `efforts` have the time of their kernels in ns."""
    spent = sum(efforts.values())
    work = RankWork(efforts={one: (1.0, ns) for one, ns in efforts.items()}, matmul_ns=spent, counted_ns=spent)
    lines = Counter({"compute": COMPUTE, "comm.wait": WALL - COMPUTE})
    total = RunLedger(ranks=[RankLines(0, WALL, lines, 1)], work=work)
    total.lines.update(lines)
    run: Any = MemoryRun(ranks=[{"rank": 0, "device": "NVIDIA H100 80GB HBM3", "events": 1}])
    with run:
        made = waterfall(run, scope(run, None), total, Claims(**given))
        assert sum(bar.points for bar in made.bars) == pytest.approx(100)
        return made, hfu(run, scope(run, None), total, Claims(**given))


def test_each_dtype_counts_by_its_own_peak() -> None:
    """51% of the FLOPs are bf16 and need 255 ns at peak, 49% are fp8 and need half as long for as many."""
    found, done = ask({effort("bf16", 510 * BF16 // 2): 400, effort("fp8", 490 * BF16 // 2): 400})
    needed = 510 / 2 + 490 / 2 * BF16 / FP8
    assert found.value == done == pytest.approx(needed / WALL)
    assert "51.0% in bf16 at 989 TFLOPS, 49.0% in fp8 at 1979 TFLOPS" in found.convention


def test_what_is_repeated_counts_at_the_peak_of_its_dtype() -> None:
    found, done = ask({effort("bf16", 100 * BF16): 200, effort("fp8", 100 * FP8, again=50 * FP8): 300})
    assert (found.value, done) == (pytest.approx(200 / WALL), pytest.approx(250 / WALL))
    bars = {bar.name: bar.points for bar in found.bars}
    assert bars["compute.recomputation"] == pytest.approx(100 * 50 / WALL)


def test_given_flops_have_the_mix_of_the_counted_ones() -> None:
    found, _ = ask({effort("bf16", 100 * BF16): 200, effort("fp8", 100 * FP8): 200}, model_flops=300 * (BF16 + FP8))
    assert found.value == pytest.approx(600 / WALL)


@pytest.mark.parametrize(("part", "is_known"), [(4, True), (6, False)])
def test_a_dtype_without_a_peak(part: int, is_known: bool) -> None:
    """Up to 5% of the FLOPs may have none: they do not count, which the convention says."""
    found, _ = ask({effort("bf16", (100 - part) * BF16): 400, effort("fp64", part * BF16): 400})
    assert found.value == (pytest.approx((100 - part) / WALL) if is_known else None)
    assert ("fp64 (4.0%) not counted" in found.convention) == is_known
    assert ("the fp64 peak of H100-SXM5 is not confirmed" in found.reason) != is_known


@pytest.mark.parametrize(("part", "is_known"), [(4, True), (6, False)])
def test_products_faster_than_their_peak_ran_in_another_dtype(part: int, is_known: bool) -> None:
    """At the peak of fp32 they need 59 ns or more, but took 20: in tf32, which their kernels do not name."""
    found, _ = ask({effort("bf16", (100 - part) * BF16): 400, effort("fp32", part * BF16): 20})
    assert found.value == (pytest.approx((100 - part) / WALL) if is_known else None)


def test_a_given_peak_is_that_of_all_dtypes() -> None:
    found, _ = ask({effort("bf16", 100 * BF16): 200, effort("fp64", 100 * BF16): 200}, peak_tflops=989.0)
    assert found.value == pytest.approx(200 / WALL)

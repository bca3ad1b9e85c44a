"""How much ranks do, by the elements that their ops read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lostflops.account.ledger.pieces import ComputePiece
from lostflops.explain.advise.signs import work_done
from lostflops.explain.advise.signs.computed_ranks import read_computed_ranks


def rank(number: int, *ops: tuple[str, str, int], steps: int = 1) -> SimpleNamespace:
    pieces = [
        ComputePiece(
            kernel_class="other",
            name=name,
            told=(name, shapes, ""),
            phase="forward",
            count=steps,
            ns=ns,
            own_ns=ns,
            event=0,
        )
        for name, shapes, ns in ops
    ]
    return SimpleNamespace(rank=number, pieces=pieces, steps=steps)


def case_of(ranks: list[SimpleNamespace]) -> Any:
    numbers = tuple(one.rank for one in ranks)
    return SimpleNamespace(
        answers={read_computed_ranks: ranks}, mesh=SimpleNamespace(cohort=lambda _rank, _among: numbers)
    )


def test_a_rank_with_longer_sequences_reads_more_in_the_ops_that_take_the_time() -> None:
    """As in an LSTM, which has no formula for its FLOPs; copies of parameters are the same on all ranks."""
    copies = ("aten::copy_", "[[5000000]]", 1_000)
    ranks = [
        rank(number, ("aten::lstm", f"[[8, {length}, 40], [4, 8, 48]]", length * 1_000_000), copies)
        for number, length in enumerate((24, 24, 44))
    ]
    found = work_done._elements(case_of(ranks))
    assert found is not None
    assert found.beyond(2, [0, 1]) == pytest.approx(44 / 24 - 1, abs=0.01)
    assert found.beyond(0, [1, 2]) == pytest.approx(24 / 34 - 1, abs=0.01)


def test_a_slow_rank_reads_as_much_as_its_peers() -> None:
    """It also recorded more steps."""
    ranks = [rank(number, ("aten::mm", "[[64, 64], [64, 64]]", ns), steps=ns) for number, ns in enumerate((10, 10, 30))]
    found = work_done._elements(case_of(ranks))
    assert found is not None
    assert found.beyond(2, [0, 1]) == 0


def test_other_kernels_for_the_same_layer_are_not_more_work() -> None:
    """As on a rank without oneDNN, which unfolds pictures into large matrices."""
    shared = ("aten::relu", "[[4, 24, 40, 40]]", 10)
    fast, slow = ("aten::mkldnn_convolution", "[[4, 24, 40, 40]]", 50), ("aten::im2col", "[[4, 216, 1600]]", 100)
    found = work_done._elements(case_of([rank(0, shared, fast), rank(1, shared, slow)]))
    assert found is not None
    assert found.beyond(1, [0]) == 0


def test_work_that_only_one_rank_has_is_more_work() -> None:
    shared, more = ("aten::relu", "[[4, 24, 40, 40]]", 10), ("aten::embedding_bag", "[[100000, 64]]", 90)
    found = work_done._elements(case_of([rank(0, shared), rank(1, shared), rank(2, shared, more)]))
    assert found is not None
    assert found.beyond(2, [0, 1]) > 1

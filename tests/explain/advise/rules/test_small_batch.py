"""Which part of an op grows with the batch."""

from types import SimpleNamespace
from typing import Any

import pytest

from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.pieces import ComputePiece
from lostflops.explain.advise.rules import small_batch

PARAMETERS = {(500, 500)}
RANK: Any = SimpleNamespace(record=SimpleNamespace(on_device=False))


def grows(op: str, shapes: str, kernel_class: str = "matmul", phase: str = "forward") -> float:
    piece = ComputePiece(
        kernel_class=kernel_class,
        name=op,
        told=(op, shapes, ""),
        phase=phase,
        count=10,
        ns=1_050_000,
        own_ns=1_050_000,
        event=0,
    )
    return small_batch._grows(piece, RANK, PARAMETERS) / 1_000_000


def test_a_product_with_few_rows_is_its_weight() -> None:
    assert grows("aten::mm", "[[2, 500], [500, 500]]") == pytest.approx(2000 / 252_000)
    assert grows("aten::linear", "[[2, 500], [500, 500], []]") == pytest.approx(2000 / 252_000)
    assert grows("aten::mm", "[[500, 2], [2, 500]]") == pytest.approx(2000 / 252_000)


def test_a_product_with_many_grows() -> None:
    assert grows("aten::mm", "[[8192, 500], [500, 500]]") > 0.96


def test_ops_on_samples_grow_but_for_their_call_and_ops_on_gradients_do_not() -> None:
    assert grows("aten::relu", "[[2, 500]]", "elementwise") == 1
    assert grows("aten::div_", "[[500, 500], []]", "elementwise") == 0
    assert grows("aten::add_", "[[2, 500]]", "elementwise", "optimizer") == 0


@pytest.mark.parametrize(
    ("batch", "wait", "expected"),
    [
        (small_batch._BatchSize(2, None, 1), 0, True),
        (small_batch._BatchSize(8, None, 1), 0, False),
        (small_batch._BatchSize(2, None, 4), 0, False),
        (small_batch._BatchSize(1, 4096, 1), 0, False),
        (small_batch._BatchSize(2, None, 1), 30, False),
    ],
    ids=["few", "enough", "accumulated", "long sequences", "waits for late ranks"],
)
def test_a_batch_is_small_by_samples_tokens_and_what_else_is_the_matter(
    batch: small_batch._BatchSize, wait: int, expected: bool
) -> None:
    lines = dict.fromkeys(LINES, 0) | {"compute": 100 - wait, "comm.wait": wait}
    case: Any = SimpleNamespace(wall=100, total=SimpleNamespace(lines=lines))
    assert small_batch._is_small(case, batch) is expected


@pytest.mark.parametrize(("cap_mib", "expected"), [(25, False), (5, True)], ids=["has DDP's default", "has less"])
def test_buckets_that_the_job_has_are_no_better_fix(cap_mib: int, expected: bool) -> None:
    gains = {"bucket_mb=25": SimpleNamespace(value=0.2)}
    case: Any = SimpleNamespace(facts=None, job={"ddp": [{"bucket_cap_bytes": cap_mib << 20}]}, price=gains.get)
    assert small_batch._has_narrower(case) is expected

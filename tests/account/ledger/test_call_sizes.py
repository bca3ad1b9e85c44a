"""Sizes of calls as bandwidths and cost models count them."""

import pytest

from lostflops.account.ledger.call_sizes import SIZE
from memory_run import MemoryRun


@pytest.mark.parametrize(
    ("op", "bytes_in", "bytes_out", "size"),
    [
        ("all_gather", 100, None, 400),
        ("reduce_scatter", None, 100, 400),
        # A root gathers four tensors of 100 bytes, and the others send theirs.
        ("gather", 100, 400, 100),
        ("gather", None, 400, 100),
        ("gather", 100, None, 100),
        # A root scatters four tensors; every rank receives its own.
        ("scatter", 400, 100, 100),
        ("scatter", 400, None, 100),
        ("scatter", None, 100, 100),
        ("reduce", 100, 100, 100),
        ("broadcast", None, 100, 100),
    ],
)
def test_the_size_of_a_call_on_four_ranks(op: str, bytes_in: int | None, bytes_out: int | None, size: int) -> None:
    row = {"rank": 0, "op": op, "group_size": 4, "bytes_in": bytes_in, "bytes_out": bytes_out}
    with MemoryRun(collectives=[row]) as run:
        assert run.rows(f"select {SIZE} from collectives") == [(size,)]

"""The word for what bounds a job, on ledgers small enough to add up by hand."""

from collections import Counter

import pytest

from lostflops.account.ledger.bound import Bound
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.total import RankLines, RunLedger


def ledger(
    *ranks: dict[str, int], classes: dict[str, int] | None = None, late: dict[int, int] | None = None
) -> RunLedger:
    """Ranks by their lines, time of compute by class, and time of waits by the rank that was late."""
    total = RunLedger()
    for rank, lines in enumerate(ranks):
        whole = {line: lines.get(line, 0) for line in LINES}
        total.ranks.append(RankLines(rank, sum(whole.values()), whole, 1))
        total.lines.update(whole)
    total.parts["compute"] = Counter(classes or {"matmul": total.lines["compute"]})
    total.parts["comm.wait"] = Counter({f"for rank {rank}": ns for rank, ns in (late or {}).items()})
    return total


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ({"compute": 60, "idle.host": 40}, "compute"),
        ({"compute": 40, "idle.host": 30, "idle.python": 20, "idle.sync": 10}, "host"),
        ({"compute": 40, "idle.compile": 60}, "host"),
        ({"compute": 40, "idle.data": 60}, "input"),
        ({"compute": 40, "comm.transfer": 60}, "communication"),
        ({"compute": 40, "comm.transfer": 10, "comm.bubble": 50}, None),
        ({"compute": 40, "copy": 35, "idle.alloc": 25}, "memory"),
        ({"compute": 50, "idle.data": 40}, "compute"),
        ({"compute": 50, "idle.data": 41}, "balanced"),
        ({"compute": 60, "idle.dependency": 40}, "compute"),
        ({"compute": 40, "idle.dependency": 30, "unexplained": 30}, None),
        ({"unexplained": 30}, None),
        ({}, None),
    ],
)
def test_the_word_with_the_most_time_leads(lines, word):
    assert Bound.of(ledger(lines)).word == word


def test_kernels_that_do_not_multiply_are_bound_by_memory():
    bound = Bound.of(
        ledger({"compute": 100}, classes={"attention": 20, "other": 10, "elementwise": 40, "optimizer": 30})
    )
    assert bound.shares == {"compute": 0.3, "memory": 0.7, "communication": 0, "input": 0, "host": 0}
    assert bound.word == "memory"


def test_a_wait_counts_as_what_the_late_rank_did_instead():
    """Rank 1 loads its batch for 60 of 100, and rank 0 waits for it."""
    late_input = ledger({"compute": 40, "comm.wait": 60}, {"compute": 40, "idle.data": 60}, late={1: 60})
    assert Bound.of(late_input).shares["input"] == pytest.approx(0.6)
    assert Bound.of(late_input).word == "input"
    slow_device = ledger({"compute": 30, "comm.wait": 70}, {"compute": 100}, late={1: 70})
    assert Bound.of(slow_device).word == "compute"


def test_a_wait_for_what_has_no_word_has_no_word():
    """Kernels of rank 1 start late, for a reason that the ledger does not have."""
    queued = ledger({"compute": 20, "comm.wait": 80}, {"compute": 20, "idle.dependency": 80}, late={1: 80})
    assert Bound.of(queued).shares == {"compute": 0.2, "memory": 0, "communication": 0, "input": 0, "host": 0}
    assert Bound.of(queued).word is None


def test_a_wait_for_a_rank_without_a_ledger_is_communication():
    alone = ledger({"compute": 40, "comm.wait": 60}, late={7: 60})
    assert Bound.of(alone).shares["communication"] == pytest.approx(0.6)


def test_waits_of_slow_kernels_are_split_like_all_kernels():
    slow = ledger(
        {"compute": 20, "comm.wait": 80}, {"compute": 100}, classes={"matmul": 30, "elementwise": 90}, late={1: 80}
    )
    assert Bound.of(slow).shares["memory"] == pytest.approx(0.75)
    assert Bound.of(slow).shares["compute"] == pytest.approx(0.25)

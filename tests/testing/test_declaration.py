"""Declarations that make no sense are refused with a reason."""

from itertools import pairwise

import pytest
from hypothesis import given

from lostflops.testing import Kernel, Losses, LostRecords, Model, Straggler, SyntheticCluster
from lostflops.testing.strategies import disjoint_interval_sets, interval_sets

REFUSED = {
    "no rank": (lambda: SyntheticCluster(ranks=0), "at least 1"),
    "uneven split": (lambda: SyntheticCluster(ranks=6, tensor_parallel=4), "do not split"),
    "straggler outside": (lambda: SyntheticCluster(stragglers=(Straggler(8, "late_data", delay=1),)), "not a rank"),
    "straggler without delay": (lambda: Straggler(0, "late_data", factor=2.0), "delay"),
    "straggler without factor": (lambda: Straggler(0, "more_work", delay=5), "factor"),
    "too many buckets": (lambda: Model(layers=1, buckets=2), "buckets"),
    "kernel without time": (lambda: Kernel(0), "positive"),
    "negative loss": (lambda: Losses(data=-1), "negative"),
    "share above one": (lambda: LostRecords(kernels=1.5), "between 0 and 1"),
}


@pytest.mark.parametrize(("declare", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(declare, reason) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=reason):
        declare()


@given(interval_sets(), disjoint_interval_sets())
def test_interval_strategies_keep_their_promise(
    any_intervals: list[tuple[int, int]], disjoint: list[tuple[int, int]]
) -> None:
    assert all(start < stop for start, stop in any_intervals + disjoint)
    assert all(before[1] < after[0] for before, after in pairwise(disjoint))


def test_topology_of_a_single_rank_needs_no_group() -> None:
    assert SyntheticCluster(ranks=1).generate().truth.collectives == ()

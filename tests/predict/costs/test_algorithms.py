import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.predict.costs.algorithms import BACKENDS, FORMS, derive_scale_factors, hierarchical
from lostflops.predict.costs.times import OPS, CommGroup

RANKS = st.integers(2, 10_000)
SIZES = st.integers(0, 1 << 34)


@given(st.sampled_from(sorted(FORMS)), RANKS)
def test_one_rank_costs_nothing_and_more_ranks_never_less(which, ranks: int) -> None:
    form = FORMS[which]
    assert form.steps(1) == form.share(1) == 0
    assert form.steps(ranks + 1) >= form.steps(ranks) > 0
    # Ranks beyond a power of two take another round of the whole tensor in Rabenseifner's reduce. Bruck's all-to-all
    # sends 12 of 8 blocks, and 13 of 9, which are less: only their number never falls.
    more, fewer = form.share(ranks + 1), form.share(ranks)
    if which[1] == "bruck":
        more, fewer = more * (ranks + 1), fewer * ranks
    assert more >= fewer > 0 or which[1] == "rabenseifner"


@given(RANKS)
def test_a_ring_reduces_scatters_and_gathers(ranks: int) -> None:
    whole, halves = FORMS["all_reduce", "ring"], [FORMS[op, "ring"] for op in ("reduce_scatter", "all_gather")]
    assert whole.steps(ranks) == sum(half.steps(ranks) for half in halves)
    assert whole.share(ranks) == pytest.approx(sum(half.share(ranks) for half in halves))


@given(st.sampled_from(sorted(FORMS)), RANKS, RANKS, st.tuples(st.floats(0, 1e9), st.floats(0, 10), SIZES))
def test_a_line_is_carried_as_alpha_by_steps_and_beta_by_share(which, n: int, m: int, numbers) -> None:
    form, (alpha, beta, size) = FORMS[which], numbers
    factor, scale = derive_scale_factors(form, n, form, m)
    expected = alpha * form.steps(m) + beta * form.share(m) * size
    assert factor * (alpha * form.steps(n) + beta * form.share(n) * size * scale) == pytest.approx(expected)


@given(st.sampled_from(OPS), st.integers(1, 1 << 40), st.integers(1, 64), st.integers(1, 64))
def test_parts_stay_in_hosts_or_go_across_them(op, size: int, each: int, hosts: int) -> None:
    for part in hierarchical(op, size, CommGroup(each * hosts, hosts)):
        assert part.group.level in {"host", "across"}
        assert 1 <= part.size <= (size * each if op in {"gather", "scatter"} else size)
    if hosts > 1 and op in {"all_reduce", "all_gather", "reduce_scatter"}:
        across = [part for part in hierarchical(op, size, CommGroup(each * hosts, hosts)) if part.group.hosts > 1]
        assert [part.size for part in across] == [-(-size // each)], "a rail carries its shard"


def test_every_backend_has_an_algorithm_for_every_op() -> None:
    assert all((op, name) in FORMS for by_op in BACKENDS.values() for op in OPS for name in by_op[op])

"""Steps and bytes of collective algorithms, used to scale a measurement from one group size to another.

An algorithm does `steps` one after the other, and puts `share` times the size on the busiest link. So alpha scales with
steps and beta with share, and T on m ranks follows from T on n ranks:

    T_m(S) = a T_n(S b / a)    with a = steps(m) / steps(n) and b = share(m) / share(n)

For a ring, b / a is n / m: the same bytes in each message, in more steps. If a curve bends at a message size
(protocols, sockets, caches), it bends at the same message size again, and no intercept becomes negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from lostflops.predict.costs.times import CommGroup, Op


@dataclass(frozen=True, slots=True)
class CostForm:
    """Steps and bytes of an algorithm, by the number of ranks."""

    steps: Callable[[int], float]
    share: Callable[[int], float]


def doublings(ranks: int) -> int:
    """Return how many doublings of one rank reach this many ranks.

    >>> [doublings(ranks) for ranks in (1, 2, 3, 8, 9)]
    [0, 1, 2, 3, 4]
    """
    return (ranks - 1).bit_length()


_RING_TWICE: Final = CostForm(lambda n: 2 * (n - 1), lambda n: 2 * (n - 1) / n)
_RING: Final = CostForm(lambda n: n - 1, lambda n: (n - 1) / n)
_CHAIN: Final = CostForm(lambda n: n - 1, lambda n: min(n - 1, 1))
_TREE_TWICE: Final = CostForm(lambda n: 2 * doublings(n), lambda n: min(n - 1, 2))
_BINOMIAL: Final = CostForm(doublings, lambda n: doublings(n) * (doublings(n) + 1) / 2)
_ONCE: Final = CostForm(lambda n: min(n - 1, 1), lambda n: min(n - 1, 1))
_ROOT: Final = CostForm(lambda n: n - 1, lambda n: n - 1)
_ROOT_TREE: Final = CostForm(doublings, lambda n: n - 1)
_WHOLE_TREE: Final = CostForm(doublings, doublings)
_SCATTER_ALL_GATHER: Final = CostForm(lambda n: doublings(n) + n - 1, lambda n: 2 * (n - 1) / n)


@cache
def _count_bruck_blocks(ranks: int) -> int:
    """Return how many blocks a rank sends in Bruck's all-to-all: in round k those whose distance has bit k set.

    >>> _count_bruck_blocks(8)
    12
    """
    return sum(distance.bit_count() for distance in range(ranks))


def _halving_steps(ranks: int) -> int:
    whole = ranks.bit_length() - 1
    return 2 * whole + (ranks > 1 << whole)


def _halving_share(ranks: int) -> float:
    """Return the share of a reduce by recursive halving and a gather: ranks beyond a power of two first send all they
    have to a neighbour."""
    whole = 1 << (ranks.bit_length() - 1)
    return 2 * (whole - 1) / whole + (ranks > whole)


_BRUCK: Final = CostForm(doublings, lambda n: _count_bruck_blocks(n) / n)
_RABENSEIFNER: Final = CostForm(_halving_steps, _halving_share)

FORMS: Final[dict[tuple[str, str], CostForm]] = {
    ("all_reduce", "ring"): _RING_TWICE,
    ("all_reduce", "tree"): _TREE_TWICE,
    ("all_gather", "ring"): _RING,
    ("reduce_scatter", "ring"): _RING,
    ("all_to_all", "sends"): _RING,
    ("broadcast", "ring"): _CHAIN,
    ("broadcast", "tree"): _BINOMIAL,
    ("broadcast", "binomial"): _WHOLE_TREE,
    ("broadcast", "scatter_allgather"): _SCATTER_ALL_GATHER,
    ("reduce", "chain"): _CHAIN,
    ("reduce", "ring"): _RING_TWICE,
    ("reduce", "binomial"): _WHOLE_TREE,
    ("reduce", "rabenseifner"): _RABENSEIFNER,
    ("gather", "linear"): _ROOT,
    ("gather", "binomial"): _ROOT_TREE,
    ("scatter", "linear"): _ROOT,
    ("scatter", "binomial"): _ROOT_TREE,
    ("all_to_all", "bruck"): _BRUCK,
    ("send_recv", "sends"): _ONCE,
}
"""Forms by operation and algorithm. A tree's all-reduce is pipelined: its steps overlap, and each link carries the size
up and down, between two ranks once each way. gloo's broadcast is not: a rank sends the whole to all its children at
once, which share its link, so that d levels take d + (d - 1) + ... + 1 times the size.

MPI's forms are those of Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH"
(IJHPCA 19, 2005): binomial trees; van de Geijn's broadcast (scatter, then a ring's all-gather); Rabenseifner's reduce
(halving, then a gather); Bruck's all-to-all. gloo's gather and scatter go directly between the root and each rank
(gather.cc, scatter.cc), its reduce is a ring's reduce-scatter and a gather to the root (reduce.cc)."""

_RINGS: Final[dict[str, tuple[str, ...]]] = {
    "all_reduce": ("ring",),
    "all_gather": ("ring",),
    "reduce_scatter": ("ring",),
    "all_to_all": ("sends",),
    "broadcast": ("ring",),
    "reduce": ("chain",),
    "gather": ("linear",),
    "scatter": ("linear",),
    "send_recv": ("sends",),
}
BACKENDS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "gloo": {**_RINGS, "broadcast": ("tree",), "reduce": ("ring",)},
    "mpi": {
        **_RINGS,
        "all_to_all": ("sends", "bruck"),
        "broadcast": ("scatter_allgather", "binomial"),
        "reduce": ("rabenseifner", "binomial"),
        "gather": ("binomial",),
        "scatter": ("binomial",),
    },
    "nccl": {**_RINGS, "all_reduce": ("ring", "tree")},
}
"""Algorithms that a backend uses for each op; NCCL and MPI take the faster. gloo's are those of its public source
(allreduce.cc, allgather.cc, alltoall.cc, broadcast.cc); PyTorch's reduce-scatter on gloo is an all-reduce, whose steps
and bytes grow as a ring's."""


def algorithms_of(backend: str, op: str) -> tuple[str, ...]:
    """Return the algorithms that a backend uses for an op; an unknown backend counts as NCCL.

    >>> algorithms_of("gloo", "broadcast"), algorithms_of("nccl", "broadcast"), algorithms_of("nccl", "all_reduce")
    (('tree',), ('ring',), ('ring', 'tree'))
    """
    return BACKENDS.get(backend, BACKENDS["nccl"])[op]


def measured_form(backend: str, op: str, algorithm: str) -> CostForm:
    """Return the form by which to read a measured curve: if a backend chooses, small sizes were done with the steps of
    one algorithm and large ones with the bytes of its first, which sends the fewest."""
    native = algorithms_of(backend, op)
    by = algorithm if algorithm in native else native[0]
    return CostForm(FORMS[op, by].steps, FORMS[op, native[0]].share)


def derive_scale_factors(measured: CostForm, ranks_measured: int, wanted: CostForm, ranks: int) -> tuple[float, float]:
    """Return the factor for a measured time, and the factor for the size at which to read it.

    >>> ring = FORMS["all_reduce", "ring"]
    >>> derive_scale_factors(ring, 2, ring, 8)
    (7.0, 0.25)
    """
    assert ranks_measured > 1, "one rank says nothing about links"
    steps = wanted.steps(ranks) / measured.steps(ranks_measured)
    share = wanted.share(ranks) / measured.share(ranks_measured)
    return steps, share / steps if steps else 0.0


@dataclass(frozen=True, slots=True)
class AlgorithmPart:
    """One collective of several that make up another."""

    op: Op
    size: int
    group: CommGroup


def hierarchical(op: Op, size: int, group: CommGroup) -> tuple[AlgorithmPart, ...]:
    """Split an op on hosts with several ranks each into collectives inside hosts and across them, one after the other.

    >>> [(part.op, part.size, part.group.ranks) for part in hierarchical("all_reduce", 8000, CommGroup(16, 2))]
    [('reduce_scatter', 8000, 8), ('all_reduce', 1000, 2), ('all_gather', 8000, 8)]
    """
    each = group.per_host
    inside, across = CommGroup(each), CommGroup(group.hosts, group.hosts)
    shard = -(-size // each)
    parts: dict[Op, tuple[AlgorithmPart, ...]] = {
        "all_reduce": (
            AlgorithmPart("reduce_scatter", size, inside),
            AlgorithmPart("all_reduce", shard, across),
            AlgorithmPart("all_gather", size, inside),
        ),
        "all_gather": (AlgorithmPart("all_gather", shard, across), AlgorithmPart("all_gather", size, inside)),
        "reduce_scatter": (
            AlgorithmPart("reduce_scatter", size, inside),
            AlgorithmPart("reduce_scatter", shard, across),
        ),
        "all_to_all": (AlgorithmPart("all_to_all", size, inside), AlgorithmPart("all_to_all", size, across)),
        "broadcast": (AlgorithmPart("broadcast", size, across), AlgorithmPart("broadcast", size, inside)),
        "reduce": (AlgorithmPart("reduce", size, inside), AlgorithmPart("reduce", size, across)),
        "gather": (AlgorithmPart("gather", size, inside), AlgorithmPart("gather", size * each, across)),
        "scatter": (AlgorithmPart("scatter", size * each, across), AlgorithmPart("scatter", size, inside)),
        "send_recv": (AlgorithmPart("send_recv", size, CommGroup(2, min(group.hosts, 2))),),
    }
    return tuple(part for part in parts[op] if part.group.ranks > 1)

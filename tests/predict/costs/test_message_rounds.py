"""Forms of rooted collectives and all-to-all, against rounds of messages that are sent one by one.

A rank sends one message and receives one in a round, so a round takes alpha and beta times its longest message. The
data that arrives is checked as well.
"""

from __future__ import annotations

import pytest

from lostflops.predict.costs.algorithms import FORMS
from lostflops.predict.costs.collective_times import CollectiveTimes
from lostflops.predict.costs.curve import Constant, Curve, CurvePiece
from lostflops.predict.costs.times import CommGroup

RANKS = [2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 31]


class Rounds:
    """Blocks that each rank has, and what rounds of messages cost so far."""

    def __init__(self, has: list[set[object]]) -> None:
        self.has, self.steps, self.blocks = has, 0, 0.0

    def send(self, *messages: tuple[int, int, set[object]], each: float = 1.0) -> None:
        """Send blocks of `each` times the size from one rank to another, all at the same time."""
        messages = tuple(message for message in messages if message[2])
        for ends in zip(*((src, dst) for src, dst, _ in messages), strict=True):
            assert len(set(ends)) == len(ends), "a rank sends and receives one message at a time"
        for src, _, sent in messages:
            assert sent <= self.has[src]
        self.has = [own.union(*(sent for _, dst, sent in messages if dst == rank)) for rank, own in enumerate(self.has)]
        self.steps += 1
        self.blocks += max(len(sent) for _, _, sent in messages) * each


def gather_linear(n: int) -> Rounds:
    rounds = Rounds([{rank} for rank in range(n)])
    for rank in range(1, n):
        rounds.send((rank, 0, {rank}))
    assert rounds.has[0] == set(range(n))
    return rounds


def gather_binomial(n: int) -> Rounds:
    rounds, far = Rounds([{rank} for rank in range(n)]), 1
    while far < n:
        rounds.send(*((rank, rank - far, rounds.has[rank]) for rank in range(far, n, 2 * far)))
        far *= 2
    assert rounds.has[0] == set(range(n))
    return rounds


def scatter(n: int, far: list[int]) -> Rounds:
    """A rank keeps the blocks up to a distance, and sends the others on."""
    rounds = Rounds([set(range(n)), *(set[object]() for _ in range(n - 1))])
    for step in far:
        has = rounds.has
        rounds.send(
            *(
                (rank, rank + step, {block for block in has[rank] if rank + step <= block < rank + 2 * step})
                for rank in range(0, n - step, 2 * step)
            )
        )
    assert all(rank in has for rank, has in enumerate(rounds.has))
    return rounds


def powers_below(n: int) -> list[int]:
    return [1 << power for power in reversed(range((n - 1).bit_length()))]


def scatter_linear(n: int) -> Rounds:
    rounds = Rounds([set(range(n)), *(set[object]() for _ in range(n - 1))])
    for rank in range(1, n):
        rounds.send((0, rank, {rank}))
    return rounds


def broadcast_binomial(n: int) -> Rounds:
    rounds, known = Rounds([{"all"}, *(set[object]() for _ in range(n - 1))]), 1
    while known < n:
        rounds.send(*((rank, rank + known, {"all"}) for rank in range(min(known, n - known))))
        known *= 2
    assert all(has == {"all"} for has in rounds.has)
    return rounds


def broadcast_scatter_all_gather(n: int) -> Rounds:
    rounds = scatter(n, powers_below(n))
    own = [{rank} for rank in range(n)]
    for turn in range(n - 1):
        rounds.send(*((rank, (rank + 1) % n, own[(rank - turn) % n]) for rank in range(n)))
    assert all(has == set(range(n)) for has in rounds.has)
    rounds.blocks /= n
    return rounds


def reduce_binomial(n: int) -> Rounds:
    """Sums are single blocks: what a rank has so far is the set of ranks in its sum."""
    sums, steps, far = [{rank} for rank in range(n)], 0, 1
    while far < n:
        for rank in range(far, n, 2 * far):
            sums[rank - far] |= sums[rank]
        far, steps = 2 * far, steps + 1
    assert sums[0] == set(range(n))
    rounds = Rounds([])
    rounds.steps = steps
    rounds.blocks = float(steps)
    return rounds


def reduce_rabenseifner(n: int) -> Rounds:
    """Ranks beyond a power of two fold; the others halve what they sum and double what they gather."""
    whole = 1 << (n.bit_length() - 1)
    sums = [{part: {rank} for part in range(whole)} for rank in range(n)]
    steps = blocks = 0.0
    if n > whole:
        for rank in range(whole, n):
            for part, of in sums[rank].items():
                sums[rank - whole][part] = sums[rank - whole][part] | of
        steps, blocks = 1, 1.0
    parts, held = whole, [set(range(whole)) for _ in range(whole)]
    while parts > 1:
        parts //= 2
        before = [dict(own) for own in sums]
        for rank in range(whole):
            other = rank ^ parts
            keeps = {part for part in held[rank] if (part & parts) == (rank & parts)}
            for part in keeps:
                sums[rank][part] = sums[rank][part] | before[other][part]
            held[rank] = keeps
        steps, blocks = steps + 1, blocks + parts / whole
    assert all(sums[rank][rank] == set(range(n)) for rank in range(whole))
    gathered = gather_binomial(whole) if whole > 1 else Rounds([])
    rounds = Rounds([])
    rounds.steps, rounds.blocks = int(steps) + gathered.steps, blocks + gathered.blocks / whole
    return rounds


def reduce_ring(n: int) -> Rounds:
    """A ring's reduce-scatter, then each rank sends its part to the root."""
    rounds = Rounds([])
    rounds.steps, rounds.blocks = n - 1, (n - 1) / n
    last = gather_linear(n)
    rounds.steps, rounds.blocks = rounds.steps + last.steps, rounds.blocks + last.blocks / n
    return rounds


def all_to_all_pairwise(n: int) -> Rounds:
    rounds = Rounds([{(rank, to) for to in range(n)} for rank in range(n)])
    for far in range(1, n):
        rounds.send(*((rank, (rank + far) % n, {(rank, (rank + far) % n)}) for rank in range(n)), each=1 / n)
    assert all({(rank, to) for rank in range(n)} <= has for to, has in enumerate(rounds.has))
    return rounds


def all_to_all_bruck(n: int) -> Rounds:
    """Blocks travel by the bits of their distance; each rank has the same number of them in a round."""
    rounds, far = Rounds([{(rank, to) for to in range(n)} for rank in range(n)]), 1
    while far < n:
        messages = []
        for rank in range(n):
            # A block that still has to travel is where the lower bits of its distance brought it.
            sent = {
                (of, to)
                for of, to in rounds.has[rank]
                if (to - of) % n & far and (of + (to - of) % n % far) % n == rank
            }
            messages.append((rank, (rank + far) % n, sent))
        rounds.send(*messages, each=1 / n)
        far *= 2
    assert all({(rank, to) for rank in range(n)} <= has for to, has in enumerate(rounds.has))
    return rounds


ALGORITHMS = {
    ("gather", "linear"): gather_linear,
    ("gather", "binomial"): gather_binomial,
    ("scatter", "linear"): scatter_linear,
    ("scatter", "binomial"): lambda n: scatter(n, powers_below(n)),
    ("broadcast", "binomial"): broadcast_binomial,
    ("broadcast", "scatter_allgather"): broadcast_scatter_all_gather,
    ("reduce", "binomial"): reduce_binomial,
    ("reduce", "rabenseifner"): reduce_rabenseifner,
    ("reduce", "ring"): reduce_ring,
    ("all_to_all", "sends"): all_to_all_pairwise,
    ("all_to_all", "bruck"): all_to_all_bruck,
}


@pytest.mark.parametrize(("op", "algorithm"), ALGORITHMS, ids="-".join)
@pytest.mark.parametrize("ranks", RANKS)
def test_rounds_of_messages_take_the_steps_and_bytes_of_the_form(op, algorithm, ranks) -> None:
    rounds, form = ALGORITHMS[op, algorithm](ranks), FORMS[op, algorithm]
    assert (form.steps(ranks), form.share(ranks)) == (rounds.steps, pytest.approx(rounds.blocks))


@pytest.mark.parametrize(
    ("op", "algorithm", "alphas", "sizes"),
    [
        ("gather", "linear", 7, 7),
        ("gather", "binomial", 3, 7),
        ("scatter", "linear", 7, 7),
        ("scatter", "binomial", 3, 7),
        ("broadcast", "binomial", 3, 3),
        ("broadcast", "scatter_allgather", 10, 1.75),
        ("reduce", "binomial", 3, 3),
        ("reduce", "rabenseifner", 6, 1.75),
        ("reduce", "ring", 14, 1.75),
        ("all_to_all", "sends", 7, 0.875),
        ("all_to_all", "bruck", 3, 1.5),
    ],
)
def test_eight_ranks_by_hand(op, algorithm, alphas, sizes) -> None:
    """As published for p = 8: lg p = 3, (p - 1) / p = 7 / 8, Bruck's p / 2 lg p blocks of size / p."""
    form = FORMS[op, algorithm]
    assert (form.steps(8), form.share(8)) == (alphas, sizes)


ALPHA, BETA = 50_000.0, 0.5


class Measured:
    """Two ranks on two hosts, measured over a backend."""

    date = None

    def __init__(self, backend: str, *ops: str) -> None:
        line = CurvePiece(1, 1 << 30, Constant(ALPHA, 0, 2 * ALPHA), Constant(BETA, 0, 2 * BETA), 0.01)
        self.backend, self.curves = backend, {(op, "across", 2, 2): Curve((line,)) for op in ops}


@pytest.mark.parametrize(
    ("backend", "op", "alphas", "betas"),
    [
        ("gloo", "gather", 7, 7),
        ("gloo", "scatter", 7, 7),
        # Two ranks take two steps and the whole tensor once.
        ("gloo", "reduce", 7, 1.75),
        ("gloo", "all_to_all", 7, 7 / 4),
        ("mpi", "gather", 3, 7),
        ("mpi", "scatter", 3, 7),
    ],
)
def test_eight_hosts_from_two(backend, op, alphas, betas) -> None:
    known = CollectiveTimes.of(learned=Measured(backend, op))
    size = 1 << 20
    assert known.time(op, size, CommGroup(8, 8)).ns == pytest.approx(alphas * ALPHA + betas * BETA * size)
    assert known.choices(op, size, CommGroup(8, 8))


def test_mpi_takes_brucks_rounds_for_small_messages_and_pairs_for_large_ones() -> None:
    known = CollectiveTimes.of(learned=Measured("mpi", "all_to_all"))
    small, large = (known.time("all_to_all", size, CommGroup(8, 8)) for size in (64, 1 << 28))
    assert (small.algorithm, large.algorithm) == ("bruck", "sends")
    assert small.ns == pytest.approx(3 * ALPHA, rel=0.01)
    assert large.ns == pytest.approx(7 / 4 * BETA * (1 << 28), rel=0.01)

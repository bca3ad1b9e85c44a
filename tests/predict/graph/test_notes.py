"""What ranks say alike is said once."""

from types import SimpleNamespace

from lostflops.predict.graph.join import collect_notes
from lostflops.predict.graph.parts import RankNote


def part(rank, *own, notes=()):
    return SimpleNamespace(rank=rank, notes=notes, rank_notes=own)


def waited(amount):
    return RankNote("work waited {}", amount, f"{amount} ms")


def test_ranks_are_named_together_with_the_largest_amount():
    lost = RankNote("{} of events are lost", 0.1, "10.0%")
    parts = [part(0, waited(3)), part(1, notes=("so it is",)), part(6, waited(12), lost, notes=("so it is",))]
    assert collect_notes(parts) == (
        "so it is",
        "Ranks 0, 6: work waited up to 12 ms.",
        "Rank 6: 10.0% of events are lost.",
    )


def test_many_ranks_are_counted():
    assert collect_notes([part(rank, waited(rank)) for rank in range(64)]) == (
        "64 ranks, such as 0, 1, 2: work waited up to 63 ms.",
    )

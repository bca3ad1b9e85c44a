"""What parts say of how they were made, once for all ranks of which it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from lostflops.graph.parts import Part

_MOST_NAMED: Final = 8


class RankNote(NamedTuple):
    """`said` has a place for the amount, which reads as `shown`."""

    said: str
    amount: float
    shown: str


def noted(parts: Sequence[Part]) -> tuple[str, ...]:
    """Ranks that say the same are named together, with the largest amount."""
    common = (note for part in parts for note in part.notes)
    return tuple(dict.fromkeys((*common, *_of_ranks(parts))))


def _of_ranks(parts: Sequence[Part]) -> Iterator[str]:
    by_text: dict[str, list[tuple[int, RankNote]]] = {}
    for part in parts:
        for note in part.rank_notes:
            by_text.setdefault(note.said, []).append((part.rank, note))
    for said, own in by_text.items():
        most = max((note for _, note in own), key=lambda note: note.amount).shown
        ranks = sorted(rank for rank, _ in own)
        yield f"{named(ranks)}: {said.format(most if len(ranks) == 1 else f'up to {most}')}."


def named(ranks: Sequence[int]) -> str:
    """
    >>> named([3]), named([0, 6]), named(range(64))
    ('Rank 3', 'Ranks 0, 6', '64 ranks, such as 0, 1, 2')
    """
    if len(ranks) > _MOST_NAMED:
        return f"{len(ranks)} ranks, such as {', '.join(map(str, ranks[:3]))}"
    return f"Rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"

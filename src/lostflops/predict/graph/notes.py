"""What parts say of how they were made, once for all ranks of which it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lostflops.predict.graph.parts import GraphPart, RankNote

_MOST_NAMED: Final = 8


def collect_notes(parts: Sequence[GraphPart]) -> tuple[str, ...]:
    """Ranks that say the same are named together, with the largest amount."""
    common = (note for part in parts for note in part.notes)
    return tuple(dict.fromkeys((*common, *_of_ranks(parts))))


def _of_ranks(parts: Sequence[GraphPart]) -> Iterator[str]:
    by_text: dict[str, list[tuple[int, RankNote]]] = {}
    for part in parts:
        for note in part.rank_notes:
            by_text.setdefault(note.said, []).append((part.rank, note))
    for said, own in by_text.items():
        most = max((note for _, note in own), key=lambda note: note.amount).shown
        ranks = sorted(rank for rank, _ in own)
        yield f"{describe_ranks(ranks)}: {said.format(most if len(ranks) == 1 else f'up to {most}')}."


def describe_ranks(ranks: Sequence[int]) -> str:
    """
    >>> describe_ranks([3]), describe_ranks([0, 6]), describe_ranks(range(64))
    ('Rank 3', 'Ranks 0, 6', '64 ranks, such as 0, 1, 2')
    """
    if len(ranks) > _MOST_NAMED:
        return f"{len(ranks)} ranks, such as {', '.join(map(str, ranks[:3]))}"
    return f"Rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"

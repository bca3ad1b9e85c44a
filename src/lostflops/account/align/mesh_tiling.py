"""Dimensions that together number every rank of a job once.

Ranks are numbered with one dimension varying fastest, then the next. All groups of a dimension then have one shape: a
number of ranks and a distance between them. Dimensions tile the job if each begins where the previous one ends.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

Dimensions = tuple[tuple[str, int], ...]
_MOST_SHAPES: Final = 3
_WORTH: Final = {"pp": 4, "tp": 4, "dp": 3, "dp_shard": 3, "dp_replicate": 3, "cp": 3, "ep": 1}


class GroupShape(NamedTuple):
    """Shape of a regular group of ranks."""

    size: int
    """Number of ranks."""
    stride: int
    """Distance from one rank to the next."""

    @property
    def reach(self) -> int:
        return self.size * self.stride


Evidence = Mapping[str, Mapping[GroupShape, int]]
"""Shapes that groups of each kind of parallelism may have, and how many groups say so."""


def tile(evidence: Evidence, world: int) -> tuple[Dimensions, tuple[str, ...]]:
    """Return the dimensions that fit the job, fastest first, and what had to be left out or guessed.

    >>> tile({"tp": {GroupShape(2, 1): 4}, "pp": {GroupShape(2, 4): 4}}, 8)[0]
    (('tp', 2), ('dp', 2), ('pp', 2))
    """
    kinds = list(evidence)
    options = [(None, *_best(evidence[kind])) for kind in kinds]
    chosen: dict[str, GroupShape] = {}
    dimensions: Dimensions = ()
    best = None
    for shapes in product(*options):
        picked = {kind: shape for kind, shape in zip(kinds, shapes, strict=True) if shape is not None}
        found = _lay(picked, world)
        if found is None:
            continue
        worth = sum(_WORTH[kind] for kind in picked) - 2 * found[1]
        score = (worth, sum(evidence[kind][shape] for kind, shape in picked.items()))
        if best is None or score > best:
            chosen, dimensions, best = picked, found[0], score
    return dimensions, tuple(_notes(evidence, chosen, dimensions))


def _best(shapes: Mapping[GroupShape, int]) -> list[GroupShape]:
    return sorted(shapes, key=lambda shape: (-shapes[shape], shape))[:_MOST_SHAPES]


def _lay(picked: Mapping[str, GroupShape], world: int) -> tuple[Dimensions, int] | None:
    """Return the dimensions in order with the gaps between them, and the number of gaps; None if they do not fit."""
    dimensions: list[tuple[str, int]] = []
    reach, gaps = 1, 0
    ends = ("", GroupShape(1, world))
    for kind, shape in (*sorted(_split_experts(picked).items(), key=lambda item: item[1].stride), ends):
        if shape.stride % reach:
            return None
        if shape.stride > reach:
            dimensions.append(("", shape.stride // reach))
            gaps += 1
        if kind:
            dimensions.append((kind, shape.size))
        reach = shape.reach
    return _name_dimensions(dimensions), gaps


def _split_experts(picked: Mapping[str, GroupShape]) -> dict[str, GroupShape]:
    """Take expert parallelism out of the data parallelism around it: what is left are the replicas of an expert."""
    shapes = dict(picked)
    expert, data = picked.get("ep"), picked.get("dp")
    if expert is None or data is None or expert.size >= data.size or data.size % expert.size:
        return shapes
    if expert.stride == data.stride:
        shapes["dp"] = GroupShape(data.size // expert.size, expert.reach)
    elif expert.reach == data.reach:
        shapes["dp"] = GroupShape(data.size // expert.size, data.stride)
    return shapes


def _name_dimensions(dimensions: Sequence[tuple[str, int]]) -> Dimensions:
    """Name gaps, which are replicas that no group spans: the largest is data parallel if nothing else is."""
    gaps = sorted(
        (place for place, (kind, _) in enumerate(dimensions) if not kind), key=lambda place: -dimensions[place][1]
    )
    names = ["rest", *(f"rest{number}" for number in range(2, len(gaps) + 1))]
    if not {"dp", "dp_shard", "dp_replicate"} & {kind for kind, _ in dimensions}:
        names = ["dp", *names]
    name_of = dict(zip(gaps, names, strict=False))
    return tuple((name_of.get(place, kind), size) for place, (kind, size) in enumerate(dimensions))


def _notes(evidence: Evidence, chosen: Mapping[str, GroupShape], dimensions: Dimensions) -> Iterable[str]:
    for kind, shapes in evidence.items():
        likely = _best(shapes)[0]
        told = f"{kind} groups of {likely.size} ranks, {likely.stride} apart,"
        if kind not in chosen:
            yield f"{told} are not a separate dimension: they overlap the others."
        elif len(shapes) > 1:
            yield f"{kind} groups have {len(shapes)} shapes; those of {chosen[kind].size} ranks cover the job."
    for kind, size in dimensions:
        if kind not in evidence:
            yield f"No group shows what {size} sets of ranks have in common: assumed to be {kind}."

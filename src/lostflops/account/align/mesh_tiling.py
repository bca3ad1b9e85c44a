"""Dimensions that together number every rank of a job once.

Ranks are numbered with one dimension varying fastest, then the next. All groups of a dimension then have one shape: a
number of ranks and a distance between them. Dimensions tile the job if each begins where the previous one ends.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

Dimensions = tuple[tuple[str, int], ...]
_MOST_SHAPES: Final = 3
_OVERLAP: Final = " are not a separate dimension: they overlap the others."
_WORTH: Final = {"pp": 4, "tp": 4, "dp": 3, "dp_shard": 3, "dp_replicate": 3, "cp": 3, "ep": 3, "etp": 4, "edp": 3}


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


def tile(evidence: Evidence, world: int, replicas: str = "dp") -> tuple[Dimensions, tuple[str, ...]]:
    """Return the dimensions that fit the job, fastest first, and what had to be left out or guessed. `replicas` names
    the largest dimension that no group spans.

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
        found = _lay(picked, world, replicas)
        if found is None:
            continue
        worth = sum(_WORTH[kind] for kind in picked) - 2 * found[1]
        score = (worth, sum(evidence[kind][shape] for kind, shape in picked.items()))
        if best is None or score > best:
            chosen, dimensions, best = picked, found[0], score
    return dimensions, tuple(_notes(evidence, chosen, dimensions))


def tile_with_experts(evidence: Evidence, world: int) -> tuple[Dimensions, Dimensions, tuple[str, ...]]:
    """Return the dimensions of the job, those of expert layers if these arrange the ranks in another way, and notes.

    Experts often take part of data parallelism: then they are one more dimension. If they cross groups of tensor or
    context parallelism, or share tensors among more or fewer ranks, both arrangements number every rank once.

    >>> dense = {"tp": {GroupShape(2, 1): 4}, "dp": {GroupShape(4, 2): 2}}
    >>> tile_with_experts(dense | {"ep": {GroupShape(2, 2): 4}}, 8)[:2]
    ((('tp', 2), ('ep', 2), ('dp', 2)), ())
    >>> tile_with_experts(dense | {"ep": {GroupShape(4, 1): 2}}, 8)[:2]
    ((('tp', 2), ('dp', 4)), (('ep', 4), ('edp', 2)))
    """
    own = {kind: evidence[kind] for kind in ("etp", "ep", "edp") if kind in evidence}
    dense = {kind: shapes for kind, shapes in evidence.items() if kind not in own}
    dimensions, notes = tile(dense, world)
    if "ep" not in own and ("etp" not in own or dict(dimensions).get("tp") == _best(own["etp"])[0].size):
        return dimensions, (), notes
    if "ep" in own and not _shares_tensors_otherwise(own, dense):
        nested, nested_notes = tile(dense | {"ep": own["ep"]}, world)
        if _holds(nested, dict(dimensions), dense) and (left := _replicas(nested)) in own.get("edp", {left: 1}):
            return nested, (), nested_notes
    experts, expert_notes = _tile_experts(own, dense, world)
    if not experts:
        return dimensions, (), (*notes, *(_describe(kind, shapes) + _OVERLAP for kind, shapes in own.items()))
    arranged = ", ".join(f"{kind}={size}" for kind, size in experts)
    return dimensions, experts, (*notes, *expert_notes, f"Expert layers arrange the ranks in another way: {arranged}.")


def _tile_experts(own: Evidence, dense: Evidence, world: int) -> tuple[Dimensions, tuple[str, ...]]:
    """Return the dimensions of expert layers, and notes; no dimensions if not all of their groups fit."""
    needed = {**own, **{kind: dense[kind] for kind in ("dp_replicate", "pp") if kind in dense}}
    if "etp" not in own and "tp" in dense:
        # Without groups of their own, experts share tensors as the other layers do, or not at all.
        reach = _best(dense["tp"])[0].reach
        if all(shape.stride % reach == 0 for shape in own["ep"]):
            needed["tp"] = dense["tp"]
        elif any(shape.stride > 1 for shape in own["ep"]):
            return (), ()
    experts, notes = tile(needed, world, "edp")
    return (experts, notes) if {kind for kind, _ in experts} >= needed.keys() else ((), ())


def _shares_tensors_otherwise(own: Evidence, dense: Evidence) -> bool:
    return "etp" in own and set(own["etp"]) != set(dense.get("tp", {}))


def _holds(nested: Dimensions, without: Mapping[str, int], dense: Evidence) -> bool:
    """Return whether experts are one more dimension, which takes its ranks from data parallelism alone."""
    sizes = dict(nested)
    if not sizes.keys() >= {kind for kind in without if kind in dense} | {"ep"}:
        return False
    return "dp" not in dense or "dp" not in without or sizes["ep"] * sizes["dp"] == without["dp"]


def _replicas(dimensions: Dimensions) -> GroupShape | None:
    """Return the shape of the groups of data parallel ranks; None if there is no such dimension."""
    stride = 1
    for kind, size in dimensions:
        if kind == "dp":
            return GroupShape(size, stride)
        stride *= size
    return None


def _best(shapes: Mapping[GroupShape, int]) -> list[GroupShape]:
    return sorted(shapes, key=lambda shape: (-shapes[shape], shape))[:_MOST_SHAPES]


def _lay(picked: Mapping[str, GroupShape], world: int, replicas: str) -> tuple[Dimensions, int] | None:
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
    return _name_dimensions(dimensions, replicas), gaps


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


def _name_dimensions(dimensions: Sequence[tuple[str, int]], replicas: str) -> Dimensions:
    """Name gaps, which are replicas that no group spans: the largest is data parallel if nothing else is."""
    gaps = sorted(
        (place for place, (kind, _) in enumerate(dimensions) if not kind), key=lambda place: -dimensions[place][1]
    )
    names = ["rest", *(f"rest{number}" for number in range(2, len(gaps) + 1))]
    known = {"dp", "dp_shard", "dp_replicate"} if replicas == "dp" else {replicas}
    if not known & {kind for kind, _ in dimensions}:
        names = [replicas, *names]
    name_of = dict(zip(gaps, names, strict=False))
    return tuple((name_of.get(place, kind), size) for place, (kind, size) in enumerate(dimensions))


def _describe(kind: str, shapes: Mapping[GroupShape, int]) -> str:
    likely = _best(shapes)[0]
    return f"{kind} groups of {likely.size} ranks, {likely.stride} apart,"


def _notes(evidence: Evidence, chosen: Mapping[str, GroupShape], dimensions: Dimensions) -> Iterable[str]:
    for kind, shapes in evidence.items():
        if kind not in chosen:
            yield _describe(kind, shapes) + _OVERLAP
        elif len(shapes) > 1:
            yield f"{kind} groups have {len(shapes)} shapes; those of {chosen[kind].size} ranks cover the job."
    for kind, size in dimensions:
        if kind not in evidence:
            yield f"No group shows what {size} sets of ranks have in common: assumed to be {kind}."

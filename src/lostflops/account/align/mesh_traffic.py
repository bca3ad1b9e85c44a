"""Kinds of parallelism that process groups serve, inferred from their traffic.

- Point-to-point transfers: pipeline stages, as far apart as the nearest ranks that send to each other. Of several
  shapes, the one furthest apart is the pipeline; the next passes blocks of context. So does a ring: in a pipeline, only
  the first stage sends before it has received anything in a step; in a ring all ranks do.
- All-to-all, next to groups of other shapes: experts, if a rank ever gets more than it sends. Even ones may turn heads
  and sequences (Ulysses): the modules in which they run decide, or nothing.
- Reduce-scatter within one shape, all-reduce of the same bytes across another: sharded and replicated data parallelism.
- Of the other shapes, the one of nearest ranks is tensor parallel if it meets most often, and the one that meets least
  is data parallel. If all its calls are in attention modules, it gathers keys and values: context parallel.
- A single shape of adjacent ranks that leaves part of the job unexplained is tensor parallel: replicas meet rarely. If
  it explains the whole job, it is tensor parallel if many all-reduces run early in the step, as gradients come late.
  Any other single shape is data parallel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lostflops.account.align.expert_capacity import are_in_experts, modules_of_exchanges
from lostflops.account.align.mesh_tiling import GroupShape
from lostflops.core.limits import LARGEST_WORLD

if TYPE_CHECKING:
    from lostflops.store.run import Run

MANY_CALLS: Final = 8
"""All-reduces per step that make a single shape tensor parallel: two layers, forward and backward."""
_EARLY: Final = 0.125
"""Part of a step's kernels that certainly belongs to its first forward pass."""
_FEW: Final = 0.05
_EVEN: Final = (
    "All-to-alls of {size} ranks, {stride} apart, are even: they exchange tokens of experts with a fixed capacity, or "
    "heads and sequences (Ulysses). Which was not recorded, so they are not a dimension."
)
_GATHERS: Final = (
    "Groups of {size} neighbours gather and scatter: assumed to be tensor parallel with sequence parallelism, but they "
    "may also gather keys and values (context parallel)."
)
_POINT_TO_POINT: Final = ("send", "recv", "send_recv")

SHAPES: Final = f"""
    select group_id, "first", "last", stride, ("last" - "first") // stride + 1 as size from (
        select group_id, try_cast(parts['a'] as bigint) as "first", try_cast(parts['b'] as bigint) as "last",
               coalesce(try_cast(parts['c'] as bigint), 1) as stride
        from (select group_id, regexp_extract(group_id, '@([0-9]+)-([0-9]+)(?:/([0-9]+))?$', ['a', 'b', 'c']) as parts
              from ({{ids}}))
    ) where "last" > "first" and "last" < {LARGEST_WORLD} and stride > 0"""
"""Query for regular groups by their ids: groups of irregular members span several dimensions or none."""

_TRAFFIC: Final = f"""
    with calls as (
        select group_id, op, rank, peer, bytes_in, bytes_out from collectives where group_id is not null
        union all
        select group_id, op, rank, null, bytes_in, bytes_out from flight
        where group_id is not null and not exists (select 1 from collectives where group_id is not null)
    ), by_rank as (
        select group_id, op, rank, count(*) as calls, min(abs(peer - rank)) as nearest, sum(bytes_in) as bytes_in,
               sum(bytes_out) as bytes_out, coalesce(bool_or(bytes_in <> bytes_out), false) as differs
        from calls group by group_id, op, rank
    ), sums as (
        select group_id, op, sum(calls) as calls, count(*) as ranks, min(nearest) as nearest,
               coalesce(sum(bytes_in), 0) as bytes_in, coalesce(sum(bytes_out), 0) as bytes_out,
               not bool_or(differs) and (count(bytes_out) = count(*) or count(*) > 1)
               and count(bytes_in) = count(*) and count(distinct bytes_in) = 1 as is_even
        from by_rank group by group_id, op
    ), shapes as ({SHAPES.format(ids="select distinct group_id from sums")})
    select size, stride, op, sum(calls) / sum(ranks), sum(bytes_in)::double, sum(bytes_out)::double,
           min(nearest), count(*) filter (where ("first" // stride) % size = 0), count(*), bool_and(is_even)
    from sums join shapes using (group_id) group by size, stride, op"""

_SENDS_FIRST: Final = """
    with firsts as (
        select group_id, rank, step, min(start) filter (op = 'send') as sent, min(stop) filter (op = 'recv') as got
        from collectives where op in ('send', 'recv') and group_id is not null and step is not null group by all
    )
    select group_id from firsts group by group_id
    having count(distinct rank) > 1 and count(sent) = count(*) and count(got) = count(*) and bool_and(sent < got)"""
"""Groups of which several ranks were recorded that all send before they have received anything in a step."""

_MODULES: Final = f"""
    with calls as (
        select distinct group_id, module from collectives c join events e on c.rank = e.rank and c.event = e.event
        where group_id is not null and module is not null
    ), shapes as ({SHAPES.format(ids="select distinct group_id from calls")})
    select distinct size, stride, module from calls join shapes using (group_id)"""
_ATTENTION: Final = re.compile(r"(?:^|[._])\w*?(?:attn|attention)", re.IGNORECASE)

_EARLY_CALLS: Final = """
    with sample as (
        select rank, step from collectives where op = 'all_reduce' and group_id is not null order by all limit 1
    ), calls as (
        select start from collectives join sample using (rank)
        where op = 'all_reduce' and group_id is not null and collectives.step is not distinct from sample.step
    ), kernels as (
        select start from events join sample using (rank)
        where kind = 'kernel' and events.step is not distinct from sample.step
    ), early as (select quantile_disc(start, {early}) as until from kernels)
    select count(*), count(*) filter (where start < until) from calls, early"""
"""All-reduces in a step of one rank, and those before its first kernels are done: in its forward pass."""


@dataclass
class _Traffic:
    """Traffic of the groups of one shape, by operation."""

    groups: int = 0
    rate: dict[str, float] = field(default_factory=dict)
    """Calls per rank."""
    bytes_in: dict[str, float] = field(default_factory=dict)
    bytes_out: dict[str, float] = field(default_factory=dict)
    is_even: bool = False
    """Whether ranks exchange the same bytes in all-to-alls, as far as recorded."""
    is_ring: bool = False
    """Whether ranks send to each other at once, instead of passing on what they received."""
    in_attention: bool = False
    """Whether all calls are in modules of attention."""

    def __call__(self, *ops: str) -> float:
        return sum(self.rate.get(op, 0.0) for op in ops) if ops else sum(self.rate.values())

    @property
    def collectives(self) -> float:
        return self() - self(*_POINT_TO_POINT)


def evidence(run: Run, world: int) -> tuple[dict[str, dict[GroupShape, int]], tuple[str, ...]]:
    """Return shapes of each kind of parallelism, and notes on what is ambiguous; empty if nothing was communicated in
    regular groups."""
    traffic = _read_traffic(run)
    kinds = _point_to_point(traffic)
    left = {shape: seen for shape, seen in traffic.items() if shape not in kinds.values() and seen.collectives}
    notes = []
    for shape, seen in list(left.items()):
        if seen("all_to_all") > seen() / 2 and seen.is_even and (purpose := _purpose(run, seen)) != "ep":
            del left[shape]
            if purpose == "cp" and "cp" not in kinds:
                kinds["cp"] = shape
            else:
                notes.append(_EVEN.format(size=shape.size, stride=shape.stride))
    unexplained = world // math.prod(shape.size for shape in kinds.values())
    found = _collectives(run, _without_combined(left, list(kinds.values())), unexplained)
    if "cp" not in kinds and "tp" in found and traffic[found["tp"]].in_attention:
        found["cp"] = found.pop("tp")
    elif "tp" in found and not traffic[found["tp"]]("all_reduce") and traffic[found["tp"]]("all_gather"):
        notes.append(_GATHERS.format(size=found["tp"].size))
    kinds = found | kinds
    return {kind: {shape: traffic[shape].groups} for kind, shape in kinds.items()}, tuple(notes)


def _read_traffic(run: Run) -> dict[GroupShape, _Traffic]:
    traffic: dict[GroupShape, _Traffic] = {}
    for size, stride, op, rate, bytes_in, bytes_out, nearest, aligned, groups, is_even in run.rows(_TRAFFIC):
        if aligned < groups:
            continue
        apart = nearest or stride
        own = GroupShape(size, stride) if size * stride % apart else GroupShape(size * stride // apart, apart)
        entry = traffic.setdefault(own, _Traffic())
        entry.groups = max(entry.groups, groups)
        entry.rate[op], entry.bytes_in[op], entry.bytes_out[op] = rate, bytes_in, bytes_out
        if op == "all_to_all":
            entry.is_even = bool(is_even)
    for _, _, _, stride, size in run.rows(SHAPES.format(ids=_SENDS_FIRST)):
        if (seen := traffic.get(GroupShape(size, stride))) is not None:
            seen.is_ring = True
    modules: dict[GroupShape, list[str]] = {}
    for size, stride, module in run.rows(_MODULES):
        modules.setdefault(GroupShape(size, stride), []).append(module)
    for shape, names in modules.items():
        if shape in traffic:
            traffic[shape].in_attention = all(map(_ATTENTION.search, names))
    return traffic


def _purpose(run: Run, seen: _Traffic) -> str | None:
    """Return what even all-to-alls are for, by the modules around them; None if that is unknown."""
    if seen.in_attention:
        return "cp"
    modules = modules_of_exchanges(run)
    if modules and all(map(_ATTENTION.search, modules)):
        return "cp"
    return "ep" if are_in_experts(run, modules) else None


def _point_to_point(traffic: Mapping[GroupShape, _Traffic]) -> dict[str, GroupShape]:
    shapes = sorted((s for s, seen in traffic.items() if seen(*_POINT_TO_POINT)), key=lambda shape: shape.stride)
    rings = [shape for shape in shapes if traffic[shape].is_ring]
    if rings:
        stages = [shape for shape in shapes if shape not in rings]
        return {"cp": rings[0]} | ({"pp": stages[-1]} if stages else {})
    return dict(zip(("pp", "cp"), reversed(shapes), strict=False))


def _without_combined(traffic: dict[GroupShape, _Traffic], others: list[GroupShape]) -> dict[GroupShape, _Traffic]:
    """Leave out shapes that two others make up, one inside the other: the world, or tensor and data together."""
    parts = [*traffic, *others]

    def made_up(whole: GroupShape, inner: GroupShape, outer: GroupShape) -> bool:
        return inner.stride == whole.stride and outer.stride == inner.reach and outer.reach == whole.reach

    def is_combined(whole: GroupShape) -> bool:
        smaller = [shape for shape in parts if shape.size < whole.size]
        return any(made_up(whole, inner, outer) for inner in smaller for outer in smaller) or any(
            whole.stride <= other.stride and other.reach <= whole.reach for other in others
        )

    return {shape: seen for shape, seen in traffic.items() if not is_combined(shape)}


def _collectives(run: Run, traffic: dict[GroupShape, _Traffic], unexplained: int) -> dict[str, GroupShape]:
    kinds: dict[str, GroupShape] = {}
    shapes = sorted(traffic, key=lambda shape: (shape.stride, shape.size))
    experts = [shape for shape in shapes if traffic[shape]("all_to_all") > traffic[shape]() / 2]
    if experts and len(shapes) > 1:
        kinds["ep"] = experts[0]
        shapes.remove(experts[0])
    if len(shapes) >= 2 and _sharded_and_replicated(traffic[shapes[0]], traffic[shapes[-1]]):
        return kinds | {"dp_shard": shapes[0], "dp_replicate": shapes[-1]}
    if _tensor_parallel(run, shapes, traffic, unexplained):
        kinds["tp"] = shapes.pop(0)
    shapes.sort(key=lambda shape: traffic[shape]())
    return kinds | dict(zip(("dp", "cp"), shapes, strict=False))


def _sharded_and_replicated(inner: _Traffic, outer: _Traffic) -> bool:
    scattered, reduced = inner.bytes_out.get("reduce_scatter", 0), outer.bytes_in.get("all_reduce", 0)
    ratio = inner.groups and outer.groups and scattered and reduced / scattered
    return bool(ratio) and abs(ratio - 1) < 0.01


def _tensor_parallel(
    run: Run, shapes: Sequence[GroupShape], traffic: Mapping[GroupShape, _Traffic], unexplained: int
) -> bool:
    if len(shapes) >= 2:
        return traffic[shapes[0]]() >= max(traffic[shape]() for shape in shapes)
    if not shapes or shapes[0].stride > 1:
        return False
    if shapes[0].size < unexplained:
        return True
    ((calls, early),) = run.rows(_EARLY_CALLS.format(early=_EARLY))
    return bool(calls >= MANY_CALLS and early >= _FEW * calls)

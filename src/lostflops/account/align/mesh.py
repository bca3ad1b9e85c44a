"""The mesh of a job: tensor, data, pipeline, expert and context parallel groups, and the order of stages.

Evidence, in this order: what the user says; names of process groups; stages on which passes of microbatches ran;
traffic of groups. Without any, all ranks are assumed to be data parallel.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align import mesh_traffic
from lostflops.account.align.mesh_names import KINDS, kinds_of
from lostflops.account.align.mesh_tiling import Dimensions, Evidence, GroupShape, tile
from lostflops.account.align.stage_order import stage_order
from lostflops.core.errors import UsageError

if TYPE_CHECKING:
    from lostflops.store.run import Run

_NAMED: Final = f"""
    with shapes as ({mesh_traffic.SHAPES.format(ids="select distinct group_id from groups where size > 1")}),
    described as (select distinct group_id, description from groups where description is not null)
    select description, size, stride, count(*) from shapes join described using (group_id)
    where ("first" // stride) % size = 0 group by all"""


@dataclass(frozen=True, slots=True)
class Mesh:
    """Dimensions of parallelism, and the place of each rank in them."""

    dimensions: Dimensions
    """Dimensions with more than one rank, fastest first."""
    ranks: tuple[int, ...]
    places: npt.NDArray[np.int64]
    """Coordinates of each of `ranks`."""
    source: str
    """Evidence: `given`, `group names`, `passes`, `traffic` or `none`."""
    notes: tuple[str, ...] = ()

    def dimension_of(self, members: Iterable[int]) -> str | None:
        """Return the dimension that a group of ranks spans, several joined by `+`; None if not a slice of the mesh."""
        wanted = np.unique(np.fromiter(members, np.int64))
        known = np.asarray(self.ranks)
        if wanted.size < 2 or not np.isin(wanted, known).all():
            return None
        places = self.places[np.searchsorted(known, wanted)]
        counts = [np.unique(column).size for column in places.T]
        if math.prod(counts) != wanted.size:
            return None
        if any(count not in (1, size) for count, (_, size) in zip(counts, self.dimensions, strict=True)):
            return None
        return "+".join(kind for count, (kind, _) in zip(counts, self.dimensions, strict=True) if count > 1)

    def cohort(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that do the same work: they differ in data and context alone.

        If that leaves the rank alone, experts count as the same work too, then shares of a tensor; stages never do.
        """
        own = self.places[self._position(rank)]
        kinds = [kind for kind, _ in self.dimensions]
        for apart in ({"ep", "tp", "pp"}, {"tp", "pp"}, {"pp"}):
            fixed = [axis for axis, kind in enumerate(kinds) if kind in apart]
            alike = np.flatnonzero(np.all(self.places[:, fixed] == own[fixed], axis=1))
            if alike.size > 1:
                break
        return tuple(self.ranks[position] for position in alike.tolist())

    def stage(self, rank: int) -> int:
        """Return the pipeline stage of a rank; 0 without a pipeline."""
        kinds = [kind for kind, _ in self.dimensions]
        return int(self.places[self._position(rank), kinds.index("pp")]) if "pp" in kinds else 0

    def _position(self, rank: int) -> int:
        position = bisect_left(self.ranks, rank)
        if position == len(self.ranks) or self.ranks[position] != rank:
            raise UsageError(f"the job has no rank {rank}; it has {len(self.ranks):,} from {min(self.ranks)}")
        return position


def parse(text: str) -> dict[str, int]:
    """Parse the sizes of the dimensions, fastest first.

    >>> parse("tp=2,dp=2,pp=4")
    {'tp': 2, 'dp': 2, 'pp': 4}
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        kind, _, size = (piece.strip() for piece in part.partition("="))
        if kind not in KINDS or not (size.isascii() and size.isdigit() and 0 < int(size) < 10**9) or kind in sizes:
            raise UsageError(
                f"{part.strip()!r} in the mesh {text!r} is not of the form DIMENSION=SIZE: write each dimension once, "
                f"the fastest varying first, as in tp=2,dp=2,pp=4 (dimensions: {', '.join(KINDS)})"
            )
        sizes[kind] = int(size)
    return sizes


def recognise(run: Run, given: Mapping[str, int] | None = None) -> Mesh:
    """Return the mesh of the job that the run was recorded from; `given` are the sizes that the user states."""
    ranks = _ranks(run)
    if given is not None:
        return _order_stages(run, _place_ranks(_check_dimensions(given, ranks), ranks, "given"))
    named = _infer_from_groups(run, _read_named_shapes(run), ranks, "group names")
    if named is not None:
        return named
    mesh = _infer_from_passes(run) or _infer_from_groups(
        run, mesh_traffic.evidence(run, ranks[-1] + 1), ranks, "traffic"
    )
    if mesh is not None:
        return mesh
    if len(ranks) == 1:
        return _place_ranks((), ranks, "none")
    note = "Neither names nor traffic of process groups show the mesh: all ranks are assumed to be data parallel."
    places = np.arange(len(ranks))[:, None]
    return Mesh((("dp", len(ranks)),), ranks, places, "none", (note,))


def _infer_from_groups(run: Run, evidence: Evidence, ranks: tuple[int, ...], source: str) -> Mesh | None:
    dimensions, notes = tile(evidence, ranks[-1] + 1)
    if not any(kind in evidence for kind, _ in dimensions):
        return None
    if source == "traffic" and list(evidence) == ["dp"]:
        notes = (*notes, "All groups that communicate have the same shape: assumed to be data parallel.")
    return _order_stages(run, _place_ranks(dimensions, ranks, source, notes))


def _infer_from_passes(run: Run) -> Mesh | None:
    """Infer stages from passes of microbatches, all else as data parallel; None if some rank has no passes."""
    found = run.columns("select rank, max(stage) as stage from passes group by rank order by rank")
    ranks, stage = (np.ma.filled(column, -1).astype(np.int64) for column in found.values())
    counts = np.bincount(stage + 1)[1:]
    if tuple(ranks.tolist()) != run.ranks or counts.size < 2 or np.ptp(counts) or counts.sum() < ranks.size:
        return None
    order = np.argsort(stage, kind="stable")
    place = np.empty(ranks.size, np.int64)
    place[order] = np.arange(ranks.size) % counts[0]
    sizes = (("dp", int(counts[0])), ("pp", int(counts.size)))
    kept = [axis for axis, (_, size) in enumerate(sizes) if size > 1]
    places = np.stack((place, stage), axis=1)[:, kept]
    return Mesh(tuple(sizes[axis] for axis in kept), tuple(ranks.tolist()), places, "passes")


def _ranks(run: Run) -> tuple[int, ...]:
    """Return every rank of the job: all of the recorded world size, else those that were ingested or share a group."""
    ((world,),) = run.rows("select max(world_size) from ranks")
    known = set(run.ranks)
    if world is None:
        reached = run.rows(mesh_traffic.SHAPES.format(ids="select distinct group_id from groups"))
        for _, first, last, stride, _ in reached:
            known.update(range(first, last + 1, stride))
    else:
        known.update(range(world))
    return tuple(sorted(known))


def _check_dimensions(given: Mapping[str, int], ranks: tuple[int, ...]) -> Dimensions:
    places = math.prod(given.values())
    if places != ranks[-1] + 1:
        stated = ",".join(f"{kind}={size}" for kind, size in given.items())
        raise UsageError(
            f"the mesh {stated} has {places:,} places, but the job has {ranks[-1] + 1:,} ranks: state every dimension"
        )
    return tuple((kind, size) for kind, size in given.items() if size > 1)


def _place_ranks(dimensions: Dimensions, ranks: tuple[int, ...], source: str, notes: tuple[str, ...] = ()) -> Mesh:
    rest = np.asarray(ranks, np.int64)
    places = np.zeros((len(ranks), len(dimensions)), np.int64)
    for axis, (_, size) in enumerate(dimensions):
        rest, places[:, axis] = np.divmod(rest, size)
    return Mesh(dimensions, ranks, places, source, notes)


def _order_stages(run: Run, mesh: Mesh) -> Mesh:
    """Put stages in the order in which activations pass them."""
    kinds = [kind for kind, _ in mesh.dimensions]
    if "pp" not in kinds:
        return mesh
    axis = kinds.index("pp")
    order, note = stage_order(run, np.asarray(mesh.ranks), mesh.places[:, axis], mesh.dimensions[axis][1])
    places = mesh.places.copy()
    places[:, axis] = order[places[:, axis]]
    notes = (*mesh.notes, note) if note else mesh.notes
    return Mesh(mesh.dimensions, mesh.ranks, places, mesh.source, notes)


def _read_named_shapes(run: Run) -> dict[str, dict[GroupShape, int]]:
    """Read shapes by the names of groups; a group that spans several dimensions shows the one that is missing."""
    told: dict[frozenset[str], dict[GroupShape, int]] = defaultdict(lambda: defaultdict(int))
    for description, size, stride, groups in run.rows(_NAMED):
        told[kinds_of(description)][GroupShape(size, stride)] += groups
    single = {kind: told[kinds] for kinds in list(told) if len(kinds) == 1 for kind in kinds}
    for kinds in sorted((kinds for kinds in told if len(kinds) > 1), key=len):
        missing = [kind for kind in kinds if kind.startswith("dp") and kind not in single]
        if missing and not kinds & single.keys():
            single[missing[0]] = told[kinds]
    return _one_data_dimension(single)


def _one_data_dimension(shapes: dict[str, dict[GroupShape, int]]) -> dict[str, dict[GroupShape, int]]:
    """Merge data dimensions: sharding and replication are two dimensions only if both are there."""
    parts = shapes.keys() & {"dp_shard", "dp_replicate"}
    if len(parts) == 2:
        return {kind: found for kind, found in shapes.items() if kind != "dp"}
    for part in parts:
        found = shapes.pop(part)
        shapes.setdefault("dp", found)
    return shapes

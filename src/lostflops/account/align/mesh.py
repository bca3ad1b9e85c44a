"""The mesh of a job: tensor, data, pipeline, expert and context parallel groups, and the order of stages.

Evidence, in this order: what the user says; names of process groups; stages on which passes of microbatches ran;
traffic of groups. Without any, all ranks are assumed to be data parallel.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align import mesh_traffic
from lostflops.account.align.mesh_tiling import Dimensions, Evidence, GroupShape, tile_with_experts
from lostflops.account.align.stage_order import first_transfers, stage_order
from lostflops.account.facts.mesh_names import EXPERT_KINDS, KINDS, kinds_of
from lostflops.core.errors import BrokenRun, UsageError
from lostflops.core.limits import LARGEST_WORLD

if TYPE_CHECKING:
    from lostflops.store.run import Run

Places = npt.NDArray[np.int64]
"""Coordinates along the dimensions of a mesh, a row for each rank."""
_NAMED: Final = f"""
    with shapes as ({mesh_traffic.SHAPES.format(ids="select distinct group_id from groups where size > 1")}),
    described as (select distinct group_id, description from groups where description is not null)
    select description, size, stride, count(*) from shapes join described using (group_id)
    where ("first" // stride) % size = 0 group by all"""


@dataclass(frozen=True, slots=True)
class Mesh:
    """Dimensions of parallelism, and the place of each rank in them.

    Places are computed when they are asked for: a job may have far more ranks than were recorded.
    """

    dimensions: Dimensions
    """Dimensions with more than one rank, fastest first."""
    ranks: Sequence[int]
    """All ranks of the job in order, as far as known; a range if its world size is known."""
    source: str
    """Evidence: `given`, `group names`, `passes`, `traffic` or `none`."""
    notes: tuple[str, ...] = ()
    table: Places | None = None
    """Coordinates of each of `ranks`; None if ranks are numbered along the dimensions."""
    stages: npt.NDArray[np.int64] | None = None
    """Stage of each place along the pipeline; None if that is the place itself."""
    experts: Dimensions = ()
    """Dimensions of expert layers, fastest first, if these arrange the ranks in another way."""

    def places_of(self, ranks: npt.ArrayLike) -> Places:
        """Return the coordinates of each of these ranks, which must be of the mesh."""
        if self.table is not None:
            return self.table[np.searchsorted(np.asarray(self.ranks), np.asarray(ranks, np.int64))]
        places = _split_ranks(ranks, self.dimensions)
        for axis, (kind, _) in enumerate(self.dimensions):
            if kind == "pp" and self.stages is not None:
                places[:, axis] = self.stages[places[:, axis]]
        return places

    def has(self, ranks: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return which of these ranks the mesh has."""
        wanted = np.asarray(ranks, np.int64)
        if isinstance(self.ranks, range):
            return (wanted >= self.ranks.start) & (wanted < self.ranks.stop)
        return np.isin(wanted, np.asarray(self.ranks))

    def dimension_of(self, members: Iterable[int]) -> str | None:
        """Return the dimension that a group of ranks spans, several joined by `+`; None if not a slice of the mesh, nor
        of the arrangement of its experts."""
        wanted = np.unique(np.fromiter(members, np.int64))
        if wanted.size < 2 or not self.has(wanted).all():
            return None
        spanned = _spanned(self.places_of(wanted), self.dimensions)
        if spanned is None and self.experts:
            spanned = _spanned(_split_ranks(wanted, self.experts), self.experts)
        return spanned

    def cohort(self, rank: int, among: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return the ranks that do the same work: they differ in data and context alone. Only those `among` some ranks
        are returned, or all of the job.

        If that leaves the rank alone in the job, experts count as the same work too, then shares of a tensor; stages
        never do.
        """
        own = self._place(rank)
        wanted = np.asarray(self.ranks if among is None else among, np.int64)
        wanted = wanted[self.has(wanted)]
        if self.experts and _fewest_peers(self.dimensions, self.experts, len(self.ranks)) > 1:
            roles = _roles(np.append(wanted, rank), self.dimensions, self.experts)
            return tuple(np.unique(wanted[np.all(roles[:-1] == roles[-1], axis=1)]).tolist())
        fixed = self._same_for_peers(own)
        alike = np.all(self.places_of(wanted)[:, fixed] == own[fixed], axis=1)
        return tuple(np.unique(wanted[alike]).tolist())

    def cohorts(self, ranks: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Return the cohort of each of these ranks among them."""
        found: dict[int, tuple[int, ...]] = {}
        for rank in ranks:
            if rank not in found:
                peers = self.cohort(rank, ranks)
                # In a whole grid, peers are each other's peers; elsewhere they may have more or fewer.
                found |= dict.fromkeys(peers if self._is_grid else (rank,), peers)
        return found

    def stage(self, rank: int) -> int:
        """Return the pipeline stage of a rank; 0 without a pipeline."""
        kinds = [kind for kind, _ in self.dimensions]
        return int(self._place(rank)[kinds.index("pp")]) if "pp" in kinds else 0

    def _same_for_peers(self, own: npt.NDArray[np.int64]) -> list[int]:
        """Return the axes along which the peers of a rank have the same place."""
        fixed: list[int] = []
        for apart in ({"ep", "tp", "pp"}, {"tp", "pp"}, {"pp"}):
            fixed = [axis for axis, (kind, _) in enumerate(self.dimensions) if kind in apart]
            if self._is_grid:
                alike = math.prod(size for axis, (_, size) in enumerate(self.dimensions) if axis not in fixed)
            else:
                alike = int(np.all(self.places_of(self.ranks)[:, fixed] == own[fixed], axis=1).sum())
            if alike > 1:
                break
        return fixed

    @property
    def _is_grid(self) -> bool:
        """Whether every place along the dimensions has a rank."""
        sizes = math.prod(size for _, size in self.dimensions)
        return self.table is None and isinstance(self.ranks, range) and len(self.ranks) == sizes

    def _place(self, rank: int) -> npt.NDArray[np.int64]:
        if not self.has([rank])[0]:
            raise UsageError(f"the job has no rank {rank}; it has {len(self.ranks):,} from {self.ranks[0]}")
        place: npt.NDArray[np.int64] = self.places_of([rank])[0]
        return place


def _split_ranks(ranks: npt.ArrayLike, dimensions: Dimensions) -> Places:
    """Return the coordinates of ranks that are numbered along dimensions."""
    rest = np.asarray(ranks, np.int64)
    places = np.zeros((rest.size, len(dimensions)), np.int64)
    for axis, (_, size) in enumerate(dimensions):
        rest, places[:, axis] = np.divmod(rest, size)
    return places


def _spanned(places: Places, dimensions: Dimensions) -> str | None:
    """Return the dimensions along which these are all places, joined by `+`; None if they are no slice."""
    counts = [np.unique(column).size for column in places.T]
    if math.prod(counts) != len(places):
        return None
    if any(count not in (1, size) for count, (_, size) in zip(counts, dimensions, strict=True)):
        return None
    return "+".join(kind for count, (kind, _) in zip(counts, dimensions, strict=True) if count > 1)


def _roles(ranks: npt.ArrayLike, dimensions: Dimensions, experts: Dimensions) -> Places:
    """Return for each rank its stage, its share of tensors, and which experts it has."""
    dense = [axis for axis, (kind, _) in enumerate(dimensions) if kind in ("tp", "pp")]
    own = [axis for axis, (kind, _) in enumerate(experts) if kind in ("etp", "ep")]
    return np.hstack((_split_ranks(ranks, dimensions)[:, dense], _split_ranks(ranks, experts)[:, own]))


@lru_cache(maxsize=16)
def _fewest_peers(dimensions: Dimensions, experts: Dimensions, world: int) -> int:
    """Return how many ranks have the rarest role."""
    return int(np.unique(_roles(np.arange(world), dimensions, experts), axis=0, return_counts=True)[1].min())


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
        return _order_stages(run, Mesh(_check_dimensions(given, ranks), ranks, "given"))
    mesh = _infer_from_groups(run, _read_named_shapes(run), ranks, "group names") or _infer_from_passes(run)
    if mesh is not None:
        return mesh
    seen, doubts = mesh_traffic.evidence(run, ranks[-1] + 1)
    mesh = _infer_from_groups(run, seen, ranks, "traffic")
    if mesh is not None:
        return replace(mesh, notes=(*mesh.notes, *doubts))
    if len(ranks) == 1:
        return Mesh((), ranks, "none")
    note = "Neither names nor traffic of process groups show the mesh: all ranks are assumed to be data parallel."
    table = None if isinstance(ranks, range) else np.arange(len(ranks))[:, None]
    return Mesh((("dp", len(ranks)),), ranks, "none", (note, *doubts), table)


def _infer_from_groups(run: Run, evidence: Evidence, ranks: Sequence[int], source: str) -> Mesh | None:
    dimensions, experts, notes = tile_with_experts(evidence, ranks[-1] + 1)
    if not any(kind in evidence for kind, _ in (*dimensions, *experts)):
        return None
    if source == "traffic" and list(evidence) == ["dp"]:
        notes = (*notes, "All groups that communicate have the same shape: assumed to be data parallel.")
    return _order_stages(run, Mesh(dimensions, ranks, source, notes, experts=experts))


def _infer_from_passes(run: Run) -> Mesh | None:
    """Infer stages from passes of microbatches, all else as data parallel; None if some rank has no passes."""
    found = run.columns("select rank, max(stage) as stage from passes group by rank order by rank")
    ranks, stage = (np.ma.filled(column, -1).astype(np.int64) for column in found.values())
    stages, counts = np.unique(stage[stage >= 0], return_counts=True)
    if tuple(ranks.tolist()) != run.ranks or counts.size < 2 or np.ptp(counts) or counts.sum() < ranks.size:
        return None
    if stages[-1] != stages.size - 1:
        return None
    order = np.argsort(stage, kind="stable")
    place = np.empty(ranks.size, np.int64)
    place[order] = np.arange(ranks.size) % counts[0]
    sizes = (("dp", int(counts[0])), ("pp", int(counts.size)))
    kept = [axis for axis, (_, size) in enumerate(sizes) if size > 1]
    table = np.stack((place, stage), axis=1)[:, kept]
    return Mesh(tuple(sizes[axis] for axis in kept), tuple(ranks.tolist()), "passes", table=table)


def _ranks(run: Run) -> Sequence[int]:
    """Return every rank of the job: all of the recorded world size, else those that were ingested or share a group."""
    ((world,),) = run.rows("select max(world_size) from ranks")
    last = max(run.ranks)
    if max(world or 0, last + 1) > LARGEST_WORLD:
        raise BrokenRun(
            f"{run.path} states a job of {max(world or 0, last + 1):,} ranks, but Lostflops accepts up to "
            f"{LARGEST_WORLD:,}. Ingest its traces again."
        )
    if world is not None:
        return range(max(world, last + 1))
    known = set(run.ranks)
    for _, first, last, stride, _ in run.rows(mesh_traffic.SHAPES.format(ids="select distinct group_id from groups")):
        known.update(range(first, last + 1, stride))
    return tuple(sorted(known))


def _check_dimensions(given: Mapping[str, int], ranks: Sequence[int]) -> Dimensions:
    places = math.prod(given.values())
    if places != ranks[-1] + 1:
        stated = ",".join(f"{kind}={size}" for kind, size in given.items())
        raise UsageError(
            f"the mesh {stated} has {places:,} places, but the job has {ranks[-1] + 1:,} ranks: state every dimension"
        )
    return tuple((kind, size) for kind, size in given.items() if size > 1)


def _order_stages(run: Run, mesh: Mesh) -> Mesh:
    """Put stages in the order in which activations pass them."""
    kinds = [kind for kind, _ in mesh.dimensions]
    if "pp" not in kinds:
        return mesh
    axis = kinds.index("pp")
    source, target, votes = first_transfers(run)
    known = mesh.has(source) & mesh.has(target)
    source, target = (mesh.places_of(ends[known])[:, axis] for ends in (source, target))
    order, note = stage_order(source, target, votes[known], mesh.dimensions[axis][1])
    return replace(mesh, stages=order, notes=(*mesh.notes, note) if note else mesh.notes)


_NEVER_DATA: Final = {"tp", "pp"}
"""Dimensions whose ranks are not replicas: a group across them and replicas, which alone is known, shows neither."""


def _read_named_shapes(run: Run) -> dict[str, dict[GroupShape, int]]:
    """Read shapes by the names of groups; a group that spans several dimensions shows the one that is missing."""
    told: dict[frozenset[str], dict[GroupShape, int]] = defaultdict(lambda: defaultdict(int))
    for description, size, stride, groups in run.rows(_NAMED):
        told[kinds_of(description)][GroupShape(size, stride)] += groups
    single = {kind: told[kinds] for kinds in list(told) if len(kinds) == 1 for kind in kinds}
    for kinds in sorted((kinds for kinds in told if len(kinds) > 1), key=len):
        missing = [kind for kind in kinds if kind.startswith("dp") and kind not in single]
        if missing and not kinds & (single.keys() | _NEVER_DATA):
            single[missing[0]] = told[kinds]
        elif (
            missing
            and len(kinds) == 2
            and kinds & single.keys()
            and (outer := _beyond(told[kinds], single[min(kinds - {missing[0]})]))
        ):
            single[missing[0]] = outer
    return _one_data_dimension(single)


def _beyond(whole: dict[GroupShape, int], inner: dict[GroupShape, int]) -> dict[GroupShape, int]:
    """Return the shape that is left of a group if another dimension is its inner part; empty if that is not certain."""
    if len(whole) != 1 or len(inner) != 1:
        return {}
    ((both, groups),), (part,) = whole.items(), inner
    if part.stride != both.stride or both.size % part.size or both.size == part.size:
        return {}
    return {GroupShape(both.size // part.size, part.reach): groups * part.size}


def _one_data_dimension(shapes: dict[str, dict[GroupShape, int]]) -> dict[str, dict[GroupShape, int]]:
    """Merge data dimensions: sharding and replication are two dimensions only if both are there. Experts may be sharded
    otherwise, but are replicated alike."""
    parts = shapes.keys() & {"dp_shard", "dp_replicate"}
    if len(parts) == 2 or ("dp_replicate" in parts and shapes.keys() & EXPERT_KINDS):
        return {kind: found for kind, found in shapes.items() if kind != "dp"}
    for part in parts:
        found = shapes.pop(part)
        shapes.setdefault("dp", found)
    return shapes

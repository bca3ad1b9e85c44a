"""Memory at each allocation of a step, by owner, aligned across runs at several batch sizes.

The same program allocates the same things in the same order at any batch size. An allocation is identified by its
phase, module and op and its number among these in the step. Its height is the allocator's total after it, the highest
of the window's steps. So each moment of a step has its own heights, and the peak may be at another moment at another
batch size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.phases import PHASES
from lostflops.account.memory.blocks import BEFORE, Codes, RankMemory
from lostflops.account.memory.owners import OWNERS

Site = tuple[int, str, str]
"""Phase, module and op."""
Heights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Moment:
    """An allocation of a step."""

    site: Site
    which: int
    """Number of the allocation among those at its site in the step, from 0."""

    @property
    def phase(self) -> str:
        return PHASES[self.site[0]] if self.site[0] >= 0 else ""


@dataclass(frozen=True, slots=True)
class MomentHeights:
    """Memory at each moment of a step, in each run."""

    moments: tuple[Moment, ...]
    """A moment without module and op is the highest of its phase."""
    owners: Heights
    """Bytes by moment, run and owner."""


@dataclass(frozen=True, slots=True)
class _RunAllocations:
    """Allocations of one run, numbered, by site."""

    total: Codes
    owners: Codes
    sites: dict[Site, Codes]
    """Allocations of each site, by step and then in order."""
    most: dict[Site, int]
    """Allocations of each site in a step; 0 if steps differ."""


def align_heights(memories: Sequence[RankMemory]) -> MomentHeights:
    """Align the allocations of several runs; memories are of the same rank and device, one per batch size."""
    runs = [_steps(memory) for memory in memories]
    moments: list[Moment] = []
    rows: list[Heights] = []
    for phase in sorted({site[0] for run in runs for site in run.sites}):
        found = _of_phase(runs, phase)
        moments += [moment for moment, _ in found]
        rows += [row for _, row in found]
    if not rows:
        rows = [np.stack([memory.by_owner()[memory.peak + 1] for memory in memories]).astype(np.float64)]
        moments = [Moment((-1, "", ""), 0)]
    return MomentHeights(tuple(moments), np.stack(rows))


def _of_phase(runs: Sequence[_RunAllocations], phase: int) -> list[tuple[Moment, Heights]]:
    """Return the moments that every run has, if the highest of each run is among them; else the highest of each run as
    one moment."""
    own = [[site for site in run.sites if site[0] == phase] for run in runs]
    if not all(own):
        return []
    common = [site for site in own[0] if all(site in run.sites for run in runs)]
    found: list[tuple[Moment, Heights]] = []
    for site in common:
        counts = {run.most[site] for run in runs}
        each = counts.pop() if len(counts) == 1 else 0
        found += [(Moment(site, which), _row(runs, site, which, each)) for which in range(max(each, 1))]
    whole = [np.concatenate([run.sites[site] for site in sites]) for run, sites in zip(runs, own, strict=True)]
    highest = np.stack([_highest(run, rows) for run, rows in zip(runs, whole, strict=True)])
    if found and (np.stack([row.sum(axis=1) for _, row in found]).max(axis=0) == highest.sum(axis=1)).all():
        return found
    return [(Moment((phase, "", ""), 0), highest.astype(np.float64))]


def _row(runs: Sequence[_RunAllocations], site: Site, which: int, each: int) -> Heights:
    rows = [run.sites[site][which::each] if each else run.sites[site] for run in runs]
    return np.stack([_highest(run, own) for run, own in zip(runs, rows, strict=True)]).astype(np.float64)


def _highest(run: _RunAllocations, rows: Codes) -> Codes:
    """Return the bytes by owner at the highest of these allocations."""
    found: Codes = run.owners[rows[run.total[rows].argmax()]]
    return found


def _steps(memory: RankMemory) -> _RunAllocations:
    blocks = memory.blocks
    inside = np.flatnonzero(blocks.born > BEFORE)
    inside = inside[np.lexsort((blocks.born[inside], blocks.step[inside]))]
    born = blocks.born[inside]
    columns = np.stack([blocks.phase[inside], blocks.module[inside], blocks.op[inside]])
    codes, place = np.unique(columns, axis=1, return_inverse=True)
    place = place.reshape(-1)
    order = np.argsort(place, kind="stable")
    edges = np.searchsorted(place[order], np.arange(codes.shape[1] + 1))
    step, sites, most = blocks.step[inside], {}, {}
    for number, (phase, module, op) in enumerate(codes.T.tolist()):
        own = order[edges[number] : edges[number + 1]]
        site = (phase, memory.texts[module], memory.texts[op])
        counts = np.unique(np.unique(step[own], return_counts=True)[1])
        sites[site] = own
        most[site] = int(counts[0]) if counts.size == 1 else 0
    return _RunAllocations(memory.total[born], memory.by_owner()[born + 1][:, : len(OWNERS)], sites, most)

"""Run the plan on all ranks: rank 0 announces what comes next, and all ranks measure it and share the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import torch
import torch.distributed as dist

from lostflops.collect.calibrate.collectives import DTYPE, GroupPlace, call_of, whole_bytes
from lostflops.collect.calibrate.job import CalibrationJob
from lostflops.collect.calibrate.levels import Level
from lostflops.collect.calibrate.plan import Item, TrialOutcome, plan
from lostflops.collect.calibrate.progress import CalibrationProgress
from lostflops.collect.calibrate.timing import batches, samples
from lostflops.core.errors import LostflopsError
from lostflops.core.resources import free_memory

_END: Final = -1
_SHARE_OF_MEMORY: Final = 0.05
_UNKNOWN_MEMORY: Final = 1 << 30
_LEAST_BYTES, _MOST_BYTES = 1 << 20, 4 << 30
"""Bounds of the largest size, whatever memory is said to be free."""


@dataclass(slots=True)
class MeasuredCase:
    """One op at one level, and what was measured."""

    op: str
    level: Level
    ns: dict[int, list[int]] = field(default_factory=dict)
    """Samples in ns per call, by size in bytes."""

    def rows(self) -> list[dict[str, Any]]:
        level = self.level
        shape = {"ranks": level.ranks, "hosts": level.hosts, "at_once": len(level.groups)}
        return [
            {"op": self.op, "level": level.name, **shape, "bytes": size, "dtype": DTYPE, "ns": ns}
            for size, ns in sorted(self.ns.items())
        ]


class Measurer:
    """This rank's part in the measurement; `groups` are its process groups by level."""

    def __init__(self, job: CalibrationJob, cases: Sequence[MeasuredCase], groups: dict[str, Any]) -> None:
        self._job = job
        self._cases = cases
        self._groups = groups
        self.notes: list[str] = []

    def run(self, sizes: Sequence[int], progress: CalibrationProgress, seconds: float) -> None:
        items = plan(len(self._cases), sizes, progress.elapsed, seconds)
        item = next(items) if self._job.rank == 0 else None
        while (told := self._broadcast_item(item)) is not None:
            case = self._cases[told.case]
            progress.say(f"{case.op}, {case.level.name}, {told.size:,} bytes")
            call = self._measure(case, told)
            if self._job.rank == 0:
                try:
                    item = items.send(TrialOutcome(call, progress.elapsed))
                except StopIteration:
                    item = None

    def _broadcast_item(self, item: Item | None) -> Item | None:
        mine = [_END] * 5 if item is None else [item.case, item.size, item.calls, item.batches, int(item.is_kept)]
        case, size, calls, count, is_kept = self._job.broadcast_numbers(mine)
        return None if case == _END else Item(case, size, calls, count, bool(is_kept))

    def _measure(self, case: MeasuredCase, item: Item) -> float | None:
        """Measure an item and return the seconds per call; None if the backend cannot do it."""
        try:
            call = self._prepare_call(case, item.size)
            refused = ""
            if call is not None and not item.is_kept:
                call(0)
        except (RuntimeError, NotImplementedError, ValueError) as error:
            if item.is_kept:
                raise LostflopsError(f"{case.op}, level {case.level.name}, {item.size} bytes: {error}") from error
            call, refused = None, str(error).splitlines()[0]
        if not item.is_kept and (reason := self._refusal(refused)):
            self.notes.append(f"{case.op}, level {case.level.name}: not measured, the backend says: {reason}")
            return None
        elapsed = batches(self._job, call, item.calls, item.batches)
        found = samples(elapsed, case.level.groups, item.calls)
        if item.is_kept:
            case.ns.setdefault(whole_bytes(case.op, item.size, case.level.ranks), []).extend(found)
        return max(median(found), 1) / 1e9

    def _prepare_call(self, case: MeasuredCase, size: int) -> Any:
        members = case.level.members(self._job.rank)
        if members is None:
            return None
        place = GroupPlace(self._job.rank, members, self._groups[case.level.name], self._job.device)
        return call_of(case.op, size, place, is_ring=case.level.name == "ring")

    def _refusal(self, mine: str) -> str:
        """Return why a rank could not make the call, the same text on all ranks; empty if all could."""
        return next(filter(None, self._job.gather_objects(mine)), "")


def process_groups(job: CalibrationJob, levels: Sequence[Level]) -> dict[str, Any]:
    """Return this rank's group at each level; all ranks make all groups, in the same order."""
    found: dict[str, Any] = {}
    for level in levels:
        for members in level.groups:
            group = dist.group.WORLD if len(members) == job.world else dist.new_group(list(members))
            if job.rank in members:
                found[level.name] = group
    return found


def most_bytes(job: CalibrationJob, hosts: Sequence[tuple[int, ...]]) -> int:
    """Return the largest size in bytes: a small part of what is free on the fullest rank, the same on all ranks."""
    if job.device.type == "cpu":
        neighbours = next(len(ranks) for ranks in hosts if job.rank in ranks)
        free = (free_memory() or _UNKNOWN_MEMORY) // neighbours
    else:
        free = int(torch.accelerator.get_memory_info()[0]) if hasattr(torch.accelerator, "get_memory_info") else 0
        free = free or _UNKNOWN_MEMORY
    least = min(row[0] for row in job.gather([free]))
    return min(max(int(_SHARE_OF_MEMORY * least), _LEAST_BYTES), _MOST_BYTES)

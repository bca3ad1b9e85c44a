"""Rows of table `collectives` from communication kernels, the calls that made them, and gloo events.

A kernel's own metadata counts first; then the `record_param_comms` call around its launch, on
the launching thread; then the kernel's name, which tells the operation at best.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from lostflops.ingest.group_ids import group_id, parse_ranks
from lostflops.ingest.ops import canonical_op, dtype_bytes
from lostflops.ingest.recording import CommCall, CommMetadata, CommRow
from lostflops.ingest.timeline import innermost

Launch = tuple[int, int]
"""Lane and start of the runtime call that launched a kernel."""

_LARGEST_GROUP = 1 << 20
_SHAPE = re.compile(rb"\[[\d,\s]*\]")
_TYPE = re.compile(rb'"([^"]*)"')


@dataclass(slots=True)
class Collective:
    """One row of the table, but for rank, event and step."""

    source: CommRow
    group_id: str | None = None
    group_size: int | None = None
    seq: int | None = None
    ordinal: int = 0
    order_source: str = ""
    op: str | None = None
    dtype: str | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    peer: int | None = None
    metadata: str = "name"
    group_name: str | None = None
    group_description: str | None = None
    group_members: Sequence[int] | None = None


def build_collectives(
    rows: Sequence[CommRow],
    calls: Sequence[CommCall],
    launches: Mapping[int, Launch],
    known_groups: Mapping[str, str],
) -> tuple[list[Collective], Counter[str]]:
    """Collectives in order of start, and counts of what could not be told.

    `known_groups` maps a group's name to its id, from the trace's own list of groups.
    """
    finder = _CallFinder(calls)
    losses: Counter[str] = Counter()
    collectives = []
    for row in sorted(rows, key=lambda row: (row.start, row.stop, row.row)):
        collective = _gloo(row) if not row.on_device else _kernel(row, finder, launches)
        if collective.metadata in ("kernel", "record_param_comms"):
            _describe(collective, finder.merged(row, launches), known_groups)
        elif collective.metadata == "gloo":
            losses["collectives_without_group"] += 1
        else:
            losses["collectives_without_metadata"] += 1
        collectives.append(collective)
    losses["comms_without_kernel"] += finder.unused() if any(row.on_device for row in rows) else 0
    _number(collectives)
    return collectives, losses


class _CallFinder:
    """Finds the innermost call around a launch; a coalesced call holds those of its members."""

    def __init__(self, calls: Sequence[CommCall]) -> None:
        self._calls = calls
        self._used: set[int] = set()
        self._by_lane: dict[int, tuple[list[int], list[int]]] = {}
        for lane in {call.lane for call in calls}:
            own = [number for number, call in enumerate(calls) if call.lane == lane]
            start = np.array([calls[number].start for number in own], np.int64)
            stop = np.array([calls[number].stop + 1 for number in own], np.int64)
            times, inner, _ = innermost(start, stop)
            self._by_lane[lane] = times.tolist(), [own[i] if i >= 0 else -1 for i in inner.tolist()]

    def around(self, launch: Launch | None) -> CommCall | None:
        if launch is None or launch[0] not in self._by_lane:
            return None
        times, numbers = self._by_lane[launch[0]]
        index = bisect_right(times, launch[1]) - 1
        number = numbers[index] if index >= 0 else -1
        if number < 0:
            return None
        self._used.add(number)
        return self._calls[number]

    def merged(self, row: CommRow, launches: Mapping[int, Launch]) -> CommMetadata:
        """The kernel's metadata, completed by the call's where both speak."""
        call = self.around(launches.get(row.correlation))
        theirs = call.metadata if call is not None else None
        if row.metadata is None or theirs is None:
            return row.metadata or theirs or CommMetadata()
        both = {}
        for field in fields(CommMetadata):
            own = getattr(row.metadata, field.name)
            both[field.name] = own if own is not None else getattr(theirs, field.name)
        return CommMetadata(**both)

    def unused(self) -> int:
        """Calls with metadata of an operation that moves data, for which no kernel was found."""
        return sum(
            1
            for number, call in enumerate(self._calls)
            if number not in self._used
            and call.metadata is not None
            and canonical_op(call.metadata.op or "") is not None
        )


def _kernel(row: CommRow, finder: _CallFinder, launches: Mapping[int, Launch]) -> Collective:
    call = finder.around(launches.get(row.correlation))
    if row.metadata is not None:
        return Collective(row, metadata="kernel")
    if call is not None and call.metadata is not None:
        return Collective(row, metadata="record_param_comms")
    return Collective(row, op=canonical_op(row.name))


def _describe(collective: Collective, found: CommMetadata, known_groups: Mapping[str, str]) -> None:
    collective.op = canonical_op(found.op or "") or canonical_op(collective.source.name)
    collective.dtype = found.dtype
    size = dtype_bytes(found.dtype or "")
    if size is not None:
        collective.bytes_in = _times(found.elements_in, size)
        collective.bytes_out = _times(found.elements_out, size)
    collective.seq = found.seq
    collective.group_size = found.group_size
    _set_group(collective, found, known_groups)
    if collective.op in ("send", "recv"):
        collective.peer = found.target_rank if collective.op == "send" else found.source_rank


def _set_group(collective: Collective, found: CommMetadata, known_groups: Mapping[str, str]) -> None:
    name = found.group_name
    if name is None:
        return
    members = _members(found)
    collective.group_name, collective.group_description = name, found.group_description
    collective.group_members = members
    collective.group_id = group_id(name, members) if members else known_groups.get(name)


def _members(found: CommMetadata) -> Sequence[int] | None:
    """The group's ranks as listed, or as start, stride and size give them for groups too large to be listed."""
    listed = parse_ranks(found.group_ranks or "")
    if listed:
        return listed
    start, stride, size = found.group_start, found.group_stride, found.group_size
    if start is None or stride is None or size is None or start < 0 or stride < 1 or not 0 < size <= _LARGEST_GROUP:
        return None
    return range(start, start + stride * size, stride)


def _gloo(row: CommRow) -> Collective:
    """A gloo event tells its operation and inputs; the group comes from a Flight Recorder dump, if at all."""
    collective = Collective(row, op=canonical_op(row.name), metadata="gloo")
    types = [match.decode("utf-8", "replace") for match in _TYPE.findall(row.dtypes)]
    shapes = _SHAPE.findall(row.shapes)
    if len(types) != len(shapes):
        return collective
    tensors = [(shape, dtype, size) for shape, dtype in zip(shapes, types, strict=True) if (size := dtype_bytes(dtype))]
    if tensors:
        collective.dtype = tensors[0][1]
        collective.bytes_in = sum(_elements(shape) * size for shape, _, size in tensors)
    return collective


def _elements(shape: bytes) -> int:
    return min(math.prod(int(part) for part in shape.strip(b"[] ").split(b",") if part.strip()), 1 << 50)


def _times(elements: int | None, size: int) -> int | None:
    return elements * size if elements is not None and 0 <= elements < 1 << 55 else None


def _number(collectives: Sequence[Collective]) -> None:
    """Ordinals, and what tells the order."""
    seen: Counter[Any] = Counter()
    for collective in collectives:
        key = collective.group_id if collective.group_id is not None else collective.source.lane
        collective.ordinal = seen[key]
        seen[key] += 1
        if collective.seq is not None and collective.group_id is not None:
            collective.order_source = "seq"
        else:
            collective.order_source = "group ordinal" if collective.group_id is not None else "lane ordinal"

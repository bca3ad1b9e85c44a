"""Rows of the tables for one rank of an op trace."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.ingest.common.columns import NULL
from lostflops.ingest.formats.op_trace.roles import GROUPS as GROUP_MEANINGS
from lostflops.ingest.formats.op_trace.roles import Role, RoleLayout, is_known, role
from lostflops.store.parquet import ColumnData, ConstantColumn, TextColumn
from lostflops.store.parts import PartWriter
from lostflops.store.tables import COLLECTIVES, EVENTS, GROUPS, LANES, PASSES, STATS, STEPS, TableSchema

Ns = npt.NDArray[np.int64]
Rows = dict[str, Ns]
"""`step`, `optype` (a code), `start`, `dur`, `microbatch` and `chunk` of a rank's ops, in order of start."""

_KINDS: Final = ("kernel", "comm", "other")
_COMPUTE_LANE: Final = 0
_RESOLUTION: Final = 10_000
"""Resolution of starts, in ns.

Starts are seconds in 32 bits: after a minute they are multiples of 4 us, and two may err in opposite directions.
"""
_OBSERVATIONS: Final = {
    "steps_joined": ("note", "each step is recorded from time zero; steps were placed one after the other"),
    "steps_sampled": ("note", "step numbers between the first and the last that are not in the file"),
    "ranks_left_out": (
        "note",
        "rank numbers below the highest that are not in the file, e.g. tensor-parallel peers",
    ),
    "no_launches": (
        "note",
        "device ops without a launch: the format has no host events, so idle gaps stay unexplained",
    ),
    "overlapping_ops": ("note", "ops that start before an earlier one on their lane ended"),
    "unknown_optypes": ("note", "ops of an unknown type, kept as kind `other`"),
    "unreadable_ops": ("dropped", "ops without rank, step, type or time, or with a negative duration"),
    "collectives_without_group": ("missing", "collectives and transfers whose members are not in the file"),
}


class OpTypes:
    """Facts about the types of a file's ops, by code; lanes have the same numbers on all ranks."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.roles = [role(name) for name in names]
        self.is_known = np.array([is_known(name) for name in names])
        comm = [code for code, own in enumerate(self.roles) if own.kind == "comm"]
        self.lane_names = ["compute", *(names[code] for code in comm), "host"]
        self.host_lane = len(comm) + 1
        number = {code: lane for lane, code in enumerate(comm, start=1)}
        other = {"kernel": _COMPUTE_LANE, "other": self.host_lane}
        self.lane = np.array([number.get(code, other.get(own.kind, 0)) for code, own in enumerate(self.roles)])
        self.kind = np.array([_KINDS.index(own.kind) for own in self.roles])
        self.name_texts: Sequence[str | None] = (None, *names)
        self.kind_texts: Sequence[str | None] = (None, *_KINDS)
        self.op_texts: Sequence[str | None] = (None, *(own.op for own in self.roles))
        self.passes = {
            direction: [code for code, name in enumerate(names) if name == f"{direction}-compute"]
            for direction in ("forward", "backward")
        }
        """Codes of the passes, by direction."""


class OpRank:
    """Writes the rows of one rank, and counts them in `rows`."""

    def __init__(self, parts: PartWriter, types: OpTypes, layout: RoleLayout, rank: int) -> None:
        self._parts, self._types, self._layout, self._rank = parts, types, layout, rank
        self.rows: Counter[str] = Counter()

    def write(self, ops: Rows, losses: Mapping[str, int]) -> None:
        self._ops = ops
        self._losses: Counter[str] = Counter(losses)
        self._stop = ops["start"] + ops["dur"]
        self._lane = self._types.lane[ops["optype"]]
        self._write_events()
        self._write_collectives()
        self._write_steps()
        self._write_passes()
        self._write_lanes()
        self._write_stats()

    def _put(self, table: TableSchema, rows: int, columns: Mapping[str, ColumnData]) -> None:
        self._parts.put(table, self._rank, rows, columns)
        self.rows[table.name] += rows

    def _write_events(self) -> None:
        ops, types = self._ops, self._types
        columns: dict[str, ColumnData] = {name: ops[name] for name in ("start", "dur", "step")}
        columns["event"] = np.arange(ops["start"].size)
        columns["lane"] = self._lane
        columns["kind"] = _texts(types.kind[ops["optype"]], types.kind_texts)
        columns["name"] = _texts(ops["optype"], types.name_texts)
        self._put(EVENTS, ops["start"].size, columns)
        self._losses["no_launches"] = int((types.kind[ops["optype"]] != _KINDS.index("other")).sum())
        self._losses["unknown_optypes"] = int((~types.is_known[ops["optype"]]).sum())
        self._losses["overlapping_ops"] = self._overlapping()

    def _overlapping(self) -> int:
        order = np.lexsort((self._ops["start"], self._lane))
        early = self._ops["start"][order][1:] + _RESOLUTION < self._stop[order][:-1]
        return int((early & (np.diff(self._lane[order]) == 0)).sum())

    def _write_collectives(self) -> None:
        rows = np.flatnonzero(self._types.kind[self._ops["optype"]] == _KINDS.index("comm"))
        optype, lane = self._ops["optype"][rows], self._lane[rows]
        used, use = np.unique(optype, return_inverse=True)
        roles = [self._types.roles[code] for code in used.tolist()]
        groups = self._groups(roles)
        names = list(groups)
        group = np.array([names.index(own.group) if own.group in groups else -1 for own in roles], np.int64)[use]
        peers = [self._layout.peer(self._rank, own.shift) for own in roles]
        ids: list[str | None] = [None, *(self._layout.group_id(name, self._rank) for name in groups)]
        sizes = np.array([NULL, *(len(members) for members in groups.values())])
        columns: dict[str, ColumnData] = {
            "event": rows,
            "group_id": [ids[code + 1] for code in group.tolist()],
            "group_size": sizes[group + 1],
            "ordinal": _ordinals(np.where(group >= 0, group, len(names) + lane)),
            "order_source": [("group ordinal" if code >= 0 else "lane ordinal") for code in group.tolist()],
            "op": _texts(optype, self._types.op_texts),
            "peer": np.array([NULL if peer is None else peer for peer in peers], np.int64)[use],
            "start": self._ops["start"][rows],
            "stop": self._stop[rows],
            "lane": lane,
            "step": self._ops["step"][rows],
            "metadata": ConstantColumn("op_trace"),
        }
        self._put(COLLECTIVES, rows.size, columns)
        self._losses["collectives_without_group"] = int((group < 0).sum())
        self._write_groups(groups)

    def _groups(self, roles: Sequence[Role]) -> dict[str, list[int]]:
        """Return the members of each group that the rank uses, by name."""
        if not self._layout.is_certain:
            return {}
        names = sorted({own.group for own in roles if own.group is not None})
        return {name: members for name in names if (members := self._layout.members(name, self._rank))}

    def _write_groups(self, groups: Mapping[str, list[int]]) -> None:
        columns: dict[str, ColumnData] = {
            "group_id": [self._layout.group_id(name, self._rank) for name in groups],
            "position": [bisect_left(members, self._rank) for members in groups.values()],
            "size": [len(members) for members in groups.values()],
            "name": list(groups),
            "description": [GROUP_MEANINGS[name] for name in groups],
        }
        self._put(GROUPS, len(groups), columns)

    def _write_steps(self) -> None:
        """Write steps: a step spans the rank's ops in it, as there is no host with steps of its own."""
        number, first = np.unique(self._ops["step"], return_index=True)
        start, stop = self._ops["start"][first], np.maximum.reduceat(self._stop, first)
        columns: dict[str, ColumnData] = {
            "step": number,
            "lane": ConstantColumn(_COMPUTE_LANE),
            "start": start,
            "stop": stop,
        }
        self._put(STEPS, number.size, columns | {"device_start": start, "device_stop": stop})
        self._losses["steps_joined"] = number.size
        self._losses["steps_sampled"] = int(number[-1] - number[0]) + 1 - number.size

    def _write_passes(self) -> None:
        stage = self._layout.places[self._rank].stage
        for direction, codes in self._types.passes.items():
            rows = np.flatnonzero(np.isin(self._ops["optype"], codes))
            columns: dict[str, ColumnData] = {name: self._ops[name][rows] for name in ("step", "microbatch", "chunk")}
            columns |= {"start": self._ops["start"][rows], "stop": self._stop[rows]}
            columns |= {"stage": ConstantColumn(stage), "direction": ConstantColumn(direction)}
            self._put(PASSES, rows.size, columns)

    def _write_lanes(self) -> None:
        lanes = sorted({_COMPUTE_LANE, *np.unique(self._lane).tolist()})
        is_stream = [lane != self._types.host_lane for lane in lanes]
        columns: dict[str, ColumnData] = {
            "lane": lanes,
            "kind": ["stream" if stream else "thread" for stream in is_stream],
            "device": [0 if stream else None for stream in is_stream],
            "stream": [lane if stream else None for lane, stream in zip(lanes, is_stream, strict=True)],
            "name": [self._types.lane_names[lane] for lane in lanes],
        }
        self._put(LANES, len(lanes), columns)

    def _write_stats(self) -> None:
        found = [(what, *_OBSERVATIONS[what], count) for what, count in sorted(self._losses.items()) if count]
        columns: dict[str, ColumnData] = {"format": ConstantColumn("op_trace")}
        columns |= {name: [row[i] for row in found] for i, name in enumerate(("what", "effect", "reason", "count"))}
        self._put(STATS, len(found), columns)


def _texts(codes: Ns, values: Sequence[str | None]) -> TextColumn:
    return TextColumn((codes + 1).astype(np.uint32), values)


def _ordinals(keys: Ns) -> Ns:
    """Return how many rows with the same key come before each row.

    >>> _ordinals(np.array([7, 2, 7, 7, 2])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    found = np.empty_like(keys)
    found[order] = np.arange(keys.size) - np.searchsorted(ordered, ordered)
    return found

"""Pass two of ingest: link a recording's rows to each other and write one rank's part of every table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.ingest.common.columns import NULL, NULL32, Columns
from lostflops.ingest.common.vocabulary import NO_STEP
from lostflops.ingest.timeline.collectives import (
    Launch,
    RecordedCollective,
    build_collectives,
    name_exchange,
    name_peers,
)
from lostflops.ingest.timeline.event_kinds import DEVICE_WORK, KERNELS, KIND_CODE, KINDS
from lostflops.ingest.timeline.lookups import AnnotationLookup, LaunchMap, StepLookup
from lostflops.ingest.timeline.memberships import memberships, transfer_group
from lostflops.ingest.timeline.modules import module_lookup
from lostflops.ingest.timeline.observations import KINETO_OBSERVATIONS
from lostflops.ingest.timeline.recording import Recording
from lostflops.store.parquet import ColumnData, ConstantColumn, TextColumn
from lostflops.store.parts import PartWriter
from lostflops.store.row_groups import group_rows
from lostflops.store.tables import COLLECTIVES, EVENTS, GROUPS, LANES, LINKS, MEMORY, STATS, STEPS, TableSchema

_RUNTIME, _PYTHON, _ANNOTATION, _COMM = (KIND_CODE[kind] for kind in ("runtime", "python", "annotation", "comm"))
_SECOND = 1_000_000_000
_KIND_TEXTS: Final[Sequence[str | None]] = (None, *KINDS)


class RankPart:
    """Writes one recording; each call in `write` depends on the calls before it."""

    def __init__(
        self,
        parts: PartWriter,
        rank: int,
        source_format: str = "kineto",
        observations: Mapping[str, tuple[str, str]] = KINETO_OBSERVATIONS,
    ) -> None:
        self._parts = parts
        self._rank = rank
        self._format, self._observations = source_format, observations
        self.rows: Counter[str] = Counter()
        self.device_rows_by_lane: Counter[int] = Counter()

    def write(self, recording: Recording) -> None:
        self._recording = recording
        self._losses = recording.losses
        self._steps = StepLookup(recording.steps)
        self._annotations = AnnotationLookup(recording.annotations)
        self._modules = module_lookup(recording)
        self._launches = LaunchMap(recording.launches)
        self._vocabulary = recording.vocabulary
        self._names = self._vocabulary.names.texts()
        self._wanted = np.array([row.correlation for row in recording.comm_rows if row.on_device], np.int64)
        self._comm_launches: dict[int, Launch] = {}
        self._device_edges: dict[int, tuple[int, int]] = {}
        self._annotations_seen = 0
        self._lane_ends: dict[int, int] = {}
        self._write_host()
        self._launches.sort()
        self._write_device()
        self._write_collectives()
        self._write_memory()
        self._write_small()
        self._write_stats()

    def _put(self, table: TableSchema, rows: int, columns: Mapping[str, ColumnData]) -> None:
        self._parts.put(table, self._rank, rows, columns)
        self.rows[table.name] += rows

    def _write_host(self) -> None:
        first = 0
        for piece in self._recording.host.pieces():
            step = self._steps.at(piece["start"])
            annotation = self._annotations.at(piece["lane"], piece["start"])
            self._step_out(piece, annotation)
            self._note_outside(piece["start"])
            module = self._modules.at(piece["lane"], piece["start"]) if self._modules else None
            self._note_launches(piece, step, annotation, module)
            python = piece["kind"] == _PYTHON
            piece["source"][python] = self._vocabulary.source_of_name[piece["name"][python]]
            rows = piece["start"].size
            columns = self._common(piece, first, step, annotation) | self._named_modules(module)
            columns |= {name: piece[name] for name in ("sequence", "forward_thread")}
            columns["source"] = TextColumn(piece["source"], self._vocabulary.sources.texts())
            for name in ("shapes", "dtypes", "inputs"):
                columns[name] = TextColumn(piece[name], self._vocabulary.details.texts())
            self._put(EVENTS, rows, columns)
            first += rows

    def _step_out(self, piece: Columns, annotation: npt.NDArray[np.uint32]) -> None:
        """Set the annotation around each annotation, which is not around itself.

        The spool has annotations in the order in which they were passed to the lookup.
        """
        steps = self._vocabulary.step_of_name[piece["name"]]
        rows = np.flatnonzero((piece["kind"] == _ANNOTATION) & (steps == NO_STEP))
        annotation[rows] = self._annotations.parents[self._annotations_seen : self._annotations_seen + rows.size]
        self._annotations_seen += rows.size

    def _note_outside(self, start: npt.NDArray[np.int64]) -> None:
        """Count events farther outside the profiler's recorded span than its length plus a second."""
        if self._recording.span is None:
            return
        first, last = self._recording.span
        margin = last - first + _SECOND
        self._losses["events_out_of_window"] += int(((start < first - margin) | (start > last + margin)).sum())

    def _named_modules(self, module: npt.NDArray[np.uint32] | None) -> dict[str, ColumnData]:
        return {} if module is None else {"module": TextColumn(module, self._vocabulary.modules.texts())}

    def _note_launches(
        self,
        piece: Columns,
        step: npt.NDArray[np.int32],
        annotation: npt.NDArray[np.uint32],
        module: npt.NDArray[np.uint32] | None,
    ) -> None:
        rows = np.flatnonzero((piece["kind"] == _RUNTIME) & (piece["correlation"] != NULL))
        correlation = piece["correlation"][rows]
        self._launches.add(correlation, step[rows], annotation[rows], None if module is None else module[rows])
        wanted = rows[np.isin(correlation, self._wanted)]
        for i in wanted.tolist():
            self._comm_launches[int(piece["correlation"][i])] = (int(piece["lane"][i]), int(piece["start"][i]))

    def _write_device(self) -> None:
        first = self._recording.host.rows
        self._comm_steps: list[npt.NDArray[np.int32]] = []
        offset = 0
        for piece in self._recording.device.pieces():
            rows = piece["start"].size
            known, step, annotation, module = self._launches.find(piece["correlation"])
            self._comm_steps.append(step[piece["kind"] == _COMM])
            self._note_outside(piece["start"])
            work = np.isin(piece["kind"], DEVICE_WORK)
            kernel = np.isin(piece["kind"], KERNELS)
            self._losses["kernels_without_launch"] += int((kernel & ~known).sum())
            self._losses["copies_without_launch"] += int((work & ~kernel & ~known).sum())
            lanes, counts = np.unique(piece["lane"][work], return_counts=True)
            self.device_rows_by_lane.update(dict(zip(lanes.tolist(), counts.tolist(), strict=True)))
            self._losses["overlapping_events"] += self._overlaps(piece, work)
            self._note_edges(piece["start"][work], piece["dur"][work], step[work])
            columns = self._common(piece, first + offset, step, annotation)
            columns |= self._named_modules(module if self._modules else None)
            columns |= {
                name: piece[name]
                for name in ("bytes", "registers", "shared_memory", "occupancy", "wait_stream", "wait_correlation")
            }
            for shape in ("grid", "block"):
                numbers = self._vocabulary.triples[piece[shape]]
                columns |= {f"{shape}_{axis}": numbers[:, place].copy() for place, axis in enumerate("xyz")}
            self._put(EVENTS, rows, columns)
            offset += rows

    def _note_edges(self, start: Any, dur: Any, step: npt.NDArray[np.int32]) -> None:
        for number, own in group_rows(step):
            if number == NULL32:
                continue
            low, high = int(start[own].min()), int((start[own] + dur[own]).max())
            known = self._device_edges.get(number)
            self._device_edges[number] = (min(low, known[0]), max(high, known[1])) if known else (low, high)

    def _overlaps(self, piece: Columns, work: npt.NDArray[np.bool_]) -> int:
        """Count overlaps; too few if the pieces of a lane are not in order of time, as profilers write them."""
        lane, start = piece["lane"][work], piece["start"][work]
        stop = start + piece["dur"][work]
        found = 0
        for number, own in group_rows(lane):
            order = own[np.argsort(start[own], kind="stable")]
            reach = np.maximum.accumulate(np.concatenate(([self._lane_ends.get(number, NULL)], stop[order])))
            found += int((start[order] < reach[:-1]).sum())
            self._lane_ends[number] = int(reach[-1])
        return found

    def _common(
        self, piece: Columns, first: int, step: npt.NDArray[np.int32], annotation: npt.NDArray[np.uint32]
    ) -> dict[str, ColumnData]:
        return {
            "event": np.arange(first, first + piece["start"].size),
            "lane": piece["lane"],
            "kind": TextColumn(piece["kind"].astype(np.uint32) + 1, _KIND_TEXTS),
            "name": TextColumn(piece["name"], self._names),
            "start": piece["start"] + self._recording.base_time,
            "dur": piece["dur"],
            "correlation": piece["correlation"],
            "external_id": piece["external_id"],
            "step": step,
            "annotation": TextColumn(annotation, self._names),
        }

    def _write_collectives(self) -> None:
        recording = self._recording
        self._groups = memberships(recording.document, self._rank)
        known = {row["name"]: row["group_id"] for row in self._groups}
        collectives, losses, unused = build_collectives(
            recording.comm_rows, recording.comm_calls, self._comm_launches, known
        )
        if recording.device.rows:
            self._losses["comms_without_kernel"] += unused
        calls = recording.transfer_calls
        group = transfer_group(recording.document, self._rank, {call.place for call in calls})
        losses["collectives_without_group"] -= name_peers(collectives, calls, group)
        name_exchange(collectives, self._groups, _world_size(recording.document))
        self._losses.update(losses)
        base, host_rows = recording.base_time, recording.host.rows
        columns: dict[str, ColumnData] = {
            name: [getattr(c, name) for c in collectives]
            for name in COLLECTIVES.column_names()
            if name in RecordedCollective.__slots__
        }
        columns["event"] = [c.source.row + host_rows * c.source.on_device for c in collectives]
        columns["start"] = [c.source.start + base for c in collectives]
        columns["stop"] = [c.source.stop + base for c in collectives]
        columns["lane"] = [c.source.lane for c in collectives]
        columns["step"] = self._steps_of(collectives)
        self._put(COLLECTIVES, len(collectives), columns)
        self._note_group_rows(collectives)

    def _steps_of(self, collectives: Sequence[RecordedCollective]) -> npt.NDArray[np.int32]:
        """Return the step of each collective; device rows have the step of their launch.

        Both lists have the device rows in the order of the spool.
        """
        on_device = [row.row for row in self._recording.comm_rows if row.on_device]
        by_row = dict(zip(on_device, np.concatenate([*self._comm_steps, []]).tolist(), strict=True))
        on_host = self._steps.at(np.array([c.source.start for c in collectives], np.int64)).tolist()
        steps = [
            by_row[c.source.row] if c.source.on_device else step for c, step in zip(collectives, on_host, strict=True)
        ]
        return np.array(steps, np.int32)

    def _note_group_rows(self, collectives: Sequence[RecordedCollective]) -> None:
        """Add groups that only collectives name, if the trace does not list them."""
        known = {row["group_id"] for row in self._groups}
        for collective in collectives:
            if collective.group_id is not None and collective.group_id not in known:
                known.add(collective.group_id)
                self._groups.append(self._group_row(collective))

    def _group_row(self, collective: RecordedCollective) -> dict[str, Any]:
        members = collective.group_members
        return {
            "group_id": collective.group_id,
            "position": members.index(self._rank) if members and self._rank in members else None,
            "size": len(members) if members else collective.group_size,
            "name": collective.group_name,
            "description": collective.group_description,
            "backend": None,
        }

    def _write_memory(self) -> None:
        for piece in self._recording.memory.pieces():
            columns: dict[str, ColumnData] = {name: values for name, values in piece.items() if name != "time"}
            columns["time"] = piece["time"] + self._recording.base_time
            columns["step"] = self._steps.at(piece["time"])
            self._put(MEMORY, piece["time"].size, columns)

    def _write_small(self) -> None:
        recording, base = self._recording, self._recording.base_time
        lanes = recording.lanes
        self._put(LANES, len(lanes), {"lane": list(range(len(lanes)))} | _attributes(lanes, LANES, ("rank", "lane")))
        self._put(GROUPS, len(self._groups), {name: [g[name] for g in self._groups] for name in _GROUP_COLUMNS})
        spans = self._steps.spans
        edges = [self._device_edges.get(span.step) for span in spans]
        columns: dict[str, ColumnData] = {
            "step": [span.step for span in spans],
            "lane": [span.lane for span in spans],
            "start": [span.start + base for span in spans],
            "stop": [span.stop + base for span in spans],
            "device_start": [edge[0] + base if edge else None for edge in edges],
            "device_stop": [edge[1] + base if edge else None for edge in edges],
        }
        self._put(STEPS, len(spans), columns)
        links = recording.links
        self._put(
            LINKS,
            links["to_lane"].size if links else 0,
            {name: values + base if name.endswith("start") else values for name, values in links.items()},
        )

    def _write_stats(self) -> None:
        self._losses["missing_steps"] += self._steps.missing()
        self._losses["repeated_steps"] += self._steps.repeated
        self._losses.update(self._vocabulary.count_refused() - self._recording.refused_before)
        if not self._steps.spans:
            self._losses["no_steps"] = 1
        rows = [row for what, count in sorted(self._losses.items()) if count and (row := self._stat(what, count))]
        columns: dict[str, ColumnData] = {
            name: [row[i] for row in rows] for i, name in enumerate(("what", "effect", "count", "reason"))
        }
        self._put(STATS, len(rows), {"format": ConstantColumn(self._format)} | columns)

    def _stat(self, what: str, count: int) -> tuple[str, str, int, str]:
        effect, reason = self._observations[what]
        example = self._recording.examples.get(what)
        return what, effect, count, reason + (f"; for example: {example}" if example else "")


_GROUP_COLUMNS = ("group_id", "position", "size", "name", "description", "backend")


def _world_size(document: Mapping[str, Any]) -> int | None:
    info = document.get("distributedInfo")
    size = info.get("world_size") if isinstance(info, dict) else None
    return size if type(size) is int else None


def _attributes(items: Sequence[Any], table: TableSchema, but: tuple[str, ...]) -> dict[str, ColumnData]:
    names = [name for name in table.column_names() if name not in but]
    return {name: [getattr(item, name) for item in items] for name in names}

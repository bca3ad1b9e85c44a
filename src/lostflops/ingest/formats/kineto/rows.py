"""Conversion of decoded Kineto events to rows of a `Recording`, one block at a time.

This module knows the dialects of the format: old and new category names, CUDA, ROCm, MTIA. It does not know files, nor
how rows relate to each other.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from lostflops.ingest.common.columns import (
    NULL,
    Columns,
    small_integers,
    whole_numbers,
    whole_or_none,
)
from lostflops.ingest.common.vocabulary import NO_STEP
from lostflops.ingest.formats.kineto.event_fields import EventFields, LaneKey, ObjectFields
from lostflops.ingest.formats.kineto.exact_time import UNREADABLE, to_ns
from lostflops.ingest.formats.kineto.schema import DEVICE_KINDS, HOST_KINDS, MTIA_NAMES, Args, Event
from lostflops.ingest.timeline.event_kinds import KIND_CODE
from lostflops.ingest.timeline.recording import (
    CommCall,
    CommMetadata,
    CommRow,
    RecordedLane,
    Recording,
    StepSpan,
    TransferCall,
)

_RECORDED: Final = attrgetter(
    "collective",
    "dtype",
    "elements_in",
    "elements_out",
    "group_name",
    "group_description",
    "group_ranks",
    "group_size",
    "group_start",
    "group_stride",
    "source_rank",
    "target_rank",
)
"""All that `_metadata` reads: the same for thousands of collectives."""
_COMM = KIND_CODE["comm"]
_HOST_COMM = KIND_CODE["host_comm"]
_ANNOTATION = KIND_CODE["annotation"]
_MODULE = KIND_CODE["module"]
_FARTHEST: Final = 1 << 61
_PEER: Final = re.compile(r'\[\s*"[^"]*",\s*"[^"]*",\s*"(\d{1,6})"')
"""Matches the third input of a `c10d` send or receive."""
KNOWN_PHASES: Final = frozenset("Misf")


class _RowBatch(NamedTuple):
    """Events of one category, with name and times of each."""

    category: str
    fields: EventFields
    names: npt.NDArray[np.uint32]
    start: npt.NDArray[np.int64]
    dur: npt.NDArray[np.int64]

    def only(self, good: npt.NDArray[np.bool_]) -> _RowBatch:
        fields = self.fields.only(np.flatnonzero(good))
        return _RowBatch(self.category, fields, self.names[good], self.start[good], self.dur[good])


class KinetoRows:
    """Turns decoded events into rows of the recording, one block at a time."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.lane_codes: dict[LaneKey, int] = {}
        self.lane_names: dict[Any, str] = {}
        self.arrows: dict[str, list[Columns]] = {"s": [], "f": []}
        self.known_metadata: dict[bytes, CommMetadata] = {}
        self.vocabulary = recording.vocabulary
        self.call_name = self.vocabulary.names["record_param_comms"]
        self.transfer_names = np.array([self.vocabulary.names[name] for name in ("c10d::send", "c10d::recv_")])

    def add(self, events: list[Event]) -> None:
        by_category: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                by_category[event.cat].append(event)
        # Launches are linked by correlation, so their arrows are passed over.
        untimed = [event for event in events if event.ph != "X" and event.cat != "ac2g"]
        ordered = list(chain.from_iterable(by_category.values()))
        start = to_ns([e.ts for e in ordered])
        dur = to_ns([e.dur for e in ordered])
        names = self.vocabulary.names.codes([e.name for e in ordered], len(ordered))
        fields = [
            (category, ObjectFields(members, self.vocabulary, self.find_lanes))
            for category, members in by_category.items()
        ]
        self.add_batches(fields, names, start, dur)
        self.add_untimed(untimed)

    def add_batches(
        self,
        by_category: Sequence[tuple[str, EventFields]],
        names: npt.NDArray[np.uint32],
        start: npt.NDArray[np.int64],
        dur: npt.NDArray[np.int64],
    ) -> None:
        """Add events by category; names and times are those of all of them, converted at once, which is cheapest."""
        good = self._good_times(start, dur)
        first = 0
        for category, fields in by_category:
            own = slice(first, first + len(fields))
            first = own.stop
            batch = _RowBatch(category, fields, names[own], start[own], dur[own])
            if not good[own].all():
                batch = batch.only(good[own])
            if not len(batch.fields):
                continue
            if category in DEVICE_KINDS:
                self._add_device(batch)
            else:
                self._add_host(batch)

    def finish(self) -> None:
        """Name the lanes and pair the arrows, which may be anywhere in the file."""
        for key, code in self.lane_codes.items():
            self.recording.lanes[code].name = self.lane_names.get(_hashable(key[-2:]))
        self.recording.links = _pair_arrows(self.arrows["s"], self.arrows["f"])
        ends = sum(part["id"].size for part in self.arrows["f"])
        paired = self.recording.links["to_lane"].size if self.recording.links else 0
        self.recording.losses["unpaired_arrows"] += ends - paired

    def _good_times(self, start: npt.NDArray[np.int64], dur: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        readable = (start != UNREADABLE) & (dur != UNREADABLE)
        good: npt.NDArray[np.bool_] = readable & (dur >= 0) & (np.abs(start) < _FARTHEST) & (dur < _FARTHEST)
        if not good.all():
            losses = self.recording.losses
            losses["events_without_time"] += int((~readable).sum())
            losses["negative_durations"] += int((readable & (dur < 0)).sum())
            losses["out_of_range_times"] += int((readable & ~good & (dur >= 0)).sum())
        return good

    def find_lanes(self, keys: list[LaneKey]) -> npt.NDArray[np.int32]:
        """Return the codes of lanes; those that are new are added in this order."""
        known = self.lane_codes
        with suppress(KeyError, TypeError):
            return np.array([known[key] for key in keys], np.int32)
        keys = [_hashable(key) for key in keys]
        for key in dict.fromkeys(keys):
            self._lane(key)
        return np.array([known[key] for key in keys], np.int32)

    def _lane(self, key: LaneKey) -> int:
        if key not in self.lane_codes:
            self.lane_codes[key] = len(self.recording.lanes)
            self.recording.lanes.append(_recorded_lane(key))
        return self.lane_codes[key]

    def _add_host(self, batch: _RowBatch) -> None:
        category, fields, name, start, dur = batch
        count = len(fields)
        kind = HOST_KINDS.get(category)
        if kind is None:
            kind = "other"
            self.recording.losses["unknown_categories"] += count
            self.recording.examples.setdefault("unknown_categories", category or "(none)")
        kinds = np.full(count, KIND_CODE[kind], np.uint8)
        columns: Columns = {
            "lane": fields.threads(),
            "kind": kinds,
            "name": name,
            "start": start,
            "dur": dur,
        }
        self._add_links_of_host(kind, category, fields, columns)
        first_row = self.recording.host.rows
        if kind in ("op", "annotation"):
            kinds[self.vocabulary.is_comm_host_event[name]] = _HOST_COMM
            kinds[self.vocabulary.step_of_name[name] != NO_STEP] = _ANNOTATION
            self._keep_modules(columns)
            self._keep_host_comm(fields, columns, first_row)
            self._keep_steps_and_annotations(columns)
        elif kind == "span" and self.recording.span is None:
            self.recording.span = (int(start[0]), int(start[0] + dur[0]))
        self.recording.host.append(count, columns)

    def _add_links_of_host(self, kind: str, category: str, fields: EventFields, columns: Columns) -> None:
        if kind == "runtime":
            columns["correlation"] = fields.integers("correlation")
            self.recording.launches += int((columns["correlation"] != NULL).sum())
        if category == "Runtime":
            columns["external_id"] = fields.integers("old_external_id")
        elif kind in ("runtime", "op", "annotation"):
            columns["external_id"] = fields.integers("external_id")
        if kind in ("op", "annotation"):
            columns["sequence"] = fields.integers("sequence")
            columns["forward_thread"] = small_integers(fields.integers("forward_thread"))
            for name in ("shapes", "dtypes", "inputs"):
                columns[name] = fields.details(name)
            sources = fields.sources()
            if sources is not None:
                columns["source"] = sources

    def _keep_host_comm(self, fields: EventFields, columns: Columns, first_row: int) -> None:
        recording = self.recording
        names, details = self.vocabulary.names.texts(), self.vocabulary.details.texts()
        for i, args in fields.args_of(np.flatnonzero(columns["kind"] == _HOST_COMM)):
            start = int(columns["start"][i])
            row = CommRow(
                row=first_row + i,
                on_device=False,
                name=names[columns["name"][i]] or "",
                lane=int(columns["lane"][i]),
                start=start,
                stop=start + int(columns["dur"][i]),
                correlation=NULL,
                metadata=self._metadata(args),
                seq=whole_or_none(args.seq),
                shapes=details[columns["shapes"][i]] or "",
                dtypes=details[columns["dtypes"][i]] or "",
            )
            recording.comm_rows.append(row)
        for i, args in fields.args_of(np.flatnonzero(columns["name"] == self.call_name)):
            start = int(columns["start"][i])
            call = CommCall(
                lane=int(columns["lane"][i]),
                start=start,
                stop=start + int(columns["dur"][i]),
                metadata=self._metadata(args),
                seq=whole_or_none(args.seq),
                shapes=details[columns["shapes"][i]] or "",
                dtypes=details[columns["dtypes"][i]] or "",
            )
            recording.comm_calls.append(call)
        for i in np.flatnonzero(np.isin(columns["name"], self.transfer_names)).tolist():
            place = _PEER.match(details[columns["inputs"][i]] or "")
            start = int(columns["start"][i])
            if place is not None:
                stop = start + int(columns["dur"][i])
                recording.transfer_calls.append(TransferCall(int(columns["lane"][i]), start, stop, int(place[1])))

    def _keep_steps_and_annotations(self, columns: Columns) -> None:
        steps = self.vocabulary.step_of_name[columns["name"]]
        for i in np.flatnonzero(steps != NO_STEP).tolist():
            start = int(columns["start"][i])
            span = StepSpan(int(steps[i]), int(columns["lane"][i]), start, start + int(columns["dur"][i]))
            self.recording.steps.append(span)
        rows = np.flatnonzero((columns["kind"] == _ANNOTATION) & (steps == NO_STEP))
        if rows.size:
            begin = columns["start"][rows]
            kept = (columns["lane"][rows], begin, begin + columns["dur"][rows], columns["name"][rows])
            self.recording.annotations.append(kept)

    def _keep_modules(self, columns: Columns) -> None:
        """Keep module calls, which are ops or annotations.

        The cheapest range that PyTorch offers is recorded as an op, the usual one as an annotation.
        """
        modules = self.vocabulary.module_of_name[columns["name"]]
        rows = np.flatnonzero(modules)
        if rows.size:
            columns["kind"][rows] = _MODULE
            begin = columns["start"][rows]
            self.recording.modules.append((columns["lane"][rows], begin, begin + columns["dur"][rows], modules[rows]))

    def _add_device(self, batch: _RowBatch) -> None:
        category, fields, name, start, dur = batch
        count = len(fields)
        kind = DEVICE_KINDS[category]
        columns: Columns = {
            "lane": fields.streams(),
            "kind": np.full(count, KIND_CODE[kind], np.uint8),
            "name": name,
            "start": start,
            "dur": dur,
            "correlation": fields.integers("correlation"),
            "external_id": fields.integers("external_id" if category[0].islower() else "old_external_id"),
        }
        self._add_device_details(category, kind, fields, columns)
        if kind == "kernel":
            self._keep_device_comm(fields, columns)
        self.recording.device.append(count, columns)

    @staticmethod
    def _add_device_details(category: str, kind: str, fields: EventFields, columns: Columns) -> None:
        if category == "mtia_ccp_events":
            columns["kind"] = np.array([KIND_CODE[MTIA_NAMES.get(n, "kernel")] for n in fields.names()], np.uint8)
            columns["bytes"] = fields.whole_numbers("size")
        elif kind == "kernel":
            columns["grid"] = fields.grids("grid")
            columns["block"] = fields.grids("block")
            columns["registers"] = small_integers(fields.integers("registers"))
            columns["shared_memory"] = small_integers(fields.integers("shared_memory"))
            columns["occupancy"] = fields.numbers("occupancy")
        elif kind in ("memcpy", "memset"):
            columns["bytes"] = fields.whole_numbers("bytes")
        elif kind == "sync":
            columns["wait_stream"] = fields.whole_numbers("wait_stream")
            columns["wait_correlation"] = fields.whole_numbers("wait_correlation")

    def _keep_device_comm(self, fields: EventFields, columns: Columns) -> None:
        comm = self.vocabulary.is_comm_kernel[columns["name"]]
        comm |= fields.is_collective()
        columns["kind"][comm] = _COMM
        names, first_row = self.vocabulary.names.texts(), self.recording.device.rows
        for i, args in fields.args_of(np.flatnonzero(comm)):
            start = int(columns["start"][i])
            row = CommRow(
                row=first_row + i,
                on_device=True,
                name=names[columns["name"][i]] or "",
                lane=int(columns["lane"][i]),
                start=start,
                stop=start + int(columns["dur"][i]),
                correlation=int(columns["correlation"][i]),
                metadata=self._metadata(args),
                seq=whole_or_none(args.seq),
            )
            self.recording.comm_rows.append(row)

    def add_untimed(self, events: list[Event]) -> None:
        """Add events of other phases than `X`."""
        memory = [event for event in events if event.name == "[memory]"]
        arrows = [event for event in events if event.ph in ("s", "f") and event.cat == "fwdbwd"]
        if memory:
            self._add_memory(memory)
        if arrows:
            self._add_arrows(arrows)
        for event in events:
            if event.ph == "M" and event.name == "thread_name" and isinstance(event.args.name, str):
                self.lane_names[_hashable((event.pid, event.tid))] = event.args.name
        for phase, count in Counter([event.ph for event in events]).items():
            if phase not in KNOWN_PHASES:
                self.recording.losses["unknown_phases"] += count
                self.recording.examples.setdefault("unknown_phases", phase or "(none)")

    def _add_memory(self, events: list[Event]) -> None:
        at = to_ns([e.ts for e in events])
        good = (at != UNREADABLE) & (np.abs(at) < _FARTHEST)
        self.recording.losses["events_without_time"] += int((~good).sum())
        kept = [events[i] for i in np.flatnonzero(good).tolist()]
        args = [e.args for e in kept]
        columns: Columns = {
            "time": at[good],
            "lane": self.find_lanes([("t", e.pid, e.tid) for e in kept]),
            "device_type": whole_numbers([a.device_type for a in args], np.int32),
            "device_index": whole_numbers([a.device_index for a in args], np.int32),
            "address": whole_numbers([a.address for a in args]),
            "bytes": whole_numbers([a.memory_bytes for a in args]),
            "allocated": whole_numbers([a.allocated for a in args]),
            "reserved": whole_numbers([a.reserved for a in args]),
        }
        self.recording.memory.append(len(kept), columns)

    def _add_arrows(self, events: list[Event]) -> None:
        times = to_ns([e.ts for e in events])
        numbers_of_arrows = whole_numbers([e.id for e in events])
        lanes = self.find_lanes([("t", e.pid, e.tid) for e in events])
        good = (times != UNREADABLE) & (np.abs(times) < _FARTHEST) & (numbers_of_arrows != NULL)
        begins = np.array([e.ph == "s" for e in events], np.bool_)
        for phase, own in (("s", good & begins), ("f", good & ~begins)):
            self.arrows[phase].append({"id": numbers_of_arrows[own], "lane": lanes[own], "start": times[own]})

    def _metadata(self, args: Args) -> CommMetadata | None:
        if args.collective is None:
            return None
        # What was recorded, to the letter: as values, 1 and true would be the same.
        recorded = msgspec.json.encode(_RECORDED(args))
        found = self.known_metadata.get(recorded)
        if found is None:
            found = self.known_metadata[recorded] = _metadata(args)
        return found


def _pair_arrows(begins: list[Columns], ends: list[Columns]) -> Columns:
    """Return the columns of `links`: each end with the last begin of its number."""
    if not begins or not ends:
        return {}
    one, two = ({name: np.concatenate([part[name] for part in parts]) for name in parts[0]} for parts in (begins, ends))
    if one["id"].size == 0:
        return {}
    order = np.argsort(one["id"], kind="stable")
    index = np.searchsorted(one["id"], two["id"], side="right", sorter=order) - 1
    begin = order[np.maximum(index, 0)]
    found = (index >= 0) & (one["id"][begin] == two["id"])
    begin = begin[found]
    return {
        "from_lane": one["lane"][begin],
        "from_start": one["start"][begin],
        "to_lane": two["lane"][found],
        "to_start": two["start"][found],
    }


def _hashable(key: tuple[Any, ...]) -> Any:
    return tuple(part if part is None or isinstance(part, (int, str)) else repr(part) for part in key)


def _recorded_lane(key: LaneKey) -> RecordedLane:
    kind, first, second = key
    if kind == "t":
        return RecordedLane(kind="thread", process=whole_or_none(first), thread=whole_or_none(second))
    return RecordedLane(kind="stream", device=whole_or_none(first, bits=32), stream=whole_or_none(second))


def _metadata(args: Args) -> CommMetadata:
    return CommMetadata(
        op=_text_or_none(args.collective),
        dtype=_text_or_none(args.dtype),
        elements_in=whole_or_none(args.elements_in),
        elements_out=whole_or_none(args.elements_out),
        group_name=_text_or_none(args.group_name),
        group_description=_text_or_none(args.group_description),
        group_ranks=_text_or_none(args.group_ranks),
        group_size=whole_or_none(args.group_size, bits=32),
        group_start=whole_or_none(args.group_start, bits=32),
        group_stride=whole_or_none(args.group_stride, bits=32),
        source_rank=whole_or_none(args.source_rank, bits=32),
        target_rank=whole_or_none(args.target_rank, bits=32),
    )


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None

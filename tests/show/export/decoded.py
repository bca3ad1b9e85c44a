"""A Perfetto trace read back with Perfetto's own schema: slices as a viewer would pair them, by nothing of ours."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest

proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


@dataclass(frozen=True)
class Slice:
    process: str
    track: str
    start: int
    stop: int
    name: str
    category: str
    told: dict[str, Any] = field(hash=False)
    flows: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass
class Trace:
    slices: list[Slice]
    tracks: dict[int, Any]
    points: dict[str, list[tuple[int, int]]]
    clocks: dict[int, int]

    def of(self, category: str) -> list[Slice]:
        return [each for each in self.slices if each.category == category]


def decode(data: bytes) -> Trace:
    parsed = proto.Trace.FromString(data)
    interned: dict[tuple[str, int], str] = {}
    tracks: dict[int, Any] = {}
    clocks: dict[int, int] = {}
    events: list[tuple[int, Any]] = []
    for packet in parsed.packet:
        assert packet.trusted_packet_sequence_id == 1
        for kind in ("event_names", "event_categories", "debug_annotation_names", "debug_annotation_string_values"):
            for entry in getattr(packet.interned_data, kind):
                text = entry.str.decode() if kind == "debug_annotation_string_values" else entry.name
                assert interned.setdefault((kind, entry.iid), text) == text
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in tracks
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("clock_snapshot"):
            clocks |= {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
        if packet.HasField("track_event"):
            assert packet.track_event.track_uuid in tracks, "an event before its track"
            events.append((packet.timestamp, packet.track_event))
    assert parsed.packet[0].sequence_flags == 1
    return Trace(*_paired(events, tracks, interned), clocks)


def _paired(events: list[tuple[int, Any]], tracks: dict[int, Any], interned: dict[tuple[str, int], str]) -> Any:
    """As Perfetto does: sorted by time, equals in the order of the file, an end closes what was opened last."""
    slices, points, open_slices = [], defaultdict(list), defaultdict(list)
    for time, event in sorted(events, key=lambda each: each[0]):
        track = tracks[event.track_uuid]
        if event.type == event.TYPE_COUNTER:
            points[track.name].append((time, event.counter_value))
        elif event.type == event.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid].append((time, event))
        else:
            start, begun = open_slices[event.track_uuid].pop()
            slices.append(_slice(begun, start, time, tracks, interned))
    assert not any(open_slices.values()), "a slice without an end"
    return slices, tracks, dict(points)


def _slice(event: Any, start: int, stop: int, tracks: dict[int, Any], interned: dict[tuple[str, int], str]) -> Slice:
    track = tracks[event.track_uuid]
    process = tracks[track.parent_uuid].process.process_name
    told = {}
    for said in event.debug_annotations:
        value = getattr(said, said.WhichOneof("value"))
        if said.WhichOneof("value") == "string_value_iid":
            value = interned["debug_annotation_string_values", value]
        told[interned["debug_annotation_names", said.name_iid]] = value
    return Slice(
        process,
        track.name,
        start,
        stop,
        interned["event_names", event.name_iid],
        interned["event_categories", event.category_iids[0]],
        told,
        tuple(event.flow_ids),
        tuple(event.terminating_flow_ids),
    )


def counted(items: Any) -> Counter[Any]:
    return Counter(items)

"""Slices, counters and tracks as packets of a Perfetto trace.

Field numbers are those of Perfetto's `protos/perfetto/trace/trace_packet.proto` and, in the same folder, of
`track_event/track_event.proto`, `track_descriptor.proto`, `process_descriptor.proto`, `counter_descriptor.proto`,
`debug_annotation.proto` and `interned_data/interned_data.proto`. All packets belong to one sequence, so a text is
written once and then referred to by its number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO, Final

from lostflops.show.export.protobuf import TIME_BYTES, double, fixed64, message, number, tag, text, varint

Told = str | int | float | bool | None

_TIME: Final = tag(8, 0)
_SEQUENCE: Final = number(10, 1)
_KNOWS: Final = _SEQUENCE + number(13, 2)
"""On the sequence, and needs what was interned before: SEQ_NEEDS_INCREMENTAL_STATE."""
_STARTS: Final = _SEQUENCE + number(13, 1)
_EVENT: Final = tag(11, 2)
_TOLD: Final = tag(4, 2)
_WHOLE: Final = tag(4, 0)
_BEGIN, _END, _COUNT = number(9, 1), number(9, 2), number(9, 4)
_BOOTTIME, _REALTIME = 6, 1
_EXPLICIT, _BY_KEY, _BYTES = 3, 3, 3
_MOST_INTERNED: Final = 200_000
"""At most this many texts are numbered; later ones are written out, so that memory stays bounded."""

CATEGORIES, NAMES, KEYS, TEXTS = 1, 2, 3, 29
"""Fields of InternedData."""


@dataclass(frozen=True, slots=True)
class TrackPlace:
    """Place of a track below its parent."""

    parent: int
    name: str
    order: int
    """Its place among the tracks of its parent."""
    key: str = ""
    """Tracks with the same key are drawn as one."""
    about: str = ""


class Packets:
    """A trace that is written to a stream packet by packet, and counts what it wrote."""

    def __init__(self, stream: BinaryIO, start: int) -> None:
        self._write = stream.write
        self._numbers: dict[tuple[int, str], int] = {}
        self._told: dict[tuple[str, Told], bytes] = {}
        self._keys: dict[str, bytes] = {}
        self.slices = self.tracks = self.points = 0
        # Times are those of the calendar: both clocks show the same.
        clocks = (message(1, number(1, clock) + number(2, start)) for clock in (_BOOTTIME, _REALTIME))
        self._packet(message(6, b"".join(clocks) + number(2, _BOOTTIME)) + _STARTS)

    def process(self, track: int, pid: int, name: str, labels: Iterable[str], about: str) -> None:
        """Write a group of tracks. `pid` is not 0, which Perfetto takes for the idle process."""
        said = number(1, pid) + number(3, pid) + text(6, name) + b"".join(text(8, label) for label in labels)
        self._describe(number(1, track) + message(3, said) + number(11, _EXPLICIT) + text(14, about))

    def track(self, track: int, place: TrackPlace) -> None:
        self._describe(number(1, track) + self._place(place))

    def counter(self, track: int, place: TrackPlace) -> None:
        """Write a track of bytes over time."""
        self._describe(number(1, track) + self._place(place) + message(8, number(3, _BYTES)))

    def begin(self, begins: bytes, time: bytes, body: bytes) -> None:
        """Write the begin of a slice. `begins` comes from the function of this name, `time` is a varint of nine
        bytes."""
        self.slices += 1
        size = len(begins) + len(body)
        before, behind = _FRAMES[size] if size < len(_FRAMES) else _frame(size)
        self._write(b"".join((before, time, behind, begins, body, _KNOWS)))

    def end(self, ends: tuple[bytes, bytes], time: bytes) -> None:
        self._write(ends[0] + time + ends[1])

    def point(self, track: bytes, time: bytes, value: int) -> None:
        self.points += 1
        self._event(time, _COUNT + track + number(30, value))

    def encode_name(self, name: str) -> bytes:
        """Encode the name of a slice."""
        known = self._number(NAMES, name)
        return number(10, known) if known else text(23, name)

    def of_category(self, category: str) -> bytes:
        known = self._number(CATEGORIES, category)
        return number(3, known) if known else text(22, category)

    def encode_value(self, name: str, value: Told) -> bytes:
        """Encode a value of a slice with its name; return nothing if the value is None."""
        if value is None:
            return b""
        if type(value) is int:
            said = self._encode_whole_key(name) + varint(value)
            return _TOLD + varint(len(said)) + said
        if (name, value) not in self._told:
            if len(self._told) > _MOST_INTERNED:
                self._told.clear()
            self._told[name, value] = message(4, self._key(name) + self._value(value))
        return self._told[name, value]

    def _encode_whole_key(self, name: str) -> bytes:
        """Encode the key of a whole number, which follows."""
        if (found := self._keys.get(name)) is None:
            found = self._keys[name] = self._key(name) + _WHOLE
        return found

    def _key(self, name: str) -> bytes:
        return number(1, self._number(KEYS, name))

    def _value(self, value: str | float | bool) -> bytes:
        if isinstance(value, bool):
            return number(2, value)
        if isinstance(value, float):
            return double(5, value)
        known = self._number(TEXTS, value)
        return number(17, known) if known else text(6, value)

    def _number(self, field: int, value: str) -> int:
        """Return the number of an interned text, from 1; 0 if there are too many."""
        found = self._numbers.get((field, value), 0)
        if not found and (len(self._numbers) < _MOST_INTERNED or field == KEYS):
            found = self._numbers[field, value] = len(self._numbers) + 1
            self._packet(message(12, message(field, number(1, found) + text(2, value))) + _KNOWS)
        return found

    def _place(self, place: TrackPlace) -> bytes:
        parts = number(5, place.parent) + text(2, place.name) + number(12, place.order)
        if place.key:
            parts += number(15, _BY_KEY) + text(16, place.key)
        return parts + (text(14, place.about) if place.about else b"")

    def _describe(self, content: bytes) -> None:
        self.tracks += 1
        self._packet(message(60, content) + _SEQUENCE)

    def _event(self, time: bytes, event: bytes) -> None:
        before, behind = _frame(len(event))
        self._write(b"".join((before, time, behind, event, _KNOWS)))

    def _packet(self, content: bytes) -> None:
        self._write(b"\n" + varint(len(content)) + content)


def _frame(size: int) -> tuple[bytes, bytes]:
    """Return the bytes before the time of an event of this size, and those between the time and the event."""
    behind = _EVENT + varint(size)
    whole = len(_TIME) + TIME_BYTES + len(behind) + size + len(_KNOWS)
    return b"\n" + varint(whole) + _TIME, behind


_FRAMES: Final = tuple(map(_frame, range(1024)))
"""Frames of nearly all events: looking them up is faster."""


def begins(track: int) -> bytes:
    """Return the first bytes of every slice of a track."""
    return _BEGIN + on(track)


def ends(track: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after the time at which a slice of a track ends."""
    event = _END + on(track)
    before, behind = _frame(len(event))
    return before, behind + event + _KNOWS


def on(track: int) -> bytes:
    """Encode the track of an event."""
    return number(11, track)


def flow(number_of_flow: int, *, ends: bool = False) -> bytes:
    """Encode an arrow that goes through a slice, or ends in it."""
    return fixed64(48 if ends else 47, number_of_flow)

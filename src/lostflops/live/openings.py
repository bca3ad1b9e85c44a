"""First frames of sessions that are open at a place of a long file: their identities and their groups.

A file holds attempt after attempt, so the place where the open sessions begin is found by binary search.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from lostflops.collect.capture import Frame, FrameReader

_CHUNK: Final = 64 << 10
_MOST_READ: Final = 64 << 20
_MOST_READ_FOR_GROUPS: Final = 8 << 20
"""Bytes after the last opening in which groups are searched for: sessions of one attempt open together, and report
their groups soon."""


def openings(file: BinaryIO, place: int, wanted: set[str]) -> Iterator[Frame]:
    """Yield first frames of the `wanted` sessions, which are open at `place`, cut to what holds for a whole session."""
    if not wanted:
        return
    low, high = 0, place
    while high - low > _CHUNK:
        middle = (low + high) // 2
        if _session_at(file, middle) in wanted:
            high = middle
        else:
            low = middle
    yield from _first_frames(file, low, place, wanted)


def _session_at(file: BinaryIO, place: int) -> str | None:
    """Return the session of the first whole frame after a place; None if there is no frame."""
    file.seek(place)
    reader = FrameReader()
    while data := file.read(_CHUNK):
        for frame in reader.feed(data):
            return frame.session
    return None


def _first_frames(file: BinaryIO, start: int, stop: int, wanted: set[str]) -> Iterator[Frame]:
    file.seek(start)
    reader = FrameReader()
    unopened, groupless = set(wanted), set(wanted)
    stop = min(stop, start + _MOST_READ)
    while groupless and file.tell() < stop and (data := file.read(_CHUNK)):
        for frame in reader.feed(data):
            told = (
                [record for record in map(_about_session, frame.records) if record] if frame.session in wanted else []
            )
            if told:
                yield Frame(frame.rank, frame.session, frame.first, 0, told)
            if unopened and any(record["kind"] == "session" for record in told):
                unopened.discard(frame.session)
                stop = stop if unopened else min(stop, file.tell() + _MOST_READ_FOR_GROUPS)
            if any(record["kind"] != "session" for record in told):
                groupless.discard(frame.session)


def _about_session(record: object) -> dict[str, Any] | None:
    """Return a record cut to what holds for a whole session: who it is, the members of its groups; None if nothing."""
    if not isinstance(record, dict):
        return None
    if record.get("kind") == "session" or (record.get("kind") == "job" and record.get("key") == "groups"):
        return record
    if record.get("kind") == "collectives" and record.get("groups"):
        return {**record, "entries": [], "lost": 0}
    return None

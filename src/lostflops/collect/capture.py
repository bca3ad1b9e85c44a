"""The contract between the collector and its readers: names and framing of a capture's files.

A capture is a folder, `capture` inside the run:

    rank-00003.capture          frames of records, appended by the process that is rank 3, attempt after attempt
    host-node7.capture          the same frames of all ranks of a host, if one writer per host gathers them
    rank-00003.w0001.parts      deep window 1 of rank 3, reduced to rows by its host (`ingest/common/reduced_trace.py`)
    rank-00003.w0001.json.gz    the same as a Kineto trace: if it could not be reduced, or is kept too
    windows/0001.json           window 1: which steps, which ranks (see `WindowRequest`)

A frame is a magic word, the rank, the length and the CRC-32 of its payload, then the payload: one JSON object

    {"session": "...", "first": 17, "dropped": 0, "records": [{"kind": "step", ...}, ...]}

A session is one process from its first frame to its end; its records are numbered from 0, and `first` is the number of
the frame's first. `dropped` counts the records that the session lost so far because its ring was full or a write
failed; they have no numbers. Records in a frame with a valid CRC were acknowledged; a process that is killed while it
writes leaves a torn frame, which is skipped. Only the standard library and our limits are used here: the training job
imports it.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar

from lostflops.core.limits import CHECKS_PER_BYTE, LARGEST_FRAME

FOLDER: Final = "capture"
SUFFIX: Final = ".capture"
WINDOWS: Final = "windows"
FLIGHT_PREFIX: Final = "flight_rank_"
ANOMALIES: Final = "anomalies"
"""Folder of a run, beside that of its capture, with what a job that watched itself noticed."""
VERSION: Final = 1
BEGAN, ENDED, FAILED, COMMAND = "began", "ended", "failed", "command"
COMPILATION, OPTIMIZER, STOPPED = "compilation", "optimizer", "stopped"
"""Keys of facts: when a process began, how it ended, the same as its launcher saw it, when its command began and ended,
what torch.compile compiled, the optimizers that kinds of steps are made of, and when the collector stopped."""

_MAGIC: Final = b"\x89LFC"
_HEADER: Final = struct.Struct("<4sIII")
_RAW, _REDUCED = ".json.gz", ".parts"
_TRACE: Final = re.compile(r"rank-(\d+)\.w(\d+)\.(?:json\.gz|parts)")
UNFINISHED_STEP: Final = "lostflops_unfinished_step"
"""Field of a trace: number of the step in which the program ended."""
_UNFINISHED: Final = re.compile(r"rank-\d+\.w\d+\.json(?:\.\d+)?(?:\.part|(?<=\d))")


@dataclass(frozen=True, slots=True)
class Frame:
    """A chunk of records of one rank that arrived whole."""

    rank: int
    session: str
    first: int
    dropped: int
    records: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """A deep window on the steps `first` to `first + steps - 1`, counted from 0."""

    window: int
    first: int
    steps: int
    ranks: str = "all"
    """`all`, `hosts` (the first rank of each host) or numbers, such as `0,8,16`."""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> WindowRequest:
        """Read a request; raise ValueError if the data is not a request."""
        try:
            found = json.loads(data)
            return cls(int(found["window"]), int(found["first"]), int(found["steps"]), str(found["ranks"]))
        except (KeyError, TypeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            raise ValueError(f"not a window request: {error!r}") from None


def rank_file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank:05d}{SUFFIX}"


def host_file(folder: Path, host: str) -> Path:
    return folder / f"host-{re.sub(r'[^A-Za-z0-9._-]', '_', host)}{SUFFIX}"


def flight_file(folder: Path, rank: int) -> Path:
    """Return the place of the Flight Recorder dump of a rank whose step does not end."""
    return folder / f"{FLIGHT_PREFIX}{rank}"


def trace_file(folder: Path, rank: int, window: int) -> Path:
    return folder / f"rank-{rank:05d}.w{window:04d}{_RAW}"


def written_trace(folder: Path, rank: int, window: int) -> Path | None:
    """Return the trace of a window that exists, reduced rather than raw; None if neither exists."""
    raw = trace_file(folder, rank, window)
    return next((path for path in (reduced_form(raw), raw) if path.exists()), None)


class _Named(Protocol):
    """A path of a file system or of an object store."""

    @property
    def name(self) -> str: ...

    def with_name(self, name: str) -> Self: ...


N = TypeVar("N", bound=_Named)


def reduced_form(trace: N) -> N:
    """Return the path of the reduced trace that belongs to a raw one.

    >>> reduced_form(Path("rank-00003.w0001.json.gz")).name
    'rank-00003.w0001.parts'
    """
    return trace.with_name(trace.name.removesuffix(_RAW) + _REDUCED)


def is_raw(name: str) -> bool:
    return name.endswith(_RAW)


def trace_of(name: str) -> tuple[int, int] | None:
    """Return rank and window from the file name of a raw or reduced trace; None if it is not a trace.

    >>> trace_of("rank-00003.w0001.json.gz"), trace_of("rank-00003.w0001.parts")
    ((3, 1), (3, 1))
    """
    found = _TRACE.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def is_unfinished(name: str) -> bool:
    """Return whether a file is a trace that is still being made, or was when its process ended.

    >>> is_unfinished("rank-00003.w0001.json.8712"), is_unfinished("rank-00003.w0001.json.8712.part")
    (True, True)
    >>> is_unfinished("rank-00003.w0001.json.gz"), is_unfinished("rank-00003.w0001.json")
    (False, False)
    """
    return _UNFINISHED.fullmatch(name) is not None


def request_file(folder: Path, window: int) -> Path:
    return folder / WINDOWS / f"{window:04d}.json"


def frame_bytes(rank: int, session: str, first: int, dropped: int, records: list[dict[str, Any]]) -> bytes:
    document = {"session": session, "first": first, "dropped": dropped, "records": records}
    payload = json.dumps(document, separators=(",", ":")).encode()
    return _HEADER.pack(_MAGIC, rank, len(payload), _checksum(rank, payload)) + payload


def recognises(head: bytes) -> bool:
    return head.startswith(_MAGIC)


@dataclass(slots=True)
class FrameReader:
    """A reader that takes bytes as they arrive and yields whole frames; damaged stretches are skipped and counted.

    A frame that is not whole yet stays in the buffer, so that a growing file can be followed.
    """

    damaged: int = 0
    """Number of stretches between whole frames from which no frame could be read."""
    _arrived: int = 0
    _checked_in_vain: int = 0
    """Bytes that a header stated as its payload, but that are not a frame."""
    _buffer: bytes = b""
    _place: int = 0
    _in_damage: bool = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._buffer = self._buffer[self._place :] + data
        self._place = 0
        self._arrived += len(data)
        yield from self._whole_frames()

    def finish(self) -> Iterator[Frame]:
        """Yield the frames after a torn frame whose stated length goes past the end of the file."""
        while self.pending:
            self._skip(1)
            yield from self._whole_frames()

    @property
    def pending(self) -> int:
        """Number of bytes at the end that are not a whole frame yet."""
        return len(self._buffer) - self._place

    def _whole_frames(self) -> Iterator[Frame]:
        while self._seek():
            frame = self._take()
            if frame is not None:
                yield frame

    def _seek(self) -> bool:
        """Go to the next frame; return False if it is not whole yet."""
        at = self._buffer.find(_MAGIC, self._place)
        found = at if at >= 0 else max(self._place, len(self._buffer) - len(_MAGIC) + 1)
        self._note_damage(found > self._place)
        self._place = found
        if at < 0 or self.pending < _HEADER.size:
            return False
        length = self._header()[1]
        return length > LARGEST_FRAME or self.pending >= _HEADER.size + length

    def _header(self) -> tuple[int, int, int]:
        _, rank, length, checksum = _HEADER.unpack_from(self._buffer, self._place)
        return rank, length, checksum

    def _take(self) -> Frame | None:
        rank, length, checksum = self._header()
        start = self._place + _HEADER.size
        payload = self._buffer[start : start + length]
        frame = (
            _decode_frame(rank, payload) if length <= LARGEST_FRAME and _checksum(rank, payload) == checksum else None
        )
        if frame is None:
            self._skip_false_header(length if length <= LARGEST_FRAME else 0)
            return None
        self._place = start + length
        self._in_damage = False
        return frame

    def _skip_false_header(self, length: int) -> None:
        """Skip a header whose payload is not a frame; look for frames in that payload only within the budget."""
        self._checked_in_vain += length
        is_affordable = self._checked_in_vain <= LARGEST_FRAME + CHECKS_PER_BYTE * self._arrived
        self._skip(1 if is_affordable else _HEADER.size + length)

    def _skip(self, count: int) -> None:
        self._note_damage(True)
        self._place += count

    def _note_damage(self, is_damage: bool) -> None:
        if is_damage and not self._in_damage:
            self.damaged += 1
        self._in_damage = self._in_damage or is_damage


def read_frames(path: Path) -> tuple[list[Frame], int]:
    """Return all whole frames of a file, and the number of its damaged stretches."""
    reader = FrameReader()
    frames = list(reader.feed(path.read_bytes()))
    frames += reader.finish()
    return frames, reader.damaged


def _decode_frame(rank: int, payload: bytes) -> Frame | None:
    """Return the frame in a payload; None if the payload lacks what a frame must have."""
    try:
        text = payload.decode()
        document: Any = json.loads(text)
        if "\\ud" in text or "\\uD" in text:  # half a surrogate pair is valid JSON and no text
            document = json.loads(json.dumps(document, ensure_ascii=False).encode(errors="replace"))
        session, first, dropped, records = (document[key] for key in ("session", "first", "dropped", "records"))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(session, str) or not isinstance(records, list):
        return None
    counts = all(type(count) is int and 0 <= count < 1 << 62 for count in (first, dropped))
    return Frame(rank, session, first, dropped, records) if counts else None


def _checksum(rank: int, payload: bytes) -> int:
    return zlib.crc32(payload, rank & 0xFFFFFFFF)

"""Follow the files of a capture: what was appended since the last look, as whole frames.

Files appear, grow and are begun again; an incomplete frame waits for its rest. A file that is long when it is first
seen is read from near its end: the history of a week-long job is not needed to show its present.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from lostflops.collect.capture import SUFFIX, Frame, FrameReader
from lostflops.live.openings import openings

RANK_TAIL: Final = 128 << 10
HOST_TAIL: Final = 8 << 20
"""Bytes that are read from the end of a long file when it is first seen: of one rank's file, and of a host's."""
_CHUNK: Final = 1 << 20


@dataclass(slots=True)
class _Followed:
    inode: int
    place: int = 0
    reader: FrameReader = field(default_factory=FrameReader)
    begun_at: int = 0
    """Place where reading began; what is before it was skipped."""


@dataclass(slots=True, kw_only=True)
class Follower:
    """A reader of growing files that continues where it stopped."""

    folder: Path
    is_whole: bool = False
    """Whether files are read from their beginning, however long they are."""
    rank_tail: int = 0
    """Bytes to read from the end of a rank's long file; 0 for `RANK_TAIL`."""
    skipped: int = 0
    """Bytes at the beginning of long files that were not read."""
    _files: dict[str, _Followed] = field(default_factory=dict)
    _damaged: int = 0
    """Damaged stretches in files that were begun again since."""

    @property
    def files(self) -> int:
        return len(self._files)

    @property
    def damaged(self) -> int:
        """Stretches from which no frame could be read; a frame in whose middle reading began does not count."""
        return self._damaged + sum(max(0, one.reader.damaged - (one.begun_at > 0)) for one in self._files.values())

    def poll(self) -> Iterator[Frame]:
        """Yield the frames that became whole since the last poll; those of one file in its order."""
        try:
            with os.scandir(self.folder) as entries:
                found = sorted((entry.name, entry.stat()) for entry in entries if entry.name.endswith(SUFFIX))
        except FileNotFoundError:
            return
        for name, state in found:
            followed = self._files.get(name)
            if followed is None or followed.inode != state.st_ino or state.st_size < followed.place:
                followed = self._begin(name, state)
            if state.st_size > followed.place:
                yield from self._read(self.folder / name, followed)

    def _begin(self, name: str, state: os.stat_result) -> _Followed:
        if name in self._files:
            self._damaged += self._files[name].reader.damaged
        tail = HOST_TAIL if name.startswith("host-") else self.rank_tail or RANK_TAIL
        skipped = 0 if self.is_whole or state.st_size <= 2 * tail else state.st_size - tail
        self.skipped += skipped
        self._files[name] = _Followed(state.st_ino, skipped, begun_at=skipped)
        return self._files[name]

    def _read(self, path: Path, followed: _Followed) -> Iterator[Frame]:
        with path.open("rb") as file:
            if followed.begun_at and followed.place == followed.begun_at:
                yield from _take_up(file, followed)
            file.seek(followed.place)
            while data := file.read(_CHUNK):
                followed.place += len(data)
                yield from followed.reader.feed(data)


def _take_up(file: BinaryIO, followed: _Followed) -> Iterator[Frame]:
    """Yield the frames at the end of a long file, and first those that say who its sessions are."""
    file.seek(followed.begun_at)
    data = file.read()
    followed.place += len(data)
    frames = list(followed.reader.feed(data))
    opened = {frame.session for frame in frames if frame.first == 0}
    yield from openings(file, followed.begun_at, {frame.session for frame in frames} - opened)
    yield from frames

"""One rank of an Nsight Systems export while its tables are read: its recording, its lanes, its losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.ingest.common.columns import NULL, NULL32
from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.ingest.formats.nsys.file import Rows
from lostflops.ingest.formats.nsys.ranks import ProcessDevice
from lostflops.ingest.timeline.recording import RecordedLane, Recording

_FARTHEST: Final = 1 << 61
_NO_STREAM: Final = 0xFFFFFFFF
"""A call that does not wait for a particular stream names this stream."""

Codes = npt.NDArray[np.int64]


class NsysRank:
    """Receives rows as columns of integers, some at a time, and adds them to the recording."""

    def __init__(self, place: ProcessDevice, vocabulary: Vocabulary, folder: str) -> None:
        self.place = place
        self.recording = Recording(vocabulary=vocabulary, spool_folder=folder)
        self._lanes: dict[tuple[int, ...], int] = {}
        self.first = _FARTHEST

    def keep_timed(self, rows: Rows) -> Rows:
        """Return the rows that have a start and an end in order, with `dur`; the others are counted."""
        start, stop = rows["start"], rows["end"]
        readable = (start != NULL) & (stop != NULL)
        near = readable & (np.abs(start) < _FARTHEST) & (np.abs(stop) < _FARTHEST)
        good = near & (stop >= start)
        losses = self.recording.losses
        losses["events_without_time"] += int((~readable).sum())
        losses["out_of_range_times"] += int((readable & ~near).sum())
        losses["negative_durations"] += int((near & (stop < start)).sum())
        kept = {name: values[good] for name, values in rows.items()} if not good.all() else dict(rows)
        kept["dur"] = kept["end"] - kept["start"]
        if kept["start"].size:
            self.first = min(self.first, int(kept["start"].min()))
        return kept

    def streams(self, rows: Rows) -> npt.NDArray[np.int32]:
        """Return the lanes of the streams that rows name; each context numbers its own streams."""
        device = rows.get("deviceId", np.full(rows["streamId"].size, self.place.device))
        return self._lane_codes((rows["contextId"], rows["streamId"], device), _stream)

    def threads(self, rows: Rows) -> npt.NDArray[np.int32]:
        return self._lane_codes((rows["globalTid"],), _thread)

    def thread(self, number: int) -> int:
        """Return the lane of a thread by its `globalTid`."""
        return int(self.threads({"globalTid": np.array([number])})[0])

    def name_threads(self, names: dict[int, str]) -> None:
        for key, code in self._lanes.items():
            if len(key) == 1:
                self.recording.lanes[code].name = names.get(key[0])

    def _lane_codes(
        self, columns: Sequence[Codes], make: Callable[[tuple[int, ...]], RecordedLane]
    ) -> npt.NDArray[np.int32]:
        keys, inverse = distinct_rows(*columns)
        for key in keys:
            if key not in self._lanes:
                self._lanes[key] = len(self.recording.lanes)
                self.recording.lanes.append(make(key))
        return np.array([self._lanes[key] for key in keys], np.int32)[inverse]


def distinct_rows(*columns: Codes) -> tuple[list[tuple[int, ...]], Codes]:
    """Return the different rows of some columns, and which of them each row is.

    >>> distinct_rows(np.array([7, 2, 7]), np.array([0, 0, 0]))
    ([(2, 0), (7, 0)], array([1, 0, 1]))
    """
    code = np.zeros(columns[0].size, np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        code = np.unique(code * max(values.size, 1) + inverse, return_inverse=True)[1]
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    rows = zip(*(column[first].tolist() for column in columns), strict=True)
    return list(rows), inverse


def small(values: Codes) -> npt.NDArray[np.int32]:
    """Return the values that fit into 32 bits; others are null."""
    return np.where((values > NULL32) & (values < -NULL32), values, NULL32).astype(np.int32)


def _stream(key: tuple[int, ...]) -> RecordedLane:
    _, stream, device = key
    is_known = stream not in (NULL, _NO_STREAM)
    fits = NULL32 < device < -NULL32
    return RecordedLane(kind="stream", device=device if fits else None, stream=stream if is_known else None)


def _thread(key: tuple[int, ...]) -> RecordedLane:
    (thread,) = key
    if thread == NULL:
        return RecordedLane(kind="thread")
    return RecordedLane(kind="thread", process=thread >> 24 & 0xFFFFFF, thread=thread & 0xFFFFFF)

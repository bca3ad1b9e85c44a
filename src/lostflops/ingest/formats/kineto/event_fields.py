"""Fields of events of one category as columns: from decoded objects, or from the rows of a scan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Raw

from lostflops.ingest.common.columns import Array, Texts, integers, numbers, whole_numbers
from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.ingest.formats.kineto.schema import Args, Event

_LIBRARY_FRAME: Final = re.compile(r"/(?:site-packages|dist-packages|lib/python[\d.]+)/|^<|^torch/")

LaneKey = tuple[Any, Any, Any]
"""`t` with process and thread, or `s` with device and stream."""
LaneCodes = Callable[[list[LaneKey]], npt.NDArray[np.int32]]


class EventFields(Protocol):
    """Fields by the names that they have in `schema`."""

    def __len__(self) -> int: ...

    def only(self, rows: npt.NDArray[np.intp]) -> EventFields: ...

    def integers(self, field: str) -> npt.NDArray[np.int64]: ...

    def whole_numbers(self, field: str) -> Array: ...

    def numbers(self, field: str) -> npt.NDArray[np.float64]: ...

    def details(self, field: str) -> npt.NDArray[np.uint32]:
        """Return the codes of a field in the vocabulary's details."""

    def grids(self, field: str) -> npt.NDArray[np.uint32]: ...

    def sources(self) -> npt.NDArray[np.uint32] | None:
        """Return the codes of the source lines in call stacks; None if there are no call stacks."""

    def threads(self) -> npt.NDArray[np.int32]:
        """Return the lane of process and thread."""

    def streams(self) -> npt.NDArray[np.int32]:
        """Return the lane of device and stream."""

    def is_collective(self) -> npt.NDArray[np.bool_]: ...

    def names(self) -> list[str]: ...

    def args_of(self, rows: npt.NDArray[np.intp]) -> Iterable[tuple[int, Args]]:
        """Return some rows, each with its arguments."""


class ObjectFields:
    """Fields of decoded events."""

    def __init__(self, events: list[Event], vocabulary: Vocabulary, lane_codes: LaneCodes) -> None:
        self._events, self._vocabulary, self._lane_codes = events, vocabulary, lane_codes
        self._args = [event.args for event in events]

    def __len__(self) -> int:
        return len(self._events)

    def only(self, rows: npt.NDArray[np.intp]) -> ObjectFields:
        return ObjectFields([self._events[row] for row in rows.tolist()], self._vocabulary, self._lane_codes)

    def integers(self, field: str) -> npt.NDArray[np.int64]:
        return integers(self._values(field))

    def whole_numbers(self, field: str) -> Array:
        return whole_numbers(self._values(field))

    def numbers(self, field: str) -> npt.NDArray[np.float64]:
        return numbers(self._values(field))

    def details(self, field: str) -> npt.NDArray[np.uint32]:
        return self._codes(self._vocabulary.details, field)

    def grids(self, field: str) -> npt.NDArray[np.uint32]:
        return self._codes(self._vocabulary.grids, field)

    def sources(self) -> npt.NDArray[np.uint32] | None:
        stacks = self._values("call_stack")
        return self._vocabulary.sources.codes(map(source_line, stacks), len(stacks)) if any(stacks) else None

    def threads(self) -> npt.NDArray[np.int32]:
        return self._lane_codes([("t", event.pid, event.tid) for event in self._events])

    def streams(self) -> npt.NDArray[np.int32]:
        return self._lane_codes([stream_key(e.pid, e.tid, e.args.device, e.args.stream) for e in self._events])

    def is_collective(self) -> npt.NDArray[np.bool_]:
        return np.array([args.collective is not None for args in self._args], np.bool_)

    def names(self) -> list[str]:
        return [event.name for event in self._events]

    def args_of(self, rows: npt.NDArray[np.intp]) -> Iterable[tuple[int, Args]]:
        return [(row, self._args[row]) for row in rows.tolist()]

    def _values(self, field: str) -> list[Any]:
        return list(map(attrgetter(field), self._args))

    def _codes(self, texts: Texts, field: str) -> npt.NDArray[np.uint32]:
        # One join and one split are faster than a bytes() for each; valid JSON holds no NUL.
        return texts.codes(b"\0".join(self._values(field)).split(b"\0"), len(self._args))


def stream_key(process: Any, thread: Any, device: Any, stream: Any) -> LaneKey:
    """Return device and stream from the arguments; MTIA and device annotations have them as process and thread."""
    return "s", process if device is None else device, thread if stream is None else stream


def source_line(stack: Raw | bytes) -> str:
    """Return the innermost frame of the user's own code, otherwise the innermost of all."""
    if not stack:
        return ""
    try:
        text = msgspec.json.decode(stack, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    if not text:
        return ""
    frames = text.split(";")
    return next((frame for frame in frames if not _LIBRARY_FRAME.search(frame)), frames[0]).strip()

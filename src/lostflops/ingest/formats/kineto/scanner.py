"""Pieces of a trace as columns: the tables that the compiled scan keeps from piece to piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from lostflops.ingest.common.columns import NULL, Texts
from lostflops.ingest.formats.kineto import scan
from lostflops.ingest.formats.kineto.scan import ScanColumn, State, ValueKind
from lostflops.ingest.formats.kineto.schema import Args, Event, decode_events

Rows = npt.NDArray[np.intp]

_EVENT_KINDS: Final = {
    "ph": ValueKind.PHASE,
    "cat": ValueKind.TEXT,
    "name": ValueKind.TEXT,
    "ts": ValueKind.TIME,
    "dur": ValueKind.TIME,
    "pid": ValueKind.LANE,
    "tid": ValueKind.LANE,
    "args": ValueKind.ARGS,
}
_EVENT_COLUMNS: Final = {
    "ph": ScanColumn.PHASE,
    "cat": ScanColumn.CATEGORY,
    "name": ScanColumn.NAME,
    "ts": ScanColumn.START,
    "dur": ScanColumn.DURATION,
    "pid": ScanColumn.PID,
    "tid": ScanColumn.TID,
}
_ARGS_COLUMNS: Final = {
    "external_id": ScanColumn.EXTERNAL_ID,
    "old_external_id": ScanColumn.OLD_EXTERNAL_ID,
    "correlation": ScanColumn.CORRELATION,
    "sequence": ScanColumn.SEQUENCE,
    "forward_thread": ScanColumn.FORWARD_THREAD,
    "registers": ScanColumn.REGISTERS,
    "shared_memory": ScanColumn.SHARED_MEMORY,
    "bytes": ScanColumn.BYTES,
    "size": ScanColumn.SIZE,
    "wait_stream": ScanColumn.WAIT_STREAM,
    "wait_correlation": ScanColumn.WAIT_CORRELATION,
    "inputs": ScanColumn.INPUTS,
    "dtypes": ScanColumn.DTYPES,
    "shapes": ScanColumn.SHAPES,
    "grid": ScanColumn.GRID,
    "block": ScanColumn.BLOCK,
    "call_stack": ScanColumn.CALL_STACK,
    "collective": ScanColumn.COLLECTIVE,
    "device": ScanColumn.DEVICE,
    "stream": ScanColumn.STREAM,
}
_ARGS_KINDS: Final = {
    **{
        name: ValueKind.RAW if column >= ScanColumn.INPUTS else ValueKind.INTEGER
        for name, column in _ARGS_COLUMNS.items()
    },
    "bytes": ValueKind.WHOLE,
    "size": ValueKind.WHOLE,
    "wait_stream": ValueKind.WHOLE,
    "wait_correlation": ValueKind.WHOLE,
    "occupancy": ValueKind.DECIMAL,
    "collective": ValueKind.PRESENT,
    "device": ValueKind.LANE,
    "stream": ValueKind.LANE,
}
"""Fields that are not listed are decoded where they are needed."""
_COLUMNS: Final = (_EVENT_COLUMNS, _ARGS_COLUMNS)
_MOST_BYTES: Final = 64 << 20
_SIZES: Final = {
    State.ROWS: State.MOST_ROWS,
    State.HASHES: State.MOST_TEXTS,
    State.ARENA: State.ARENA_BYTES,
    State.LANES: State.MOST_LANES,
}
_UNSET: Final = -1
_REFUSED: Final = -2


class Scanner:
    """Scans pieces of one trace; texts and lanes have the same codes in all of them."""

    def __init__(self) -> None:
        self._state = np.zeros(len(State), np.int64)
        self._text = np.zeros(scan.PADDING, np.uint8)
        self._tables: dict[State, npt.NDArray[Any]] = {}
        self._args = _set_schema(self._keep)
        self._keep(State.EMPTY_ROW, _empty_row())
        self._make_rows(1 << 13)
        self._make_texts(1 << 13)
        self._keep(State.ARENA, np.zeros(1 << 19, np.uint8))
        self._make_lanes(1 << 8)
        self._state[State.USED_TEXTS] = 1  # the empty text
        self.is_exhausted = False
        """Whether the trace has so many different texts that they are better forgotten than kept."""

    def scan(self, piece: bytes) -> Scan | None:
        """Return the events of a piece; None if it must be decoded into objects."""
        address = self._copy(piece)
        while not self.is_exhausted:
            found = scan.scan_events(address, len(piece), self._args, self._state.ctypes.data)
            if found == scan.FULL:
                self._grow()
            elif found < 0 or (self._state[State.NON_ASCII] and not _is_utf8(piece)):
                return None
            else:
                return Scan(piece, self._tables[State.ROWS][:found])
        return None

    def _copy(self, piece: bytes) -> int:
        """Return the address of the piece with zeros after it; the memory is used again for each piece."""
        size = len(piece)
        if self._text.size < size + scan.PADDING:
            self._text = np.zeros(size + size // 8 + scan.PADDING, np.uint8)
        self._text[:size] = np.frombuffer(piece, np.uint8)
        self._text[size : size + scan.PADDING] = 0
        return self._text.ctypes.data

    def raw(self, code: int) -> bytes:
        """Return the bytes of a text."""
        first, end = self._tables[State.STARTS][code : code + 2].tolist()
        return self._tables[State.ARENA][first:end].tobytes()

    def text(self, code: int) -> str:
        """Return a text without its quotes."""
        return msgspec.json.decode(b'"' + self.raw(code) + b'"', type=str)

    def lane(self, code: int) -> list[Any]:
        """Return process, thread, device and stream; None for what is missing."""
        return [self._lane_part(value) for value in self._tables[State.LANES][code].tolist()]

    def _lane_part(self, value: int) -> Any:
        if value == scan.ABSENT:
            return None
        return msgspec.json.decode(self.raw(value - scan.TEXT_LANE)) if value >= scan.TEXT_LANE else value

    def _keep(self, name: State, table: npt.NDArray[Any]) -> None:
        self._tables[name] = table
        self._state[name] = table.ctypes.data
        if name in _SIZES:
            self._state[_SIZES[name]] = len(table)

    def _make_rows(self, count: int) -> None:
        self._keep(State.ROWS, np.zeros((count, len(ScanColumn)), np.int64))

    def _make_texts(self, count: int) -> None:
        for name, size in ((State.HASHES, count), (State.STARTS, count + 1)):
            table = np.zeros(size, np.int64)
            known = self._tables.get(name, table[:0])
            table[: len(known)] = known
            self._keep(name, table)
        self._keep(State.SLOTS, np.zeros(2 * count, np.int64))
        self._state[State.SLOT_MASK] = 2 * count - 1
        scan.place_texts(self._state.ctypes.data)

    def _make_lanes(self, count: int) -> None:
        lanes = np.zeros((count, scan.LANE_PARTS), np.int64)
        known = self._tables.get(State.LANES, lanes[:0])
        lanes[: len(known)] = known
        self._keep(State.LANES, lanes)
        self._keep(State.LANE_SLOTS, np.full(2 * count, _UNSET, np.int64))
        self._state[State.LANE_MASK] = 2 * count - 1
        scan.place_lanes(self._state.ctypes.data)

    def _grow(self) -> None:
        """Double the table that is full."""
        state = self._state.tolist()
        if state[State.USED_ROWS] == state[State.MOST_ROWS]:
            self._make_rows(2 * state[State.MOST_ROWS])
        elif state[State.USED_LANES] == state[State.MOST_LANES]:
            self._make_lanes(2 * state[State.MOST_LANES])
        elif state[State.USED_TEXTS] == state[State.MOST_TEXTS]:
            self._make_texts(2 * state[State.MOST_TEXTS])
        else:
            arena = self._tables[State.ARENA]
            self._keep(State.ARENA, np.concatenate((arena, np.zeros_like(arena))))
        self.is_exhausted = sum(table.nbytes for table in self._tables.values()) > _MOST_BYTES


class Scan(NamedTuple):
    """Events of one piece; valid until the next piece is scanned."""

    piece: bytes
    rows: npt.NDArray[np.int64]
    """By event and `ScanColumn`."""

    def decode(self, rows: Rows) -> list[Event]:
        """Return these events as objects."""
        spans = self.rows[rows, ScanColumn.BEGIN : ScanColumn.END + 1].tolist()
        return decode_events(b"[" + b",".join([self.piece[begin:end] for begin, end in spans]) + b"]")


class CodeMap:
    """Codes of a scanner to codes of someone else, asked for once, in the order in which they first occur."""

    def __init__(self, translate: Callable[[int], int], texts: Texts | None = None) -> None:
        self._translate = translate
        self._texts = texts
        self._known = np.full(1 << 10, _UNSET, np.int64)

    def __getitem__(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if codes.size and int(codes.max()) >= self._known.size:
            more = np.full(2 * int(codes.max()) - self._known.size, _UNSET, np.int64)
            self._known = np.concatenate((self._known, more))
        found = self._known[codes]
        if found.size and found.min() < 0:
            found = self._ask(codes, found)
        return found

    def _ask(self, codes: npt.NDArray[np.int64], found: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        texts = self._texts
        for code in dict.fromkeys(codes[found == _UNSET].tolist()):
            before = texts.refused if texts is not None else 0
            self._known[code] = self._translate(code)
            if texts is not None and texts.refused > before:
                texts.refused, self._known[code] = before, _REFUSED
        found = self._known[codes]
        if texts is not None:  # a text that was refused is refused in every row
            texts.refused += int((found == _REFUSED).sum())
        return np.maximum(found, 0)


def _set_schema(keep: Callable[[State, npt.NDArray[Any]], None]) -> int:
    """Set the keys, with their hash table, and the kind and column of each field; return the field `args`."""
    fields = [(0, key, _EVENT_KINDS.get(name, ValueKind.LATER), name) for name, key in _keys(Event)]
    fields += [(1, key, _ARGS_KINDS.get(name, ValueKind.LATER), name) for name, key in _keys(Args)]
    slots = np.zeros(scan.KEY_SLOTS, np.int64)
    columns = [_UNSET]
    for number, (level, key, _, name) in enumerate(fields, 1):
        at = (len(key) * 37 + key[0] * 7 + key[-1] * 31 + level * 499) % scan.KEY_SLOTS
        while slots[at]:
            at = (at + 1) % scan.KEY_SLOTS
        slots[at] = number
        columns.append(_COLUMNS[level].get(name, _UNSET))
    keys = b"".join(key.ljust(scan.KEY_BYTES, b"\0") for key in (b"", *(field[1] for field in fields)))
    keep(State.KEYS, np.frombuffer(keys + bytes(scan.PADDING), np.uint8))
    keep(State.KEY_SIZES, np.array([0, *(len(field[1]) for field in fields)]))
    keep(State.KEY_LEVELS, np.array([0, *(field[0] for field in fields)]))
    keep(State.KEY_SLOTS, slots)
    keep(State.KINDS, np.array([ValueKind.SKIPPED, *(field[2] for field in fields)], np.int64))
    keep(State.COLUMNS, np.array(columns, np.int64))
    return [field[2] for field in fields].index(ValueKind.ARGS) + 1


def _empty_row() -> npt.NDArray[np.int64]:
    row = np.zeros(len(ScanColumn), np.int64)
    row[ScanColumn.START : ScanColumn.INPUTS] = NULL
    row[ScanColumn.PID :] = scan.ABSENT
    return row


def _keys(struct: type[msgspec.Struct]) -> list[tuple[str, bytes]]:
    return [(field.name, field.encode_name.encode()) for field in msgspec.structs.fields(struct)]


def _is_utf8(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True

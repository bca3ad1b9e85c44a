"""Read plain data out of a pickle without running anything in it.

Python's unpickler calls what the file names; a file to ingest is not to be trusted that far. This
is a small interpreter of its own, for the opcodes that build dict, list, tuple, set, str, bytes,
int, float, bool and None (protocols 2 to 5). There is no opcode in it that could find a class,
call a function or follow a persistent id, so nothing has to be guarded.

Every resource is bounded: input bytes, opcodes, memory of containers, nesting, and the size of the
value when it is walked as a tree (a pickle can share one list a billion times).

    >>> loads(b"\\x80\\x02}X\\x01\\x00\\x00\\x00aK\\x01s.")
    {'a': 1}
"""

import gc
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np

from lostflops.core.errors import BrokenSource
from lostflops.core.limits import DEEPEST_VALUE

MAX_INTEGER_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the size of one kind of file."""

    what: str
    """Name of the kind."""
    input_bytes: int
    opcodes: int
    container_bytes: int
    walked_values: int
    smaller: str
    """How to write a smaller file."""


FLIGHT_RECORDER: Final = Limits(
    what="Flight Recorder dump",
    input_bytes=64 << 20,
    opcodes=3_000_000,
    container_bytes=256 << 20,
    walked_values=20_000_000,
    smaller="Lower TORCH_FR_BUFFER_SIZE, or dump without stack traces.",
)

_CODE_OPCODES = {
    ord(opcode): name
    for opcode, name in {
        "c": "GLOBAL",
        "\x93": "STACK_GLOBAL",
        "i": "INST",
        "o": "OBJ",
        "R": "REDUCE",
        "b": "BUILD",
        "\x81": "NEWOBJ",
        "\x92": "NEWOBJ_EX",
        "\x82": "EXT1",
        "\x83": "EXT2",
        "\x84": "EXT4",
        "P": "PERSID",
        "Q": "BINPERSID",
        "\x97": "NEXT_BUFFER",
        "\x98": "READONLY_BUFFER",
    }.items()
}
_STOP = ord(".")
_MARK = object()
_RECALLS = re.compile(rb"(?:j.{4})+", re.DOTALL)
_RECALL = np.dtype([("opcode", "u1"), ("slot", "<u4")])


def loads(data: bytes, name: str = "the pickle", limits: Limits = FLIGHT_RECORDER) -> Any:
    """Return the value pickled in `data`; `name` is its name in messages.

    Text that is not UTF-8 gets replacement characters: programs name threads and files as they like.
    """
    if len(data) > limits.input_bytes:
        raise BrokenSource(
            f"{name}: {len(data):,} bytes, more than the {limits.input_bytes:,} read from a pickle. {limits.smaller}"
        )
    collecting = gc.isenabled()
    gc.disable()  # millions of new containers, none of them garbage: the collector would take most of the time
    try:
        value = _Machine(data, limits).run()
        _refuse_explosive(value, limits)
    except _RefusedPickle as refusal:
        raise BrokenSource(f"{name}: {refusal}") from None
    except (IndexError, KeyError, struct.error, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise BrokenSource(
            f"{name}: the pickle is damaged or cut short ({type(error).__name__}: {error}). Copy the file again."
        ) from None
    finally:
        if collecting:
            gc.enable()
    return value


class _RefusedPickle(Exception):
    """The pickle may be well-formed, but is more than plain data of a reasonable size."""


class _Machine:
    """The pickle virtual machine, reduced to plain data."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.data = data
        self.limits = limits
        self.at = 0
        self.recalled = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.container_bytes = 0

    def run(self) -> Any:
        data = self.data
        dispatch = _DISPATCH
        size, most = len(data), self.limits.opcodes
        for _ in range(most):
            if self.at >= size:
                raise ValueError("no STOP opcode")
            opcode = data[self.at]
            self.at += 1
            if opcode == _STOP:
                if len(self.stack) != 1 or self.stack[0] is _MARK:
                    raise ValueError("STOP with an unfinished value")
                return self.stack[0]
            action = dispatch.get(opcode)
            if action is None:
                raise _RefusedPickle(_why_refused(opcode, self.at - 1, self.limits.what))
            action(self)
        raise self.too_many_opcodes()

    def too_many_opcodes(self) -> _RefusedPickle:
        return _RefusedPickle(f"more than {self.limits.opcodes:,} opcodes. {self.limits.smaller}")

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise ValueError(f"{count:,} bytes announced at offset {self.at:,}, {len(self.data) - self.at:,} left")
        chunk = self.data[self.at : end]
        self.at = end
        return chunk

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def push_container(self, value: Any, cost: int) -> None:
        self.container_bytes += cost
        most = self.limits.container_bytes
        if self.container_bytes > most:
            raise _RefusedPickle(f"containers of more than {most:,} bytes; no profiler writes such a file.")
        self.stack.append(value)

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value should be")
        return value

    def mark(self) -> None:
        self.marks.append(len(self.stack))
        self.stack.append(_MARK)

    def pop_to_mark(self) -> list[Any]:
        if not self.marks:
            raise ValueError("no mark")
        position = self.marks.pop()
        items = self.stack[position + 1 :]
        del self.stack[position:]
        return items

    def top(self, kind: type) -> Any:
        value = self.stack[-1]
        if type(value) is not kind:
            raise ValueError(f"{type(value).__name__} where a {kind.__name__} should be")
        return value

    def remember(self, slot: int) -> None:
        value = self.stack[-1]
        if value is _MARK:
            raise ValueError("a mark cannot be stored in the memo")
        self.memo[slot] = value

    def recall_many(self) -> None:
        """Push values that were stored in slots of four bytes.

        Stacks of frames are runs of hundreds of these opcodes, and most of a snapshot.
        """
        end = self.at + 4
        if self.data[end : end + 1] != b"j":
            self.stack.append(self.memo[self.number(4)])
            return
        run = _RECALLS.match(self.data, self.at - 1)
        assert run is not None
        slots = np.frombuffer(run.group(), _RECALL)["slot"].tolist()
        self.at = run.end()
        self.recalled += len(slots)
        if self.recalled > self.limits.opcodes:
            raise self.too_many_opcodes()
        self.stack.extend(map(self.memo.__getitem__, slots))

    def integer(self, size: int) -> None:
        if size > MAX_INTEGER_BYTES:
            raise _RefusedPickle(f"an integer of {size:,} bytes; no profiler writes such a file.")
        self.stack.append(int.from_bytes(self.take(size), "little", signed=True))

    def tuple_of(self, count: int) -> None:
        items = self.stack[-count:]
        if len(items) < count or _MARK in items:
            raise ValueError("too few values for a tuple")
        del self.stack[-count:]
        self.push_container(tuple(items), 48 + 8 * count)

    def tuple_from_mark(self) -> None:
        items = self.pop_to_mark()
        self.push_container(tuple(items), 48 + 8 * len(items))

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        if len(items) % 2:
            raise ValueError("a key without a value")
        for key in items[::2]:
            _check_key(key)
        self.container_bytes += 50 * len(items)
        target.update(zip(items[::2], items[1::2], strict=True))

    def append_items(self, items: list[Any]) -> None:
        self.container_bytes += 8 * len(items)
        self.top(list).extend(items)

    def add_items(self, items: list[Any]) -> None:
        for item in items:
            _check_key(item)
        self.container_bytes += 64 * len(items)
        self.top(set).update(items)

    def frozen_set(self) -> None:
        items = self.pop_to_mark()
        for item in items:
            _check_key(item)
        self.push_container(frozenset(items), 216 + 64 * len(items))

    def frame(self) -> None:
        self.take(8)  # a hint on how much to read at once

    def protocol(self) -> None:
        version = self.number(1)
        if version > 5:
            raise _RefusedPickle(f"pickle protocol {version}; 2 to 5 are read. Write the dump again with protocol 4.")


def _check_key(key: Any) -> None:
    # Hashing a tuple walks it, and hashes of floats and long integers can be made to collide:
    # either lets a short file keep a dict busy for hours.
    kind = type(key)
    if kind in (str, bytes, bool, type(None)) or (kind is int and -(1 << 60) < key < 1 << 60):
        return
    raise _RefusedPickle(
        f"a {kind.__name__} as a key of a dict or member of a set; only text, bytes and integers are read."
    )


def _why_refused(opcode: int, offset: int, what: str) -> str:
    if opcode in _CODE_OPCODES:
        return (
            f"it asks for code to be loaded or run ({_CODE_OPCODES[opcode]} at offset {offset:,}). A {what} holds "
            "plain data only: do not open this file with pickle.load, and find out where it comes from."
        )
    return (
        f"opcode {opcode:#04x} at offset {offset:,} is not among those for plain data in pickle protocols 2 to 5. "
        "The file is damaged, or not a pickle."
    )


def _refuse_explosive(root: Any, limits: Limits) -> None:
    """Refuse cycles, deep nesting, and values that are huge once shared parts are written out."""
    depths: dict[int, int] = {}
    sizes: dict[int, int] = {}
    open_ids: set[int] = set()
    pending: list[tuple[Any, bool]] = [(root, False)]
    while pending:
        value, children_done = pending.pop()
        children = _children(value)
        if not children or (id(value) in depths and not children_done):
            continue
        if children_done:
            open_ids.discard(id(value))
            ids = list(map(id, children))
            depth = 1 + max(map(depths.get, ids, repeat(0)))
            size = 1 + sum(map(sizes.get, ids, repeat(1)))
            if depth > DEEPEST_VALUE:
                raise _RefusedPickle(f"nested more than {DEEPEST_VALUE} deep; no profiler writes such a file.")
            if size > limits.walked_values:
                raise _RefusedPickle(f"more than {limits.walked_values:,} values when shared parts are expanded.")
            depths[id(value)], sizes[id(value)] = depth, size
            continue
        if id(value) in open_ids:
            raise _RefusedPickle("it contains itself; no profiler writes such a file.")
        open_ids.add(id(value))
        if len(open_ids) > DEEPEST_VALUE:
            raise _RefusedPickle(f"nested more than {DEEPEST_VALUE} deep; no profiler writes such a file.")
        pending.append((value, True))
        pending += [(child, False) for child in children if type(child) in _CONTAINERS and id(child) not in depths]


_CONTAINERS = (dict, list, tuple)


def _children(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return value.values()
    return value if kind is list or kind is tuple else ()


def _text(width: int) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(machine.take(machine.number(width)).decode("utf-8", "replace"))


def _bytes(width: int) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(machine.take(machine.number(width)))


def _recall(width: int) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(machine.memo[machine.number(width)])


def _constant(value: Any) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(value)


# Opcodes and their meaning: CPython, Lib/pickletools.py.
_DISPATCH: dict[int, Callable[[_Machine], None]] = {
    0x80: _Machine.protocol,
    0x95: _Machine.frame,
    ord("("): _Machine.mark,
    ord("N"): _constant(None),
    0x88: _constant(True),
    0x89: _constant(False),
    ord("J"): lambda machine: machine.integer(4),
    ord("K"): lambda machine: machine.stack.append(machine.number(1)),
    ord("M"): lambda machine: machine.stack.append(machine.number(2)),
    0x8A: lambda machine: machine.integer(machine.number(1)),
    0x8B: lambda machine: machine.integer(machine.number(4)),
    ord("G"): lambda machine: machine.stack.append(struct.unpack(">d", machine.take(8))[0]),
    0x8C: _text(1),
    ord("X"): _text(4),
    0x8D: _text(8),
    ord("C"): _bytes(1),
    ord("B"): _bytes(4),
    0x8E: _bytes(8),
    ord(")"): _constant(()),
    0x85: lambda machine: machine.tuple_of(1),
    0x86: lambda machine: machine.tuple_of(2),
    0x87: lambda machine: machine.tuple_of(3),
    ord("t"): _Machine.tuple_from_mark,
    ord("]"): lambda machine: machine.push_container([], 64),
    ord("}"): lambda machine: machine.push_container({}, 72),
    0x8F: lambda machine: machine.push_container(set(), 224),
    ord("a"): lambda machine: machine.append_items([machine.pop()]),
    ord("e"): lambda machine: machine.append_items(machine.pop_to_mark()),
    ord("s"): lambda machine: machine.set_items([machine.pop(), machine.pop()][::-1]),
    ord("u"): lambda machine: machine.set_items(machine.pop_to_mark()),
    0x90: lambda machine: machine.add_items(machine.pop_to_mark()),
    0x91: _Machine.frozen_set,
    ord("q"): lambda machine: machine.remember(machine.number(1)),
    ord("r"): lambda machine: machine.remember(machine.number(4)),
    0x94: lambda machine: machine.remember(len(machine.memo)),
    ord("h"): _recall(1),
    ord("j"): _Machine.recall_many,
}

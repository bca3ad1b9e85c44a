"""Wire format of protocol buffers: values as bytes, without any message type.

https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt

_VARINT, _FIXED64, _DELIMITED = 0, 1, 2
TIME_BYTES: Final = 9
_LOW: Final = np.arange(0, 7 * TIME_BYTES, 7, dtype=np.int64)
_MORE: Final = np.array([0x80] * (TIME_BYTES - 1) + [0], np.uint8)


def varint(value: int) -> bytes:
    """Encode a number, seven bits per byte and the lowest first; a negative number is taken modulo 2^64.

    >>> varint(1), varint(300), len(varint(-1))
    (b'\\x01', b'\\xac\\x02', 10)
    """
    if 0 <= value < _SHORTS:
        return _SHORT[value]
    if 0 < value < _SHORTS << 14:
        return _HELD[value & _SHORTS - 1] + _SHORT[value >> 14]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return _bytes(value)


def _bytes(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SHORTS: Final = 1 << 14
_SHORT: Final = tuple(_bytes(value) for value in range(_SHORTS))
"""Encodings of nearly all numbers that are not times: looking them up is faster."""
_HELD: Final = tuple(bytes((value & 0x7F | 0x80, value >> 7 | 0x80)) for value in range(_SHORTS))
"""Encodings of the lowest 14 bits of longer numbers."""


def tag(field: int, wire: int) -> bytes:
    return _SHORT[field << 3 | wire]


def number(field: int, value: int) -> bytes:
    return tag(field, _VARINT) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    return tag(field, _FIXED64) + struct.pack("<Q", value)


def double(field: int, value: float) -> bytes:
    return tag(field, _FIXED64) + struct.pack("<d", value)


def message(field: int, content: bytes) -> bytes:
    """Encode a nested message.

    >>> message(1, number(2, 5))
    b'\\n\\x02\\x10\\x05'
    """
    return tag(field, _DELIMITED) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    # Names may come from a file that was no valid text.
    return message(field, value.encode("utf-8", "replace"))


def times(ns: npt.NDArray[np.int64]) -> list[bytes]:
    """Encode each time as a varint of nine bytes, which Unix times in ns have anyway: encoding them together is much
    faster.

    >>> [int.from_bytes(each[:1]) & 0x7F for each in times(np.array([5, 127]))]
    [5, 127]
    """
    assert not ns.size or ns.min() >= 0, "a time before zero"
    spread = ((ns[:, None] >> _LOW) & 0x7F).astype(np.uint8) | _MORE
    held = spread.tobytes()
    return [held[at : at + TIME_BYTES] for at in range(0, len(held), TIME_BYTES)]

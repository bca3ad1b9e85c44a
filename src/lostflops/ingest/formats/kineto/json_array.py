"""Elements of one huge array inside a JSON document, decoded block by block in bounded memory.

A block is cut after the last `}` that is followed by `, {`, and the piece is decoded as an array. JSON has no other
reading of a text that starts at an element and decodes in full, so a cut that decodes is a right cut. If it does not
decode (the pattern was inside a string or a nested array, the array ended, an element is damaged), the structure is
scanned instead.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from lostflops.core.errors import BrokenSource
from lostflops.core.limits import LARGEST_ELEMENT, LARGEST_HEADER

T = TypeVar("T")
Block = TypeVar("Block")

_CUT = re.compile(rb"\}\s*,\s*(?=\{)")
_TEXT_OR_BARE_WORD = re.compile(rb'("(?:[^"\\]++|\\.)*+")|-?(?:nan|infinity|inf)\b', re.IGNORECASE)
_LARGEST_REPAIR = 1 << 20
_MOST_CUT_TRIES = 64
_MOST_OPENINGS = 8
_MOST_STRAY_BRACES = 8
_UNDECODABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_BETWEEN = b" \t\r\n,"

_CLASS = np.zeros(256, np.uint8)
_QUOTE, _OPEN, _CLOSE, _BACKSLASH = 1, 2, 3, 4
_CLASS[ord('"')] = _QUOTE
_CLASS[[ord("{"), ord("[")]] = _OPEN
_CLASS[[ord("}"), ord("]")]] = _CLOSE
_CLASS[ord("\\")] = _BACKSLASH


class JsonArray(Generic[T, Block]):
    """Decoded elements of the array, block by block.

    `scan` is tried before `decode`, and returns None for a piece that must be decoded; what it returns is yielded.

    Iterate once; then read `document`, the other members of the top-level object, and `losses`, the counts of what
    could not be read: `unreadable_events`, `repaired_events`, `bytes_unread`, `unreadable_header`.
    """

    def __init__(
        self,
        blocks: Iterator[bytes],
        key: str,
        decode: Callable[[bytes], list[T]],
        scan: Callable[[bytes], Block | None] | None = None,
    ) -> None:
        self._blocks = blocks
        self._decode = decode
        self._scan_piece = scan
        self._opening = re.compile(rb'"' + key.encode() + rb'"\s*:\s*\[')
        self._key = key
        self.document: dict[str, Any] = {}
        self.losses: Counter[str] = Counter()
        self.complete = False
        self.example = ""
        self._is_inside_object = True

    def __iter__(self) -> Iterator[list[T] | Block]:
        rest = self.read_header()
        while not self.complete:
            block = next(self._blocks, None)
            if block is None:
                yield from self._finish(rest)
                return
            elements, rest = self._take(rest, block)
            if elements:
                yield elements

    def read_header(self) -> bytes:
        """Read up to the array, filling `document`; return what was read of the array itself."""
        text = b""
        for block in self._blocks:
            text += block
            start = text.lstrip()[:1]
            if start == b"[":
                self._is_inside_object = False
                return text[text.index(b"[") + 1 :]
            if start and start != b"{":
                break
            for opening in islice(self._opening.finditer(text), _MOST_OPENINGS):
                document = _decode_object(text[: opening.start()] + b'"' + self._key.encode() + b'":0}')
                if document is not None:
                    self.document = document
                    del self.document[self._key]
                    return text[opening.end() :]
            if len(text) > LARGEST_HEADER:
                break
        opening_anyway = self._opening.search(text)
        if opening_anyway is None:
            raise BrokenSource(f"no array `{self._key}` in its first {len(text):,} bytes; is this a profiler trace?")
        self.losses["unreadable_header"] += 1
        return text[opening_anyway.end() :]

    def stop(self, reason: str) -> None:
        """Stop reading; the rest is counted as unread."""
        self._give_up(b"", reason)

    def _take(self, rest: bytes, block: bytes) -> tuple[list[T] | Block, bytes]:
        cut = _last_cut(block)
        if cut is None:
            rest += block
            if len(rest) > LARGEST_ELEMENT:
                return self._scan(rest)
            return [], rest
        piece = b"".join((b"[", rest, memoryview(block)[: cut[0]], b"]"))
        scanned = self._scan_piece(piece) if self._scan_piece is not None else None
        if scanned is not None:
            return scanned, block[cut[1] :]
        try:
            return self._decode(piece), block[cut[1] :]
        except _UNDECODABLE:
            return self._scan(rest + block)

    def _scan(self, text: bytes) -> tuple[list[T], bytes]:
        """Return all whole elements of `text`, whatever it contains, and the rest."""
        elements: list[T] = []
        for _ in range(_MOST_STRAY_BRACES):
            spans, end = element_spans(text)
            elements += self._decode_all(text, spans)
            if end is None:
                break
            self._note_scalars(text[spans[-1][1] if spans else 0 : end])
            if text[end : end + 1] == b"]":
                self._read_trailer(text[end + 1 :])
                return elements, b""
            self._lose("an extra closing brace")
            text = text[end + 1 :]
        else:
            self._give_up(text, "too many extra closing braces")
            return elements, b""
        rest = text[spans[-1][1] if spans else 0 :].lstrip(_BETWEEN)
        if len(rest) > LARGEST_ELEMENT:
            self._give_up(rest, "an element that does not end")
            return elements, b""
        return elements, rest

    def _finish(self, rest: bytes) -> Iterator[list[T]]:
        elements, rest = self._scan(rest)
        if elements:
            yield elements
        if not self.complete:
            self._give_up(rest, "the file ends inside the array")

    def _decode_all(self, text: bytes, spans: list[tuple[int, int]]) -> list[T]:
        if not spans:
            return []
        with suppress(*_UNDECODABLE):
            return self._decode(b"[" + text[: spans[-1][1]].lstrip(_BETWEEN) + b"]")
        elements: list[T] = []
        behind = 0
        for start, end in spans:
            self._note_scalars(text[behind:start])
            elements += self._decode_one(text[start:end])
            behind = end
        return elements

    def _note_scalars(self, between: bytes) -> None:
        """Count anything between elements that is not a separator as an element of the wrong kind."""
        for scalar in between.split(b","):
            if scalar.strip():
                self._lose(f"{scalar.strip()[:40]!r} instead of an event")

    def _lose(self, reason: str) -> None:
        self.losses["unreadable_events"] += 1
        self.example = self.example or reason

    def _decode_one(self, text: bytes) -> list[T]:
        try:
            return self._decode(b"[" + text + b"]")
        except _UNDECODABLE as error:
            reason = str(error)
        if len(text) > _LARGEST_REPAIR:
            self._lose(reason)
            return []
        readable = text.decode("utf-8", "replace").encode()
        mended = _TEXT_OR_BARE_WORD.sub(lambda found: found[1] or b"null", readable)
        try:
            elements = self._decode(b"[" + mended + b"]")
        except _UNDECODABLE:
            self._lose(reason)
            return []
        self.losses["repaired_events"] += 1
        return elements

    def _read_trailer(self, text: bytes) -> None:
        self.complete = True
        for block in self._blocks:
            text += block
            if len(text) > LARGEST_HEADER:
                self._give_up(text, "too much data after the array")
                return
        text = text.strip()
        if text == (b"}" if self._is_inside_object else b""):
            return
        trailer = _decode_object(b"{" + text.removeprefix(b",")) if self._is_inside_object else None
        if trailer is None:
            self.losses["unreadable_header"] += 1
        else:
            self.document |= trailer

    def _give_up(self, rest: bytes, reason: str) -> None:
        self.complete = True
        self.losses["bytes_unread"] += len(rest) + sum(len(block) for block in self._blocks)
        self.losses["truncated"] = 1
        self.example = self.example or reason


def element_spans(text: bytes) -> tuple[list[tuple[int, int]], int | None]:
    """Return objects and arrays directly inside an array that `text` starts in, and where something closes the array.

    >>> element_spans(b'{"a": "}{"}, {"b": [{}]} ], "c": 1')
    ([(0, 11), (13, 24)], 25)
    """
    codes = np.frombuffer(text, np.uint8)
    classes = _CLASS[codes]
    at = np.flatnonzero((classes > 0) & (classes != _BACKSLASH))
    kind = classes[at]
    quote = kind == _QUOTE
    quote[quote] = ~_flag_escaped_quotes(classes, at[quote])
    outside = np.cumsum(quote, dtype=np.uint8) % 2 == 0  # only odd and even matter, so it may wrap around
    change = (outside & (kind == _OPEN)).astype(np.int8) - (outside & (kind == _CLOSE)).astype(np.int8)
    depth = np.cumsum(change, dtype=np.int32)
    closed = np.flatnonzero(depth < 0)
    last = int(closed[0]) if closed.size else at.size
    at, depth, change = at[: last + 1], depth[:last], change[:last]
    ends = at[:last][(depth == 0) & (change == -1)] + 1
    starts = at[:last][(depth == 1) & (change == 1)]
    spans = list(zip(starts.tolist(), ends.tolist(), strict=False))
    return spans, int(at[last]) if closed.size else None


def _flag_escaped_quotes(classes: npt.NDArray[np.uint8], quotes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which quotes follow an odd number of backslashes."""
    backslash = classes == _BACKSLASH
    if not backslash.any():
        return np.zeros(quotes.size, np.bool_)
    index = np.arange(classes.size, dtype=np.int32)
    index[backslash] = -1
    last_other = np.maximum.accumulate(index, out=index)
    before = np.where(quotes > 0, last_other[quotes - 1], -1)
    run = np.where(quotes > 0, quotes - 1 - before, 0)
    odd: npt.NDArray[np.bool_] = run % 2 == 1
    return odd


def _last_cut(block: bytes) -> tuple[int, int] | None:
    """Return where to end the piece and where to continue: after the last `}` that is followed by `, {`."""
    end = len(block)
    for _ in range(_MOST_CUT_TRIES):
        brace = block.rfind(b"}", 0, end)
        if brace < 0:
            return None
        found = _CUT.match(block, brace)
        if found is not None:
            return brace + 1, found.end()
        end = brace
    return None


def _decode_object(text: bytes) -> dict[str, Any] | None:
    try:
        document = msgspec.json.decode(text)
    except _UNDECODABLE:
        return None
    if not isinstance(document, dict):
        return None
    return document

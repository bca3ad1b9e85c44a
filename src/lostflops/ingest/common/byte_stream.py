"""Bytes of a trace file, plain or gzipped, in blocks; it knows nothing about JSON.

Damage does not raise: reading ends early and `problem` says why, so that what came before
can still be used.
"""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from isal import isal_zlib

from lostflops.core.errors import BrokenSource
from lostflops.core.limits import MOST_EXPANSION

# The objects decoded from one block should stay in the cache; smaller blocks cost more calls than they save.
BLOCK = 2 << 20
_DAMAGED = cast("type[Exception]", isal_zlib.error)
GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW_BITS = 31
_EXPANSION_FLOOR = 4 << 20


class _Inflater(Protocol):
    unconsumed_tail: bytes
    unused_data: bytes
    eof: bool

    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


class ByteStream:
    """The decompressed bytes of a file, in blocks.

    Iterate over it once; `digest`, `read_bytes` and `problem` are final afterwards.
    """

    def __init__(self, path: Path, on_read: Callable[[int], None] | None = None, block: int = BLOCK) -> None:
        self.path = path
        self._block = block
        self.read_bytes = 0
        self.problem: str | None = None
        self._on_read = on_read
        self._hash = hashlib.sha256()
        # Hashing lets go of the interpreter, so one more thread makes it nearly free beside decoding.
        self._hashing = ThreadPoolExecutor(1, "hash")
        self._last_update: Future[None] | None = None

    @property
    def digest(self) -> str:
        self._hashing.shutdown()
        return self._hash.hexdigest()

    def blocks(self) -> Iterator[bytes]:
        try:
            file = self.path.open("rb", buffering=0)
        except OSError as error:
            raise BrokenSource(
                f"{self.path} cannot be opened: {error.strerror}. Check the path and its permissions."
            ) from None
        with file:
            first = self._read(file)
            if first[:2] == GZIP_MAGIC:
                yield from self._inflate(file, first)
            else:
                while first:
                    yield first
                    first = self._read(file)

    def drain(self) -> None:
        """Hash the rest of the file that iteration did not reach, so that `digest` covers the whole file."""
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.read_bytes)
            while self._read(file):
                pass

    def _read(self, file: BinaryIO) -> bytes:
        data = file.read(self._block)
        if data:
            if self._last_update is not None:
                self._last_update.result()
            self._last_update = self._hashing.submit(self._hash.update, data)
            self.read_bytes += len(data)
            if self._on_read is not None:
                self._on_read(len(data))
        return data

    def _inflate(self, file: BinaryIO, raw: bytes) -> Iterator[bytes]:
        inflater = _new_inflater()
        produced = 0
        while True:
            try:
                block = inflater.decompress(raw, self._block)
            except _DAMAGED as error:
                self.problem = f"the gzip data is damaged after {produced:,} bytes of text ({error})"
                return
            produced += len(block)
            if produced > _EXPANSION_FLOOR and produced > MOST_EXPANSION * self.read_bytes:
                self.problem = f"the gzip data expands more than {MOST_EXPANSION} times, more than any trace"
                return
            if block:
                yield block
            if inflater.eof:
                raw = inflater.unused_data or self._read(file)
                while len(raw) < len(GZIP_MAGIC) and (more := self._read(file)):
                    raw += more
                if not raw.startswith(GZIP_MAGIC):
                    if raw.strip(b"\0"):
                        self.problem = "there is other data after the gzip data"
                    return
                inflater = _new_inflater()
            else:
                raw = inflater.unconsumed_tail or self._read(file)
                if not raw and not block:
                    self.problem = f"the gzip data ends early, after {produced:,} bytes of text"
                    return


def _new_inflater() -> _Inflater:
    return cast("_Inflater", isal_zlib.decompressobj(_GZIP_WINDOW_BITS))


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes on disk."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

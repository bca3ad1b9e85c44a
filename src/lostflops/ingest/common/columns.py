"""Columns on their way from a reader to Parquet: repeated texts as codes, rows in bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.store.parts import PIECE_ROWS
from lostflops.store.places import naming

NULL: Final = -(1 << 63)
"""Null in an int64 column, until it is written."""
NULL32: Final = -(1 << 31)
"""Null in an int32 column, until it is written."""

Array = npt.NDArray[Any]
Columns = dict[str, Array]


class Texts(dict[Any, int]):
    """Codes for repeated texts (str, or the bytes of JSON); code 0 is null.

    >>> texts = Texts()
    >>> texts.codes(["mm", "", "add", "mm"], 4).tolist(), texts.texts()
    ([1, 0, 2, 1], [None, 'mm', 'add'])
    """

    def __init__(self, most: int = 1 << 30) -> None:
        super().__init__({"": 0, b"": 0})
        self._texts: list[str | None] = [None]
        self._most = most
        self.refused = 0

    def __missing__(self, key: Any) -> int:
        if len(self._texts) > self._most:
            self.refused += 1
            return 0
        self[key] = len(self._texts)
        self._texts.append(key if isinstance(key, str) else key.decode("utf-8", "replace"))
        return len(self._texts) - 1

    def texts(self) -> list[str | None]:
        """Return the text of each code; always the same list, which grows."""
        return self._texts

    def codes(self, keys: Iterable[Any], count: int) -> npt.NDArray[np.uint32]:
        return np.fromiter(map(self.__getitem__, keys), np.uint32, count)


def integers(values: list[Any]) -> npt.NDArray[np.int64]:
    """Convert values that every known dialect writes as integers; values that numpy cannot convert become null."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (OverflowError, TypeError, ValueError):
        return whole_numbers(values)


def small_integers(wide: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Convert to integers of 32 bits; values that do not fit become null."""
    return np.where((wide > NULL32) & (wide < -NULL32), wide, NULL32).astype(np.int32)


def numbers(values: list[Any]) -> npt.NDArray[np.float64]:
    """Convert values to finite numbers; anything else becomes null."""
    try:
        found = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.array([v if isinstance(v, (int, float)) and abs(v) < 1e300 else np.nan for v in values], np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def whole_numbers(values: list[Any], dtype: type[np.signedinteger[Any]] = np.int64) -> Array:
    """Convert values of any type; a value that is not an integer in range becomes null."""
    limits = np.iinfo(dtype)
    null, most = int(limits.min), int(limits.max)
    return np.fromiter((_whole(value, null, most) for value in values), dtype, len(values))


def whole_or_none(value: object, bits: int = 64) -> int | None:
    """Convert one value; return None if it is not an integer that fits into `bits`."""
    null = -(1 << (bits - 1))
    number = _whole(value, null, -null - 1)
    return None if number == null else number


def _whole(value: object, null: int, most: int) -> int:
    if isinstance(value, str):
        value = int(value) if value.removeprefix("-").isdecimal() and len(value) < 20 else None
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    if not isinstance(value, int) or isinstance(value, bool):
        return null
    return value if null < value <= most else null


class Spool:
    """Rows of fixed columns, appended in batches, read back in pieces of a bounded size.

    Full pieces go to an unnamed temporary file, so memory does not grow with the trace.
    """

    def __init__(self, dtypes: Mapping[str, Any], folder: str | None = None) -> None:
        self._dtypes = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
        self._pending: list[Columns] = []
        self._pending_rows = 0
        self._file: IO[bytes] | None = None
        self._sizes: list[int] = []
        self._folder = folder

    @property
    def rows(self) -> int:
        return sum(self._sizes) + self._pending_rows

    def append(self, rows: int, columns: Columns) -> None:
        """Add a batch; columns that are not given are null."""
        if rows == 0:
            return
        self._pending.append({"_rows": np.array(rows)} | columns)
        self._pending_rows += rows
        if self._pending_rows >= PIECE_ROWS:
            self._spill(self._gather())

    def pieces(self) -> Iterator[Columns]:
        """Yield all rows, in the order in which they were appended."""
        if self._file is not None:
            self._file.seek(0)
            for rows in self._sizes:
                yield {name: self._load(dtype, rows) for name, dtype in self._dtypes.items()}
        if self._pending_rows:
            yield self._gather()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _gather(self) -> Columns:
        batches, self._pending = self._pending, []
        columns = {
            name: np.concatenate([self._column(batch, name, dtype) for batch in batches])
            for name, dtype in self._dtypes.items()
        }
        self._pending = [{"_rows": np.array(self._pending_rows)} | columns]
        return columns

    @staticmethod
    def _column(batch: Columns, name: str, dtype: np.dtype[Any]) -> Array:
        if name in batch:
            return batch[name].astype(dtype, copy=False)
        return np.full(int(batch["_rows"]), null_of(dtype), dtype)

    def _spill(self, columns: Columns) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - it lives as long as the spool
        with naming(Path(self._folder or tempfile.gettempdir())):
            for name in self._dtypes:
                self._file.write(columns[name].data.cast("B"))  # numpy's tofile does not say why it failed
            self._file.flush()
        self._sizes.append(self._pending_rows)
        self._pending, self._pending_rows = [], 0

    def _load(self, dtype: np.dtype[Any], rows: int) -> Array:
        assert self._file is not None
        return np.fromfile(self._file, dtype, rows)


def null_of(dtype: np.dtype[Any]) -> Any:
    """Return the null of a type: the smallest integer, not-a-number, or 0 in unsigned columns of codes."""
    return np.nan if dtype.kind == "f" else np.iinfo(dtype).min

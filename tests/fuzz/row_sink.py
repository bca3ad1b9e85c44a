"""Takes the rows of a reader in place of the writer of Parquet files, and refuses what that could not write."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from lostflops.store.parquet import ColumnData, ConstantColumn, TextColumn
from lostflops.store.tables import TableSchema

_RANGES: Final = {"INTEGER": 1 << 31, "BIGINT": 1 << 63}
_DTYPES: Final = {"INTEGER": np.int64, "BIGINT": np.int64, "DOUBLE": np.float64, "BOOLEAN": np.bool_}


class RowSink:
    """Replaces a `PartWriter`: nothing is written, so a reader can be tried thousands of times a second."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[int, str]] = Counter()
        self.batches: list[tuple[str, int, int, Mapping[str, ColumnData]]] = []

    @property
    def puts(self) -> int:
        return len(self.batches)

    def put(self, table: TableSchema, rank: int, rows: int, columns: Mapping[str, ColumnData]) -> None:
        if rows == 0:
            return
        kinds = {column.name: column.type for column in table.columns}
        assert 0 <= rank < 1 << 31, rank
        for name, data in columns.items():
            _check_column(f"{table.name}.{name}", kinds[name], rows, data)
        self.rows[rank, table.name] += rows
        self.batches.append((table.name, rank, rows, columns))

    def contents(self) -> list[tuple[str, int, int, dict[str, list[Any]]]]:
        """Return all rows as plain lists, to compare them with those of another reader."""
        return [
            (table, rank, rows, {name: _plain(data, rows) for name, data in columns.items()})
            for table, rank, rows, columns in self.batches
        ]


def _check_column(where: str, kind: str, rows: int, data: ColumnData) -> None:
    if isinstance(data, ConstantColumn):
        _check_values(where, kind, [data.value])
        return
    if isinstance(data, TextColumn):
        assert len(data.codes) == rows, f"{where}: {len(data.codes)} of {rows} rows"
        used = np.unique(data.codes).tolist()
        _check_values(where, kind, [data.values[code] for code in used])
        return
    assert len(data) == rows, f"{where}: {len(data)} of {rows} rows"
    if not isinstance(data, np.ndarray):
        _check_values(where, kind, data)
    elif data.dtype.kind == "i" and data.size:
        known = data[data != np.iinfo(data.dtype).min].astype(np.int64)
        bound = _RANGES[kind]
        assert not known.size or (known.min() >= -bound and known.max() < bound), f"{where}: beyond {kind}"
    elif data.dtype.kind == "f" and kind != "DOUBLE":
        assert not np.isinf(data).any(), f"{where}: an infinite {kind}"


def _check_values(where: str, kind: str, values: Sequence[Any]) -> None:
    known = [value for value in values if value is not None]
    if kind in _DTYPES:
        numbers = np.array(known, _DTYPES[kind])
        bound = _RANGES.get(kind)
        assert bound is None or all(-bound <= value < bound for value in numbers.tolist()), f"{where}: beyond {kind}"
    elif kind == "VARCHAR":
        for value in known:
            assert isinstance(value, str), f"{where}: {type(value)} in place of a text"
            value.encode()


def _plain(data: ColumnData, rows: int) -> list[Any]:
    if isinstance(data, ConstantColumn):
        return [data.value] * rows
    if isinstance(data, TextColumn):
        return [data.values[code] for code in data.codes.tolist()]
    values = data.tolist() if isinstance(data, np.ndarray) else list(data)
    return ["nan" if isinstance(value, float) and math.isnan(value) else value for value in values]

"""JSON of any Result, and tables as CSV or JSON, written row by row so that size does not matter."""

import csv
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import msgspec

from lostflops.core.results import Result


def write(result: Result, stream: TextIO) -> None:
    write_json(result.to_json(), stream)


def write_json(data: Any, stream: TextIO) -> None:
    """Write indented JSON; values that JSON cannot hold become text, not-a-number and infinity become null."""
    stream.write(msgspec.json.format(_encode(data), indent=2).decode() + "\n")


def write_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]], stream: TextIO) -> None:
    """Write a heading and the rows; null is an empty field.

    >>> import sys
    >>> write_csv(["name", "dur"], [("a,b", 1), (None, 2)], sys.stdout)
    name,dur
    "a,b",1
    ,2
    """
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


def write_json_table(
    schema: str, columns: Sequence[str], types: Sequence[str], rows: Iterable[Sequence[Any]], stream: TextIO
) -> None:
    """Write one document with a row per line; columns of the same name get a number.

    >>> import sys
    >>> write_json_table("lostflops.sql/1", ["n", "n"], ["INTEGER", "INTEGER"], [(1, 2)], sys.stdout)
    {"schema":"lostflops.sql/1","columns":[{"name":"n","type":"INTEGER"},{"name":"n_2","type":"INTEGER"}],"rows":[
    {"n":1,"n_2":2}
    ]}
    """
    names = _unique(columns)
    described = [{"name": name, "type": kind} for name, kind in zip(names, types, strict=True)]
    stream.write(f'{{"schema":{_encode(schema).decode()},"columns":{_encode(described).decode()},"rows":[')
    separator = "\n"
    for row in rows:
        stream.write(separator + _encode(dict(zip(names, row, strict=True))).decode())
        separator = ",\n"
    stream.write("\n]}\n")


def _encode(data: Any) -> bytes:
    return msgspec.json.encode(data, enc_hook=_plain)


def _plain(value: Any) -> Any:
    """Return a number of numpy as a number, and anything else as text.

    >>> import numpy as np
    >>> _encode([np.float64(0.5), np.int64(2)])
    b'[0.5,2]'
    """
    return value.item() if hasattr(value, "item") else str(value)


def _unique(names: Sequence[str]) -> list[str]:
    unique: list[str] = []
    for name in names:
        candidate, number = name, 2
        while candidate in unique:
            candidate, number = f"{name}_{number}", number + 1
        unique.append(candidate)
    return unique

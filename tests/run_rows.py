"""All rows of a run, to compare it with another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lostflops.store.run import Run
from lostflops.store.tables import TABLES

_OF_FILES = ("source", "source_bytes", "source_hash")
"""Columns of `ranks` that tell of the file that was read."""


def rows_of(run: Path) -> dict[str, list[Any]]:
    """By table, in an order of their own."""
    with Run.open(run) as opened:
        found = {}
        for table in TABLES:
            names = [name for name in table.column_names() if not (table.name == "ranks" and name in _OF_FILES)]
            found[table.name] = sorted(opened.sql(f"select {', '.join(names)} from {table.name}").fetchall(), key=repr)
        return found

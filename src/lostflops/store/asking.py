"""Errors of DuckDB that are not about a query: Ctrl-C, and memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb

from lostflops.store.memory_limit import not_enough_memory

INTERRUPTED: Final = "Query interrupted"
"""What DuckDB says if Ctrl-C ends a query, as a RuntimeError."""


@contextmanager
def asking() -> Iterator[None]:
    """Raise KeyboardInterrupt if Ctrl-C ended a query, of which DuckDB makes an error like any other, and ours if it
    needs too much memory."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise not_enough_memory() from None
    except RuntimeError as error:
        if str(error) != INTERRUPTED:
            raise
        raise KeyboardInterrupt from None

"""Connections to DuckDB that read Parquet files, and keep nothing of them."""

from __future__ import annotations

from functools import cache

import duckdb

from lostflops.store.memory_limit import limit_database

_MOST_BYTES = 10**9


def connect(threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Return a connection to close after use; what is created on it must be temporary.

    All of a process share one database for each number of threads, because opening one takes 25 ms of CPU.
    """
    shared = limit_database(_MOST_BYTES), threads
    try:
        connection = _open_database(*shared).cursor()
        connection.execute("SELECT 1").fetchall()
    except duckdb.Error:  # a fatal error ends a database
        _open_database.cache_clear()
        connection = _open_database(*shared).cursor()
    return connection


@cache
def _open_database(memory_limit: str, threads: int | None) -> duckdb.DuckDBPyConnection:
    # Files come and go under the same names, so that nothing of them may be kept.
    config: dict[str, str | bool | int | float | list[str]]
    config = {"memory_limit": memory_limit, "enable_external_file_cache": False}
    return duckdb.connect(config=config if threads is None else {**config, "threads": threads})

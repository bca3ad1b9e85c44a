"""Views of one connection that show a few steps of a run.

They are temporary, so that other connections to the run see all of it, and stand before the views of the run's tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import duckdb

from lostflops.store.tables import ARRIVALS, TABLES, TIMINGS, TableSchema

_WHOLE: Final = "memory.main"
_SPAN: Final = "shown_span"
_TIMES: Final = ("start", "time")
"""Where a row of a table begins."""


def narrow(connection: duckdb.DuckDBPyConnection, steps: Sequence[int]) -> None:
    """Rows of other steps are shown no more, nor what belongs to no step and began before or after these."""
    listed = ", ".join(str(int(step)) for step in steps)
    connection.execute(
        f"CREATE TEMP TABLE {_SPAN} AS SELECT rank, min(least(start, device_start)) AS first, "
        f"max(greatest(stop, device_stop)) AS last FROM {_WHOLE}.steps WHERE step IN ({listed}) GROUP BY rank"
    )
    for declared in TABLES:
        if _is_by_step(declared):
            rows = f"SELECT * FROM {_WHOLE}.{declared.name} WHERE step IN ({listed})"
            connection.execute(f"CREATE TEMP VIEW {declared.name} AS {rows} {_without_step(declared)}")


def _is_by_step(declared: TableSchema) -> bool:
    """Timings count steps as the collector does, which are not those of the profiler."""
    return declared is not TIMINGS and "step" in declared.column_names()


def _without_step(declared: TableSchema) -> str:
    """Of a meeting that belongs to none, what a rank did in it tells when it was."""
    rows = f"UNION ALL SELECT one.* FROM {_WHOLE}.{declared.name} one"
    if declared is ARRIVALS:
        met = f"SELECT meeting FROM {_WHOLE}.arrivals JOIN collectives c USING (rank, event) WHERE c.step IS NULL"
        return f"{rows} WHERE one.step IS NULL AND meeting IN ({met})"
    began = next((name for name in _TIMES if name in declared.column_names()), None)
    assert began is not None, f"rows of {declared.name} have no time"
    return f"{rows} JOIN {_SPAN} USING (rank) WHERE one.step IS NULL AND one.{began} >= first AND one.{began} < last"

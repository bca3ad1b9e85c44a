"""Views of one connection that show a few steps of a run.

They are temporary, so that other connections to the run see all of it, and hide the views of the run's tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import duckdb

from lostflops.store.tables import ARRIVALS, DERIVED, TABLES, TIMINGS, TableSchema

MOST_COPIED: Final = 1_200_000
"""Rows of steps with at most this many events are copied to memory: about 250 MB."""
_WHOLE: Final = "memory.main"
_SPAN: Final = "shown_span"
_TIMES: Final = ("start", "time")
"""Columns with the time at which a row begins."""


def narrow(connection: duckdb.DuckDBPyConnection, steps: Sequence[int], *, is_copied: bool) -> None:
    """Hide rows of other steps, rows without a step that began before or after these, and all that was derived."""
    listed = ", ".join(str(int(step)) for step in steps)
    connection.execute(
        f"CREATE TEMP TABLE {_SPAN} AS SELECT rank, min(least(start, device_start)) AS first, "
        f"max(greatest(stop, device_stop)) AS last FROM {_WHOLE}.steps WHERE step IN ({listed}) GROUP BY rank"
    )
    for declared in DERIVED:
        connection.execute(f"CREATE TEMP VIEW {declared.name} AS SELECT * FROM {_WHOLE}.{declared.name} WHERE false")
    kind = "TABLE" if is_copied and _count_events(connection, listed) <= MOST_COPIED else "VIEW"
    for declared in TABLES:
        if _is_by_step(declared):
            rows = f"SELECT * FROM {_WHOLE}.{declared.name} WHERE step IN ({listed})"
            connection.execute(f"CREATE TEMP {kind} {declared.name} AS {rows} {_without_step(declared)}")


def _count_events(connection: duckdb.DuckDBPyConnection, listed: str) -> int:
    [(events,)] = connection.execute(f"SELECT count(*) FROM {_WHOLE}.events WHERE step IN ({listed})").fetchall()
    return int(events)


def _is_by_step(declared: TableSchema) -> bool:
    """Return whether rows have steps of the profiler; timings count steps as the collector does, which differ."""
    return declared is not TIMINGS and declared not in DERIVED and "step" in declared.column_names()


def _without_step(declared: TableSchema) -> str:
    """Return SQL for the rows without a step; an arrival has no time, so that of a rank's collective counts."""
    rows = f"UNION ALL SELECT one.* FROM {_WHOLE}.{declared.name} one"
    if declared is ARRIVALS:
        met = f"SELECT meeting FROM {_WHOLE}.arrivals JOIN collectives c USING (rank, event) WHERE c.step IS NULL"
        return f"{rows} WHERE one.step IS NULL AND meeting IN ({met})"
    began = next((name for name in _TIMES if name in declared.column_names()), None)
    assert began is not None, f"rows of {declared.name} have no time"
    return f"{rows} JOIN {_SPAN} USING (rank) WHERE one.step IS NULL AND one.{began} >= first AND one.{began} < last"

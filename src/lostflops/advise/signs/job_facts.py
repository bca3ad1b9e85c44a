"""What the collector recorded of the job on each rank (table `job`)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lostflops.advise.case import Case


def job_facts(case: Case, key: str) -> dict[int, list[Any]]:
    """Return the values of a key by rank, of the newest attempt that has it, in no order; empty where there is none."""
    rows = case.run.sql(
        f"select rank, value from job where key = '{key}' and value is not null "
        "qualify attempt is not distinct from max(attempt) over (partition by rank)"
    ).fetchall()
    found: dict[int, list[Any]] = {}
    for rank, value in rows:
        found.setdefault(rank, []).append(json.loads(value))
    return found

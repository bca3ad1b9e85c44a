"""Facts about the job that the collector recorded on each rank (table `job`)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lostflops.account.pace.normal import traced_attempt

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case


def job_facts(case: Case, key: str) -> dict[int, list[Any]]:
    """Return the values of a key by rank, in no order; empty if there are none. They are of the same attempt as the
    window or the timings: a restart may have changed what an earlier attempt recorded."""
    attempt = traced_attempt(case.run)
    if attempt is None and case.timed_steps is not None:
        attempt = case.timed_steps.pace.attempt
    of = "true" if attempt is None else f"(attempt is null or attempt = {attempt})"
    rows = case.run.rows(f"select rank, value from job where key = '{key}' and value is not null and {of}")
    found: dict[int, list[Any]] = {}
    for rank, value in rows:
        found.setdefault(rank, []).append(json.loads(value))
    return found

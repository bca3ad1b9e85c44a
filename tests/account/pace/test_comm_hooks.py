"""The table of communication hooks, from timings made by hand."""

from __future__ import annotations

from typing import Any

from lostflops.account.pace.comm_hooks import describe, table
from memory_run import MemoryRun


def timing(step: int, comm_hook: int | None, rank: int = 0, **more: Any) -> dict[str, Any]:
    row = {"rank": rank, "attempt": 0, "step": step, "start": 1000 * step, "stop": 1000 * step + 1000}
    return {**row, "comm_hook": comm_hook, "compiled": False, "profiled": False, **more}


def test_first_compiled_and_profiled_steps_do_not_count() -> None:
    rows = [timing(0, 900), timing(1, 100), timing(2, 200), timing(3, None), timing(4, 300)]
    rows += [timing(5, 900, compiled=True), timing(6, 900, profiled=True)]
    rows += [timing(step, None, rank=1) for step in range(5)]
    job = [{"rank": 0, "attempt": 0, "key": "ddp", "value": '[{"comm_hook": "fp16_compress_hook"}, 3]'}]
    with MemoryRun(timings=rows, job=job) as run:
        found = table(run)
        nothing = table(run, (1,))
    assert found.title.endswith("(fp16_compress_hook)")
    assert found.to_json() == [
        {"rank": 0, "steps": 3, "median_ns": 200, "longest_ns": 300, "ns": 600, "share": 600 / 4000}
    ]
    assert describe(found) == "Communication hooks of DDP take 200 ns of a step on rank 0 (median), 15.0% of its time."
    assert (nothing.rows, describe(nothing)) == ((), "")


def test_the_last_attempt_with_hooks_counts() -> None:
    rows = [timing(step, 100 * (attempt + 1)) | {"attempt": attempt} for attempt in (0, 1) for step in range(3)]
    rows += [timing(step, None) | {"attempt": 2} for step in range(3)]
    with MemoryRun(timings=rows) as run:
        assert [row["median_ns"] for row in table(run).to_json()] == [200]

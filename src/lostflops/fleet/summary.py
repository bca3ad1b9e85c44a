"""What a run leaves behind for questions about many runs: one row of a table, at most 200 KB for 1,000 ranks.

All times are integer ns, summed over ranks, unless a name says otherwise. Two of its sums are closed. `life` splits the
whole time of all ranks, `total_ns`: what trained, and what did not. `lines` splits the time that was recorded in
detail, `window_ns`, by line of the ledger. So the part of the whole life that a line took is its share of `lines` in
what trained, as far as the recorded steps are like the others. `normal_ns` shows how much longer they took.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lostflops.account.job.life import LIFE


class HostSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of a host with one kind of device, in the steps that were recorded in detail."""

    host: str | None
    device: str | None
    ranks: int
    window_ns: int
    lines: dict[str, int]
    """Sum to `window_ns`."""
    slower: float | None = None
    """How much more time its ranks need for their own work than the median host of the run: 0.1 is 10%. None if there
    is no other host to compare with."""
    slower_error: float | None = None
    """Standard error of `slower`."""


class PaceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one interval of a job; intervals have equal numbers of steps."""

    attempt: int
    start: int
    """Unix time of its first step, in ns."""
    steps: int
    step_ns: float
    """Median step."""
    slow_ns: float
    """95th percentile."""


class FindingSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    level: str
    """`found` or `suspected`."""
    cause: str
    what: str
    fix: str
    gain: float | None
    """Part of the step that the fix saves; None if unknown."""
    gain_low: float | None
    gain_high: float | None


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    run: str
    """Identity: the same after more of the job was ingested."""
    name: str
    """Name of the job: its label `job`, else its script, else the folder of the run."""
    labels: dict[str, str]
    address: str
    start: int
    """Unix time in ns."""
    stop: int
    attempts: int
    ranks: int
    device: str | None
    backend: str | None
    torch: str | None
    lostflops: str
    commit: str | None
    """Commit of the program's repository."""
    steps: int | None
    step_ns: float | None
    """Normal step: see `account/pace/timings.py`."""
    step_error: float | None
    """Standard error of `step_ns`, as a part of it, by how steps differ within the run."""
    tokens_per_second: float | None
    samples_per_second: float | None
    mfu: float | None
    total_ns: int
    life: dict[str, int]
    """By line of `LIFE`; sums to `total_ns`."""
    window_ns: int
    lines: dict[str, int]
    """By line of the ledger; sums to `window_ns`."""
    hosts: list[HostSummary]
    pace: list[PaceSummary]
    findings: list[FindingSummary]
    normal_ns: int | None = None
    """Time of as many normal steps as `window_ns` has profiled ones; None if no step was timed without the profiler."""


_LONG: Final = "DECIMAL(38, 0)"
"""For times of all ranks in the whole life of a job: 64 bits of ns end at 2.6 million hours."""
_HOST: Final = (
    "STRUCT(host VARCHAR, device VARCHAR, ranks INTEGER, window_ns BIGINT, lines MAP(VARCHAR, BIGINT), slower DOUBLE, "
    "slower_error DOUBLE)[]"
)
_PACE: Final = "STRUCT(attempt INTEGER, start BIGINT, steps INTEGER, step_ns DOUBLE, slow_ns DOUBLE)[]"
_FINDING: Final = (
    "STRUCT(id VARCHAR, level VARCHAR, cause VARCHAR, what VARCHAR, fix VARCHAR, gain DOUBLE, gain_low DOUBLE, "
    "gain_high DOUBLE)[]"
)
COLUMNS: Final = {
    "run": "VARCHAR",
    "name": "VARCHAR",
    "labels": "MAP(VARCHAR, VARCHAR)",
    "address": "VARCHAR",
    "start": "BIGINT",
    "stop": "BIGINT",
    "attempts": "INTEGER",
    "ranks": "INTEGER",
    "device": "VARCHAR",
    "backend": "VARCHAR",
    "torch": "VARCHAR",
    "lostflops": "VARCHAR",
    "commit": "VARCHAR",
    "steps": "BIGINT",
    "step_ns": "DOUBLE",
    "step_error": "DOUBLE",
    "tokens_per_second": "DOUBLE",
    "samples_per_second": "DOUBLE",
    "mfu": "DOUBLE",
    "total_ns": _LONG,
    "life": f"MAP(VARCHAR, {_LONG})",
    "window_ns": "BIGINT",
    "lines": "MAP(VARCHAR, BIGINT)",
    "hosts": _HOST,
    "pace": _PACE,
    "findings": _FINDING,
    "normal_ns": "BIGINT",
}
"""Columns of the table of runs, in DuckDB's types."""


def check_summary(one: RunSummary) -> None:
    """Raise `ValueError` if a sum is not closed, or a time or another number is impossible."""
    if sum(one.life.values()) != one.total_ns:
        raise ValueError(f"{one.address}: the life of the job does not sum to its whole time")
    if sum(one.lines.values()) != one.window_ns:
        raise ValueError(f"{one.address}: the lines of the ledger do not sum to the recorded time")
    if unknown := set(one.life) - set(LIFE):
        raise ValueError(f"{one.address}: unknown lines {sorted(unknown)}")
    if max(abs(one.start), abs(one.stop), one.steps or 0) >= 2**63 or max(one.ranks, one.attempts) >= 2**31:
        raise ValueError(f"{one.address}: a number is too large")
    if one.stop < one.start or min([*one.life.values(), *one.lines.values(), 0]) < 0:
        raise ValueError(f"{one.address}: a time is negative")
    for host in one.hosts:
        if sum(host.lines.values()) != host.window_ns:
            raise ValueError(f"{one.address}: the lines of host {host.host} do not sum to its recorded time")

"""Is what the analyses say of a synthetic cluster true? Answers come as their JSON, failures go out as sentences."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lostflops.testing import BASE_TIME, TRUE_TIME_ZERO, Cause, Clock, Straggler, Truth

Json = dict[str, Any]

EXPECTED: dict[Cause, tuple[tuple[str, ...], str]] = {
    "slow_kernels": (("compute",), "slow_kernels"),
    "more_work": (("compute",), "more_work"),
    "late_data": (("idle.data",), "late_data"),
    "host_stall": (("idle.python", "idle.host"), "host_stall"),
    "allocation": (("idle.alloc",), "allocation"),
}
"""Ledger lines on which a cause may be found, and its name."""

ROUNDING = 1
"""Clocks are read in whole nanoseconds, so that the stamps of one instant tell an offset no closer than this."""
MOST_WAIT_ERROR = 0.02
"""Of the wall."""


def true_offset(reference: Clock, own: Clock, instant: int) -> Fraction:
    """What the reference shows more than the rank when the reference shows `instant`.

    >>> true_offset(Clock(0), Clock(5, drift_ppm=50.0), BASE_TIME + TRUE_TIME_ZERO + 1_000_000)
    Fraction(-55, 1)
    """
    true_time = (instant - BASE_TIME - TRUE_TIME_ZERO - reference.offset) / (1 + _drift(reference))
    return reference.offset - own.offset + true_time * (_drift(reference) - _drift(own))


def _drift(clock: Clock) -> Fraction:
    return Fraction(round(clock.drift_ppm * 1_000), 1_000_000_000)


def clock_failures(truth: Truth, clock: Json, instant: int) -> list[str]:
    """Every rank has an offset, and the true one lies in its certified interval."""
    rows = {row["rank"]: row for row in clock["ranks"]}
    missing = [rank.rank for rank in truth.ranks if rows.get(rank.rank, {}).get("offset_ns") is None]
    if missing:
        return [f"no offset for {len(missing)} ranks, the first {missing[0]}"]
    reference = truth.ranks[clock["reference"]].clock
    failures = []
    for rank in truth.ranks:
        row = rows[rank.rank]
        error = abs(true_offset(reference, rank.clock, instant) - row["offset_ns"])
        if error > row["uncertainty_ns"] + ROUNDING:
            failures.append(f"rank {rank.rank} is off by {float(error):.0f} ns, certified {row['uncertainty_ns']} ns")
    return failures


def straggler_failures(planted: Straggler | None, stragglers: list[Json]) -> list[str]:
    """The planted rank comes first and its cause is right; of a healthy cluster nobody is accused."""
    named = [row["rank"] for row in stragglers]
    if planted is None:
        return [f"healthy, but ranks {named[:8]} are accused"] if named else []
    if not named or named[0] != planted.rank:
        return [f"rank {planted.rank} was planted, named are {named[:8]}"]
    cause, (lines, name) = stragglers[0]["cause"], EXPECTED[planted.cause]
    if cause["line"] not in lines or cause["name"] != name:
        return [f"{planted.cause} was planted, named is {cause['name']} on {cause['line']}"]
    return []


def ledger_failures(truth: Truth, report: Json, is_whole: bool) -> list[str]:
    """Each rank's lines close and its waits fit its window; of whole traces, waits are those of the truth."""
    failures = []
    for row in report["ranks"]:
        lines, wall = row["lines"], row["wall_ns"]
        if sum(lines.values()) != wall:
            failures.append(f"lines of rank {row['rank']} sum to {sum(lines.values())} ns, its window is {wall} ns")
        if not 0 <= lines["comm.wait"] + lines["comm.bubble"] <= wall:
            failures.append(f"rank {row['rank']} waits longer than its window")
    if is_whole:
        own = [rank.own_lines for rank in truth.ranks]
        expected = sum(lines["comm.wait"] + lines["comm.bubble"] for lines in own)
        found = sum(row["lines"]["comm.wait"] + row["lines"]["comm.bubble"] for row in report["ranks"])
        error = (found - expected) / sum(rank.own_wall for rank in truth.ranks)
        if abs(error) > MOST_WAIT_ERROR:
            failures.append(f"waits differ from the truth by {error:+.1%} of the wall")
    return failures

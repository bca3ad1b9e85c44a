"""Summaries made by hand."""

from __future__ import annotations

from typing import Any

from lostflops.fleet.summary import FindingSummary, HostSummary, RunSummary, check_summary

HOUR = 3_600_000_000_000
DAY = 24 * HOUR
START = 1_700_000_000_000_000_000


def make_summary(number: int = 0, **facts: Any) -> RunSummary:
    """A run of two ranks on one host: of ten hours each trained eight, half of them computing."""
    hosts = [
        HostSummary(
            host=f"node{number}", device="H100-SXM5", ranks=2, window_ns=100, lines={"compute": 50, "comm.wait": 50}
        )
    ]
    values: dict[str, Any] = {
        "run": f"run{number}",
        "name": "llama",
        "labels": {},
        "address": f"/runs/{number}",
        "start": START + number * DAY,
        "stop": START + number * DAY + 10 * HOUR,
        "attempts": 1,
        "ranks": 2,
        "device": "H100-SXM5",
        "backend": "nccl",
        "torch": "2.13.0",
        "lostflops": "0.1.0",
        "commit": None,
        "steps": 1000,
        "step_ns": 1e9,
        "step_error": 0.001,
        "tokens_per_second": None,
        "samples_per_second": None,
        "mfu": 0.4,
        "total_ns": 20 * HOUR,
        "life": {"training": 16 * HOUR, "starting": HOUR, "restarting": 3 * HOUR},
        "window_ns": 100,
        "normal_ns": 100,
        "lines": {"compute": 50, "comm.wait": 50},
        "hosts": hosts,
        "pace": [],
        "findings": [],
    }
    made = RunSummary(**(values | facts))
    check_summary(made)
    return made


def make_finding(cause: str, gain: float | None, level: str = "found", **facts: Any) -> FindingSummary:
    ends = {"gain_low": None, "gain_high": None} if gain is None else {"gain_low": gain / 2, "gain_high": gain * 1.5}
    return FindingSummary(
        id=cause, level=level, cause=cause, what="", gain=gain, **({"fix": f"fix {cause}"} | ends | facts)
    )

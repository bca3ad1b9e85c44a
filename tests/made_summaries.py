"""Summaries of runs, made by hand or by Hypothesis, with closed sums."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from lostflops.fleet.summary import LIFE, FindingSummary, HostSummary, PaceSummary, RunSummary


def make_summary(run: str, **changes: Any) -> RunSummary:
    """A run of eight ranks on one host."""
    lines = {"compute": 700, "comm.wait": 300}
    known: dict[str, Any] = {
        "run": run,
        "name": "train",
        "labels": {"team": "vision"},
        "address": f"/runs/{run}",
        "start": 1_760_000_000,
        "stop": 1_760_003_600,
        "attempts": 1,
        "ranks": 8,
        "device": "H100",
        "backend": "nccl",
        "torch": "2.13.0",
        "lostflops": "1",
        "commit": None,
        "steps": 100,
        "step_ns": 1e9,
        "step_error": 0.01,
        "tokens_per_second": None,
        "samples_per_second": None,
        "mfu": 0.4,
        "total_ns": 5000,
        "life": {"training": 4000, "starting": 1000},
        "window_ns": 1000,
        "lines": lines,
        "hosts": [HostSummary(host="a", device="H100", ranks=8, window_ns=1000, lines=lines, slower=0.1)],
        "pace": [PaceSummary(attempt=0, start=1_760_000_000, steps=100, step_ns=1e9, slow_ns=1.1e9)],
        "findings": [],
    }
    return RunSummary(**{**known, **changes})


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_times = st.integers(0, 2**50)
_counts = st.integers(0, 2**31 - 1)
_floats = st.floats(allow_nan=False, allow_infinity=False)
_hosts = st.builds(
    lambda lines, **more: HostSummary(window_ns=sum(lines.values()), lines=lines, **more),
    lines=st.dictionaries(_texts, _times, max_size=4),
    host=st.none() | _texts,
    device=st.none() | _texts,
    ranks=_counts,
    slower=st.none() | _floats,
    slower_error=st.none() | _floats,
)
_paces = st.builds(PaceSummary, attempt=_counts, start=_times, steps=_counts, step_ns=_floats, slow_ns=_floats)
_findings = st.builds(
    FindingSummary, **dict.fromkeys(("id", "level", "cause", "what", "fix"), _texts),
    **dict.fromkeys(("gain", "gain_low", "gain_high"), st.none() | _floats),
)  # fmt: skip


@st.composite
def summaries(draw: st.DrawFn) -> RunSummary:
    """Anything that the contract allows."""
    life = draw(st.dictionaries(st.sampled_from(sorted(LIFE)), _times))
    lines = draw(st.dictionaries(_texts, _times, max_size=4))
    start = draw(_times)
    texts = {name: draw(_texts) for name in ("name", "address", "lostflops")}
    unsure = {name: draw(st.none() | _texts) for name in ("device", "backend", "torch", "commit")}
    numbers = ("step_ns", "step_error", "tokens_per_second", "samples_per_second", "mfu")
    return RunSummary(
        run=draw(_texts),
        labels=draw(st.dictionaries(_texts, _texts, max_size=4)),
        start=start,
        stop=start + draw(_counts),
        attempts=draw(_counts),
        ranks=draw(_counts),
        steps=draw(st.none() | _times),
        total_ns=sum(life.values()),
        life=life,
        window_ns=sum(lines.values()),
        lines=lines,
        hosts=draw(st.lists(_hosts, max_size=3)),
        pace=draw(st.lists(_paces, max_size=3)),
        findings=draw(st.lists(_findings, max_size=3)),
        **texts,
        **unsure,
        **{name: draw(st.none() | _floats) for name in numbers},
    )

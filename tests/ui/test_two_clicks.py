"""From the opened page, two clicks reach the event that caused the largest wait, and a copied address shows the same.

Needs the real traces, and makes a run of 1,000 ranks: `pytest -m slow tests/ui/test_two_clicks.py`. A run of
`benchmarks/scale_out.py` is looked at too where LOSTFLOPS_BIG_RUN says where it is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive.derive import with_accounts
from lostflops.account.derive.timeline import TimelineSpan
from lostflops.ingest import ingest
from lostflops.show.pages.page import page_of
from lostflops.show.report.html import write_page
from lostflops.store.run import Run
from tests.ui.seen import SMOOTHED, difference, picture, settle

if TYPE_CHECKING:
    from tests.ui.conftest import OpenPage

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TRACES = ROOT.parent / "shared" / "traces"
REAL = {
    "nanogpt": "KellerJordan__modded-nanogpt/2025-12-11_NorMuonOptimsAndFixes/*-rank?-*.json.gz",
    "torchrec": "meta-pytorch__torchrec/sst_sleep_pl_dense_after_backward_2/*.gz",
}
PLANTED = {"torchrec": 2, "demo": 4, "1,000 ranks": 995, "LOSTFLOPS_BIG_RUN": 995}
"""Late ranks that are known: of the trace by its authors, of the others by their making."""
AS_LONG = 0.99
ROUNDED = 2
"""Nanoseconds: clocks that drift are read in whole ones."""


@dataclass(frozen=True)
class Wait:
    """The longest one of a run, on the clock of the timeline."""

    late: int
    start: int
    stop: int


def run_named(name: str, folder: Path) -> Path:
    """Make the run, or skip without what it is made from."""
    out = folder / "run"
    if name in REAL:
        files = sorted(TRACES.glob(REAL[name]))
        if not files:
            pytest.skip("the real traces are not here")
        ingest(files, out, workers=2)
    elif name == "demo":
        command = [sys.executable, "-m", "lostflops", "demo", "--out", str(out), "--no-browser"]
        subprocess.run(command, check=True, capture_output=True)
    elif name == "1,000 ranks":
        command = [
            sys.executable,
            "benchmarks/big_traces.py",
            str(folder / "traces"),
            *["--ranks", "1000", "--layers", "20", "--steps", "8"],
        ]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        ingest([folder / "traces"], out, workers=2)
    elif "LOSTFLOPS_BIG_RUN" in os.environ:
        return Path(os.environ["LOSTFLOPS_BIG_RUN"])
    else:
        pytest.skip("LOSTFLOPS_BIG_RUN is not set")
    return out


def longest_wait(run: Run) -> Wait:
    [(rank, late, start, stop)] = run.rows(
        """select rank, late_rank, start, stop from stretches
           where line in ('comm.wait', 'comm.bubble') and late_rank is not null
           order by stop - start desc, rank, start limit 1"""
    )
    clock = OneClock.of(run)
    span = TimelineSpan.of(run, clock)
    assert span is not None
    first, last = (clock.to_common(rank, np.array([start, stop])) - span.start).tolist()
    return Wait(late, first, last)


def event_time(run: Run, rank: int, event: int) -> tuple[int, int]:
    [(start, dur)] = run.rows(f"select start, dur from events where rank = {rank} and event = {event}")
    clock = OneClock.of(run)
    span = TimelineSpan.of(run, clock)
    assert span is not None
    first, last = (clock.to_common(rank, np.array([start, start + dur])) - span.start).tolist()
    return first, last


@pytest.mark.parametrize("name", [*REAL, "demo", "1,000 ranks", "LOSTFLOPS_BIG_RUN"])
def test_two_clicks_reach_the_event_that_caused_the_largest_wait(
    open_page: OpenPage, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    with with_accounts(Run.open(run_named(name, tmp_path))) as run:
        with file.open("w", encoding="utf-8") as stream:
            write_page(page_of(run), stream)
        wait = longest_wait(run)
        tab = open_page(file, width=1440)
        # One click if it is the first finding; else Back is not needed, as every card is on the first screen.
        late = PLANTED.get(name, wait.late)
        card = tab.locator("#overview .card").filter(has_text=re.compile(rf"\b[Rr]anks?\b.*\b{late}\b")).first
        card.get_by_role("button", name="Show me").click()
        settle(tab)
        chosen = re.search(r"event=(\d+)\.(\d+)", tab.url)
        assert chosen is not None, tab.url
        rank, event = map(int, chosen.groups())
        start, _ = event_time(run, rank, event)
    assert rank == late, "an event of the rank that all waited for"
    time = re.search(r"time=(\d+)-(\d+)", tab.url)
    assert time is not None, tab.url
    began, ended = map(int, time.groups())
    # The stall before the longest wait of all may not be recorded: it is in the step before the first one.
    assert ended - began >= AS_LONG * (wait.stop - wait.start) - ROUNDED
    assert start < ended, "before the wait was over"
    assert f"rank {rank}" in tab.locator("#timeline .panel dl").inner_text()
    seen = picture(tab)
    copied = open_page(tab.url, width=1440)
    assert difference(copied, seen, picture(copied)) <= SMOOTHED

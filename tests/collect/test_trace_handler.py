from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import lostflops
from lostflops.collect.capture import trace_of

torch = pytest.importorskip("torch", reason="torch is not installed")


class Profiler:
    """Writes what it is told; a torch.profiler would do."""

    def __init__(self, text: str = "{}", error: Exception | None = None) -> None:
        self._text, self._error = text, error

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text(self._text)
        if self._error:
            raise self._error


def test_each_window_of_the_profiler_is_a_trace_of_the_run(tmp_path: Path) -> None:
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=2),
        on_trace_ready=lostflops.trace_handler(tmp_path),
        acc_events=True,
    ) as profiler:
        for _ in range(6):
            torch.ones(3).sum()
            profiler.step()
    files = sorted((tmp_path / "capture").iterdir())
    assert [trace_of(path.name) for path in files] == [(0, 0), (0, 1)]
    steps = [
        {
            event["name"]
            for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
            if "ProfilerStep" in event["name"]
        }
        for path in files
    ]
    assert steps == [{"ProfilerStep#1", "ProfilerStep#2"}, {"ProfilerStep#4", "ProfilerStep#5"}]


def test_traces_of_an_earlier_attempt_are_kept(tmp_path: Path) -> None:
    for text in ("1", "2"):
        lostflops.trace_handler(tmp_path)(Profiler(text))
    assert [gzip.decompress(path.read_bytes()) for path in sorted((tmp_path / "capture").iterdir())] == [b"1", b"2"]


def test_a_trace_that_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="a trace is lost.*disk full"):
        lostflops.trace_handler(tmp_path)(Profiler(error=OSError("disk full")))
    assert list((tmp_path / "capture").iterdir()) == []

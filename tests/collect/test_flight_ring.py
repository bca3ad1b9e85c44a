"""When the ring is read: no entry of a window may be overwritten before."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from lostflops.collect.flight_ring import FlightRing

RING = 2000
STEP = 250_000_000


class Job:
    """Enqueues so many collectives a step into a ring of 2,000, and reads when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, a_step: int) -> None:
        self.a_step, self.enqueued = a_step, 0
        monkeypatch.setattr("lostflops.collect.flight_ring._dump_function", lambda: self._dump)
        monkeypatch.setattr("lostflops.collect.flight_ring.process_groups", dict)
        self.ring = FlightRing(0.01)
        self.read: set[int] = set()
        self.reads = 0

    def _dump(self) -> bytes:
        entries = [
            {
                "record_id": number, "process_group": ["0", ""], "is_p2p": False, "collective_seq_id": number + 1,
                "profiling_name": "gloo:all_reduce", "input_sizes": [[4]], "input_dtypes": ["Float"],
                "time_created_ns": number,
            }
            for number in range(max(0, self.enqueued - RING), self.enqueued)
        ]  # fmt: skip
        return pickle.dumps({"entries": entries})

    def steps(self, windows: tuple[range, ...], is_thinned: bool = False) -> Iterator[int]:
        for step in range(70):
            self.enqueued += self.a_step
            if not is_thinned:
                self.ring.edge(step, STEP)
            self.ring.window_edge(step, is_open=any(step + 1 in window for window in windows))
            if self.ring.is_due:
                self.reads += 1
                record = self.ring.read()
                self.read |= {entry[0] for entry in record["entries"]} if record else set()
            yield step


@pytest.mark.parametrize("is_thinned", [False, True])
@pytest.mark.parametrize("a_step", [1, 192, 400])
def test_windows_are_read_whole_and_a_little_further(
    monkeypatch: pytest.MonkeyPatch, a_step: int, is_thinned: bool
) -> None:
    job = Job(monkeypatch, a_step)
    windows = (range(8, 16), range(44, 52))
    list(job.steps(windows, is_thinned))
    for window in windows:
        needed = set(range(window.start * a_step, (window.stop + 1) * a_step))
        assert needed <= job.read
    assert job.reads <= 16


def test_a_job_without_windows_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, 10)
    list(job.steps(()))
    assert job.reads <= 5

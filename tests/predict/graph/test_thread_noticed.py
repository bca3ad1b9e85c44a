"""Whether the training thread waited for a reduction, where the machine is too busy for records to be prompt."""

import numpy as np
import pytest

from lostflops.predict.graph.threads.calls import HostCalls
from lostflops.predict.graph.threads.waits import Thread, as_noticed, waits
from lostflops.store.intervals import Intervals

MS = 1_000_000


def made(*spans):
    """Reductions of two workers, from and to so many ms."""
    start, stop = (np.array([span[end] * MS for span in spans], np.int64) for end in (0, 1))
    none = np.full(len(spans), -1, np.int64)
    op, group = (np.array([text] * len(spans), np.object_) for text in ("all_reduce", "0@0-1"))
    lanes = np.arange(len(spans)) % 2
    return HostCalls(
        event=np.arange(len(spans)),
        start=start,
        stop=stop,
        noticed=stop,
        lane=lanes,
        asked=none,
        op=op,
        group=group,
        transfer=none == 0,
        lanes=("a", "b"),
    )


def waited(calls, *busy):
    start, stop = (np.array([int(span[end] * MS) for span in busy], np.int64) for end in (0, 1))
    thread = Thread(Intervals.of(start, stop), start, start, np.array([0]), np.array([400 * MS]))
    noticed = as_noticed(calls, thread)
    return [(wait.start // MS, wait.stop // MS, wait.calls) for wait in waits(noticed, calls.start, thread)]


@pytest.mark.parametrize("late", [0, 2, 9])
def test_a_thread_that_goes_on_late_waited(late):
    assert waited(made((10, 300), (20, 200)), (0, 100), (300 + late, 390)) == [(100, 300, (1, 0))]


def test_a_thread_that_goes_on_before_the_end_is_recorded_waited():
    assert waited(made((10, 302), (20, 200)), (0, 100), (300, 390)) == [(100, 300, (1, 0))]


def test_a_thread_that_waits_for_the_next_by_then_waited_for_the_first():
    found = waited(made((10, 201), (20, 300)), (0, 100), (200, 200.5), (300, 390))
    assert found == [(100, 200, (0,)), (200, 300, (1,))]


def test_a_reduction_that_ends_long_after_the_thread_went_on_was_not_waited_for_there():
    found = waited(made((10, 380), (20, 200)), (0, 100), (200, 390))
    assert found[0] == (100, 200, (1,))
    assert found[1][2] == (0,)
    assert found[1][0] >= 380

"""Timelines of one rank, with known stretches of compute and communication, and their replay."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.partition import Partition
from lostflops.account.ledger.windows import LedgerWindow, WindowKind
from lostflops.predict.scaling.replay import replay
from lostflops.predict.scaling.timeline import StepCall, StepTimeline, timeline
from lostflops.store.intervals import Intervals

Spans = Sequence[tuple[int, int]]


def reduced(start: int, stop: int, *, ready: int | None = None, lane: int = 1, op: str = "all_reduce") -> StepCall:
    return StepCall(start, start if ready is None else ready, stop, lane, "0@0-7", op, 1000)


def made(
    compute: Spans, calls: Sequence[StepCall], steps: Spans = ((0, 1000),), link: str | None = "network"
) -> StepTimeline:
    window = LedgerWindow(
        WindowKind.STEPS,
        tuple(range(len(steps))),
        np.array([start for start, _ in steps]),
        np.array([stop for _, stop in steps]),
    )
    busy = Intervals.of([start for start, _ in compute], [stop for _, stop in compute]) & window.inside
    comm = Intervals.of([call.start for call in calls], [call.stop for call in calls]) & window.inside
    lines = {line: Intervals.empty() for line in LINES}
    lines["compute"], lines["comm.transfer"] = busy, comm - busy
    lines["idle.python"] = window.inside - (busy | comm)
    return timeline(Partition(window, lines, busy, comm), calls, lambda _: link)


def scaled(steps: StepTimeline, factor: float, compute: float = 1.0) -> list[float]:
    return [round(ns, 3) for ns in replay(steps, [factor * call.alone for call in steps.queued], compute).tolist()]


def test_what_is_exposed_grows_with_its_transfer() -> None:
    steps = made([(0, 600), (900, 1000)], [reduced(600, 900, ready=700)])
    assert scaled(steps, 1) == [1000]
    assert scaled(steps, 2) == [1200]
    assert scaled(steps, 0) == [800]  # the wait for the late rank stays
    assert (steps.compute + steps.other).tolist() == [700]


def test_what_is_hidden_stays_hidden_until_it_outgrows_compute() -> None:
    steps = made([(0, 1000)], [reduced(200, 600)])
    assert scaled(steps, 0.5) == scaled(steps, 1) == scaled(steps, 2) == [1000]
    assert scaled(steps, 3) == [1400]


def test_a_hidden_gather_is_needed_where_it_ended() -> None:
    steps = made([(0, 1000)], [reduced(200, 600, op="all_gather")])
    assert scaled(steps, 2) == [1400]


def test_a_lane_runs_one_at_a_time() -> None:
    """The second bucket was queued behind the first, both under compute; the last ends alone."""
    buckets = [reduced(100, 400), reduced(400, 700), reduced(700, 1000)]
    steps = made([(0, 800)], buckets)
    assert (steps.compute + steps.other).tolist() == [800]
    assert scaled(steps, 1) == [1000]
    assert scaled(steps, 2) == [1900]


def test_blocking_calls_follow_each_other_on_whatever_thread() -> None:
    calls = [reduced(100, 400, lane=1), reduced(400, 700, lane=2), reduced(710, 1000, lane=1)]
    steps = made([(0, 100)], calls)
    assert (steps.compute + steps.other).tolist() == [110]
    assert scaled(steps, 1) == [1000]
    assert scaled(steps, 2) == [1000 + 300 + 300 + 290]


def test_two_at_once_share_their_link() -> None:
    """Together they move as much as one after the other."""
    calls = [reduced(100, 700, lane=1), reduced(100, 700, lane=2)]
    steps = made([(0, 100), (700, 1000)], calls)
    assert [call.alone for call in steps.queued] == pytest.approx([300, 300])
    assert scaled(steps, 2) == [1600]
    late = made([(0, 400), (900, 1000)], [reduced(100, 700, lane=1), reduced(400, 900, lane=2)])
    assert [call.alone for call in late.queued] == pytest.approx([450, 350])
    # From 100 alone to 400, then both until the first has its 900: 300 + 2 x 600, then what the second has left.
    assert scaled(late, 2) == [1000 + 450 + 350]


def test_calls_without_a_link_do_not_share() -> None:
    calls = [reduced(100, 700, lane=1), reduced(100, 700, lane=2)]
    assert scaled(made([(0, 100), (700, 1000)], calls, link=None), 2) == [1600]


def test_a_host_that_does_something_else_makes_progress() -> None:
    """Nothing ends between 300 and 500, so nobody waited: it would take as long with a network of no latency."""
    steps = made([(0, 300), (500, 1000)], [reduced(100, 800)])
    assert (steps.compute + steps.other).tolist() == [1000]
    assert scaled(steps, 0.1) == [1000]


def test_a_wait_across_the_edge_of_steps_grows_in_both() -> None:
    steps = made([(0, 900), (1100, 2000)], [reduced(900, 1100)], [(0, 1000), (1000, 2000)])
    assert scaled(steps, 1) == [1000, 1000]
    assert scaled(steps, 2) == [1100, 1100]
    assert scaled(steps, 0) == [900, 900]


def test_compute_can_be_divided() -> None:
    steps = made([(0, 600)], [reduced(700, 1000)])
    assert scaled(steps, 1, compute=0.5) == [700]


@st.composite
def timelines(draw: st.DrawFn, lanes: int) -> StepTimeline:
    """Anything that can be recorded: lanes that run one call at a time, and compute wherever."""
    calls = []
    for lane in range(lanes):
        edges = sorted(draw(st.lists(st.integers(0, 3000), max_size=12, unique=True)))
        for start, stop in zip(edges[::2], edges[1::2], strict=False):
            ready = draw(st.integers(start, stop))
            calls.append(reduced(start, stop, ready=ready, lane=lane, op=draw(st.sampled_from(("all_reduce", "x")))))
    edges = sorted(draw(st.lists(st.integers(0, 3000), max_size=12, unique=True)))
    compute = list(zip(edges[::2], edges[1::2], strict=False))
    return made(compute, calls, [(0, 1000), (1000, 2000), (2100, 3000)], draw(st.sampled_from((None, "network"))))


@given(timelines(lanes=3))
def test_unchanged_it_takes_what_it_took(steps: StepTimeline) -> None:
    assert replay(steps) == pytest.approx(steps.measured, abs=0.1)


@given(timelines(lanes=1), st.floats(0, 1))
def test_a_faster_network_never_makes_steps_longer(steps: StepTimeline, factor: float) -> None:
    assert sum(scaled(steps, factor)) <= sum(scaled(steps, 1)) + 0.1


@given(timelines(lanes=2), st.floats(0, 1))
def test_no_step_is_shorter_than_its_progress(steps: StepTimeline, factor: float) -> None:
    assert (replay(steps, [factor * call.alone for call in steps.queued]) >= 0).all()
    whole = (steps.compute + steps.other).sum()
    assert sum(scaled(steps, factor)) >= whole - 0.1


@given(st.integers(1, 900), st.integers(1, 900), st.floats(0, 1))
def test_fully_hidden_stays_hidden_if_transfers_shrink(start: int, length: int, factor: float) -> None:
    steps = made([(0, 2000)], [reduced(start, start + length)], [(0, 2000)])
    assert scaled(steps, factor) == [2000]

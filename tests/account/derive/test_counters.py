"""Counters of ranks against their tables, what `lostflops memory` says, and points searched one by one."""

import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.account.memory.recorded import Recorded
from tests.ui.made_run import recorded_run

from lostflops.account.align.lane_events import Extent
from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive.counters import CounterSeries, counters_within, read_counters
from lostflops.explain.analyze.memory import memory
from lostflops.explain.analyze.timeline import timeline
from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.testing import Clock, SyntheticCluster, store
from made_timed_runs import MS, recorded
from memory_run import MemoryRun
from shared_data import TRACES, needs_traces


def series(points: list[tuple[int, int]], **more: bool) -> CounterSeries:
    time, value = np.array(sorted(points, key=lambda point: point[0]), np.int64).reshape(-1, 2).T
    return CounterSeries(name="made", unit="count", time=time, value=value, **more)


def held(time: list[int], value: list[int], moment: int) -> int:
    """Value that holds at a moment; -1 before all points."""
    return next((one for at, one in reversed(list(zip(time, value, strict=True))) if at <= moment), -1)


POINTS = st.lists(st.tuples(st.integers(0, 200), st.integers(-1, 9)), max_size=60)
WINDOWS = st.tuples(st.integers(-20, 220), st.integers(1, 240)).map(lambda pair: Extent(pair[0], pair[0] + pair[1]))


@given(POINTS, WINDOWS)
def test_points_that_fit_say_what_all_points_say(points, asked):
    made = series(points)
    time, value, thinned = made.within(asked, 1000)
    assert thinned == ""
    for moment in range(asked.start, asked.stop):
        expected = held(made.time.tolist(), made.value.tolist(), moment)
        assert held(time.tolist(), value.tolist(), moment) == expected
    assert held(time.tolist(), value.tolist(), asked.stop) == -1


@given(POINTS, WINDOWS, st.integers(4, 12))
def test_of_more_points_each_bin_has_the_highest(points, asked, most):
    made = series(points)
    time, value, thinned = made.within(asked, most)
    assert time.size <= most
    if not thinned:
        return
    bins = min(most - 1, asked.stop - asked.start)
    edges = [asked.start + (asked.stop - asked.start) * at // bins for at in range(bins + 1)]
    for start, stop in pairwise(edges):
        inside = made.value[(made.time >= start) & (made.time < stop)].tolist()
        highest = max([held(made.time.tolist(), made.value.tolist(), start), *inside])
        if highest >= 0:
            assert held(time.tolist(), value.tolist(), stop - 1) == highest


@given(POINTS, WINDOWS, st.integers(5, 12))
def test_where_lowest_values_matter_both_extremes_are_exact(points, asked, most):
    made = series(points, keeps_lowest=True)
    time, value, thinned = made.within(asked, most)
    assert time.size <= most
    if thinned:
        at = np.maximum(made.time, asked.start)
        first = max(int(np.searchsorted(made.time, asked.start, side="right")) - 1, 0)
        last = int(np.searchsorted(made.time, asked.stop))
        known = [
            one for one in zip(at[first:last].tolist(), made.value[first:last].tolist(), strict=True) if one[1] >= 0
        ]
        kept = list(zip(time.tolist(), value.tolist(), strict=True))[:-1]
        assert set(kept) <= set(known)
        assert kept == sorted(kept, key=lambda point: point[0])
        assert {max(value for _, value in kept), min(value for _, value in kept)} == {
            max(value for _, value in known),
            min(value for _, value in known),
        }


def peaks(run: Run) -> dict[tuple[int, str], int]:
    """Peak of each rank and device that `lostflops memory` reports."""
    tables = {block.name: block for block in (*memory(run).blocks, *memory(run).more)}
    return {(row[0], row[1]): row[2] for row in tables["ranks"].rows}


def counter(run: Run, rank: int, name: str) -> CounterSeries | None:
    found = {one.name: one for one in read_counters(run, OneClock.of(run), rank).series}
    return found.get(name)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with Run.open(recorded_run(tmp_path_factory.mktemp("made"))) as run:
        yield run


def test_memory_peaks_where_the_memory_question_says(made):
    found = {rank: int(counter(made, rank, "memory").value.max()) for rank in made.ranks}
    assert found == {rank: peak for (rank, _), peak in peaks(made).items()}


def test_memory_is_what_the_allocator_says_after_each_event(made):
    clock = OneClock.of(made)
    for rank in made.ranks:
        found = counter(made, rank, "memory")
        rows = made.rows(f"select time, allocated, bytes from memory where rank = {rank}")
        rows.sort(key=lambda row: row[0])
        times = clock.to_common(rank, np.array([time for time, *_ in rows]))
        assert found.time.tolist()[1:] == times.tolist()
        assert found.value.tolist() == [rows[0][1] - rows[0][2], *(allocated for _, allocated, _ in rows)]


@needs_traces
@pytest.mark.parametrize(
    "trace",
    [
        "facebookresearch__HolisticTraceAnalysis/df_index_resolver__df_index_resolver.json.gz",
        "pytorch__kineto/tb_plugin__samples__resnet50_num_workers_0__worker0.1623143566756.pt.trace.json.gz",
    ],
    ids=["with totals", "without totals"],
)
@pytest.mark.few(1)
def test_memory_of_a_real_device_peaks_where_the_memory_question_says(trace, tmp_path):
    ingest([TRACES / trace], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        rank = run.ranks[0]
        found = counter(run, rank, "memory")
        [expected] = {peak for (_, device), peak in peaks(run).items() if device.startswith("cuda")}
        assert found.value.max() == expected
        shown = [one for one in timeline(run).blocks[0].events.counters if one.name == "memory"]
    assert max(shown[0].value) == expected
    assert len(shown[0].at) <= 2000
    assert shown[0].thinned.startswith("highest in each")


@needs_traces
def test_memory_of_the_host_is_not_that_of_a_rank_with_a_device(tmp_path):
    ingest([TRACES / "AMD-AGI__TraceLens/HIST_mi300_ddp_resnet18_train.json.gz"], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        assert run.rows("select distinct device_type from memory") == [(0,)]
        assert counter(run, run.ranks[0], "memory") is None


def cpu_job() -> Recorded:
    job = Recorded("cpu")
    job.step(0, 0, 100)
    job.hold(0, 10_000, 500, "parameters", before=True)
    for at in range(4):
        job.span("aten::mm", 10 + 20 * at, 15 + 20 * at)
        job.alloc(11 + 20 * at, 16 + at, 100 * (at + 1))
    for at in range(4):
        job.free(91 + at, 16 + at)
    return job


def test_memory_of_a_cpu_rank_holds_what_was_registered_too():
    with cpu_job().run() as run:
        found = counter(run, 0, "memory")
        assert found.value.max() == peaks(run)[0, "cpu"] == 1500
    assert found.value.tolist() == [500, 600, 800, 1100, 1500, 1400, 1200, 900, 500]


def test_a_peak_from_before_the_first_event_is_a_peak():
    job = Recorded("cuda:0", base=1000)
    job.step(0, 0, 100)
    job.span("aten::mm", 1, 2)
    job.sizes[5] = 600
    job.free(10, 5)
    job.alloc(20, 6, 100)
    with with_stream(job) as run:
        assert counter(run, 0, "memory").value.tolist() == [1000, 400, 500]


def with_stream(job: Recorded) -> MemoryRun:
    """A run of the job with a stream, which makes its rank one of an accelerator."""
    tables = {name: getattr(job, name) for name in ("events", "memory", "holdings", "steps")}
    ranks = [{"rank": 0, "events": len(job.events), "device_index": 0}]
    return MemoryRun(ranks=ranks, lanes=[{"rank": 0, "lane": 1, "kind": "stream"}], **tables)


def test_samples_are_counted_by_the_step(tmp_path):
    times = [10.0, 20.0, 5.0]
    with Run.open(recorded(tmp_path, times, samples=8)) as run:
        found = counter(run, 0, "samples/s")
        rows = run.rows("select start, stop from timings order by start")
    expected = [round(8e15 / (stop - start)) for start, stop in rows]
    assert found.value.tolist() == [*expected, -1]
    assert found.time.tolist() == [*(start for start, _ in rows), rows[-1][1]]
    assert [value / found.per for value in found.value.tolist()[1:-1]] == [8 / (ms * MS / 1e9) for ms in times]


def test_steps_are_counted_without_timings(tmp_path):
    cluster = SyntheticCluster(ranks=2, steps=3, ranks_per_host=1, clocks={1: Clock(5_000_000, 20.0)})
    with Run.open(store(cluster.generate(), tmp_path / "run", host_names=True)) as run:
        for rank in run.ranks:
            found = counter(run, rank, "steps/s")
            rows = run.rows(f"select device_start, device_stop from steps where rank = {rank} order by step")
            starts = [start for start, _ in rows]
            stops = [*starts[1:], rows[-1][1]]
            expected = [round(1e15 / (stop - start)) for start, stop in zip(starts, stops, strict=True)]
            assert found.value.tolist() == [*expected, -1]
            common = OneClock.of(run).to_common(rank, np.array([*starts, stops[-1]]))
            assert found.time.tolist() == common.tolist()


def test_nothing_is_known_between_steps_that_do_not_follow_each_other():
    steps = [
        {"rank": 0, "step": step, "lane": 0, "start": start, "stop": stop}
        for step, start, stop in ((0, 0, 10), (1, 10, 30), (5, 100, 110))
    ]
    with MemoryRun(ranks=[{"rank": 0, "events": 0}], steps=steps) as run:
        found = counter(run, 0, "steps/s")
    assert found.time.tolist() == [0, 10, 30, 100, 110]
    assert [value >= 0 for value in found.value.tolist()] == [True, True, False, True, False]


def test_a_rank_that_recorded_nothing_has_no_counters():
    with MemoryRun(ranks=[{"rank": 0, "events": 0}]) as run:
        assert read_counters(run, OneClock({}), 0).series == ()


def test_counters_of_a_page_leave_room_for_events(made):
    whole, small = (timeline(made, room=room).blocks[0].events for room in (5_000_000, 20_000))
    assert {(one.row, one.name) for one in small.counters} == {(one.row, one.name) for one in whole.counters}
    assert sum(len(one.at) for one in small.counters) * 6 <= 20_000 / 4
    peak = {(one.row, one.name): max(one.value) for one in whole.counters}
    assert all(max(one.value) == peak[one.row, one.name] for one in small.counters)
    assert len(small.start) > 100


def test_many_ranks_have_no_counters_in_a_page(made, monkeypatch):
    monkeypatch.setattr(sys.modules[timeline.__module__], "MOST_RANKS", 3)
    assert timeline(made).blocks[0].events.counters == ()


def test_a_window_without_points_keeps_the_counter(made):
    counted = [read_counters(made, OneClock.of(made), 0)]
    late = counters_within(made, counted, Extent(0, 1), origin=0)
    assert [(one.name, list(one.at)) for one in late] == [("memory", []), ("launch queue", []), ("steps/s", [])]

"""Cost follows the input: ten times as much of anything costs at most twelve times as much.

The large sizes, and every verb: pytest -m slow tests/integration/test_growth.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import lostflops
import made_growth
from lostflops.core import limits
from lostflops.core.errors import BrokenSource, LostflopsError
from lostflops.core.pictures import Strips
from lostflops.explain.analyze.timeline import timeline
from lostflops.ingest import ingest
from lostflops.ingest.common import vocabulary
from lostflops.store.run import Run

MOST_GROWTH = 12
READ: dict[made_growth.Grow, int] = {
    made_growth.write_fake_headers: 20_000,
    made_growth.write_capture_ranks: 200,
    made_growth.write_capture_sessions: 100,
    made_growth.write_capture_groups: 1_000,
    made_growth.write_capture_stacks: 10_000,
    made_growth.write_op_types: 3_000,
    made_growth.write_op_ranks: 30,
    made_growth.write_op_steps: 5_000,
    made_growth.write_names: 3_000,
    made_growth.write_threads: 3_000,
    made_growth.write_busy_threads: 500,
    made_growth.write_streams: 2_000,
    made_growth.write_processes: 3_000,
    made_growth.write_groups: 500,
    made_growth.write_members: 20_000,
    made_growth.write_steps: 2_000,
    made_growth.write_nesting: 10_000,
    made_growth.write_shapes: 5_000,
    made_growth.write_export_names: 1_000,
    made_growth.write_export_ranks: 20,
    made_growth.write_flight_entries: 300,
    made_growth.write_snapshot_blocks: 1_000,
    made_growth.write_schedule_steps: 500,
    made_growth.write_files: 5,
}
"""Inputs, and the size that is read, and read again ten times as large."""
WIDE = (made_growth.write_names, made_growth.write_busy_threads, made_growth.write_streams, made_growth.write_groups)
ANSWERS: dict[str, Callable[[lostflops.TrainingRun], object]] = {
    "report": lambda run: run.report(),
    "diagnose": lambda run: run.diagnose(),
    "kernels": lambda run: run.kernels(),
    "comm": lambda run: run.comm(),
    "steps": lambda run: run.steps(),
    "ranks": lambda run: run.ranks(),
    "memory": lambda run: run.memory(),
    "flame": lambda run: run.flame(),
    "info": lambda run: run.info(),
    "page": lambda run: run.page(run.folder / "page.html"),
}


def written(folder: Path, write: made_growth.Grow, size: int) -> Path:
    traces = folder / f"traces-{size}"
    traces.mkdir()
    write(traces, size)
    return traces


def cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def reading_cost(folder: Path, traces: Path, tries: int) -> float:
    return min(
        cpu_seconds(lambda at=folder / f"{traces.name}-run-{turn}": ingest([traces], at, workers=1))
        for turn in range(tries)
    )


def grows_alike(write: made_growth.Grow, size: int, folder: Path) -> None:
    small, large = (written(folder, write, count) for count in (size, 10 * size))
    cost = reading_cost(folder, small, 2)  # the first also imports
    growth = reading_cost(folder, large, 1) / cost
    if growth > MOST_GROWTH:  # the machine may have been busy
        growth = min(growth, reading_cost(folder / "again", large, 2) / cost)
    assert growth <= MOST_GROWTH


@pytest.mark.parametrize("write", READ, ids=lambda write: write.__name__)
@pytest.mark.few(6)
def test_ten_times_as_much_costs_ten_times_as_much(write: made_growth.Grow, tmp_path: Path) -> None:
    grows_alike(write, READ[write], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "write", [one for one in READ if one is not made_growth.write_capture_sessions], ids=lambda write: write.__name__
)
def test_a_hundred_times_as_much_costs_a_hundred_times_as_much(write: made_growth.Grow, tmp_path: Path) -> None:
    grows_alike(write, 10 * READ[write], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("write", WIDE, ids=lambda write: write.__name__)
def test_answers_grow_with_the_run(write: made_growth.Grow, tmp_path: Path) -> None:
    costs: list[dict[str, float]] = []
    for size in (READ[write], READ[write], 10 * READ[write]):  # the first is not counted
        folder = tmp_path / f"{len(costs)}"
        folder.mkdir()
        traces = written(folder, write, size)
        costs.append({"ingest": cpu_seconds(lambda at=traces: lostflops.ingest(at, at.parent / "run", workers=1))})
        for name, answer in ANSWERS.items():
            costs[-1][name] = cpu_seconds(lambda ask=answer, at=folder / "run": ask_run(at, ask))
    small, large = costs[1:]
    assert {name: (small[name], large[name]) for name in small if large[name] > MOST_GROWTH * small[name]} == {}


def ask_run(run: Path, answer: Callable[[lostflops.TrainingRun], object]) -> None:
    with lostflops.open(run) as opened, suppress(LostflopsError):  # an error in words is an answer too
        answer(opened)


def test_headers_without_frames_are_skipped_soon(tmp_path: Path) -> None:
    traces = written(tmp_path, made_growth.write_fake_headers, 200_000)
    assert cpu_seconds(lambda: ingest([traces], tmp_path / "run", workers=1)) < 20
    with Run.open(tmp_path / "run") as run:
        assert run.rows("select count from stats where what = 'torn_frames'") == [(1,)]


def test_an_op_trace_with_very_many_types_is_read_soon(tmp_path: Path) -> None:
    traces = written(tmp_path, made_growth.write_op_types, 50_000)
    assert cpu_seconds(lambda: ingest([traces], tmp_path / "run", workers=1)) < 20
    with Run.open(tmp_path / "run") as run:
        assert run.rows("select count(distinct name), count(distinct lane) from events") == [(50_000, 25_001)]


def test_an_op_trace_with_more_ranks_than_any_job_is_refused(tmp_path: Path) -> None:
    traces = written(tmp_path, made_growth.write_op_ranks, limits.LARGEST_WORLD)
    with pytest.raises(BrokenSource, match=r"has 1,000,000 ranks, but Lostflops reads up to 100,000 from a file"):
        ingest([traces], tmp_path / "run", workers=1)


def test_a_capture_with_more_ranks_than_any_job_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lostflops.ingest.common.refusals.MOST_RANKS", 3)
    traces = written(tmp_path, made_growth.write_capture_ranks, 4)
    with pytest.raises(BrokenSource, match=r"has 4 ranks, but Lostflops reads up to 3 from a file"):
        ingest([traces], tmp_path / "run", workers=1)


def test_a_job_with_more_attempts_than_any_is_refused(tmp_path: Path) -> None:
    traces = written(tmp_path, made_growth.write_capture_sessions, limits.MOST_ATTEMPTS + 1)
    with pytest.raises(BrokenSource, match=r"more than 1,000 attempts of a job"):
        ingest([traces], tmp_path / "run", workers=1)


def test_names_beyond_the_budget_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "MOST_NAMES", 100)
    traces = written(tmp_path, made_growth.write_names, 150)
    ingest([traces], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        [(dropped,)] = run.rows("select count from stats where what = 'names_dropped'")
        assert dropped >= 50
        [(events, named)] = run.rows("select count(*), count(name) from events")
        assert (events, named <= 100) == (150, True)


def test_a_page_draws_the_busiest_lanes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lostflops.account.align.longest_events.MOST_DRAWN_LANES", 20)
    traces = written(tmp_path, made_growth.write_threads, 50)
    lostflops.ingest(traces, tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        drawn = timeline(run)
    [rows] = drawn.blocks
    assert isinstance(rows, Strips)
    assert rows.events is not None
    assert len(rows.events.lanes) == 20
    assert any("30 shorter events are left out" in note for note in drawn.notes)

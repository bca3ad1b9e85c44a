"""The median steps of two runs on one time axis, against the truth of synthetic clusters."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lostflops.account.ledger.lines import LINES
from lostflops.core.pictures import Events, Lane, Meetings
from lostflops.explain.compare.aligned_steps import MOST_RANKS, aligned_steps
from lostflops.explain.compare.joined_events import join_events
from lostflops.store.run import Run
from lostflops.testing import Losses, Straggler, SyntheticCluster, Truth, store
from memory_run import MemoryRun

EVEN = SyntheticCluster(ranks=3, steps=5, losses=Losses(alloc=100_000, steps=(11,)))
LATE = replace(EVEN, stragglers=(Straggler(1, "slow_kernels", factor=1.5),))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Truth]]:
    folder = tmp_path_factory.mktemp("made")
    found = {}
    for name, job in (("even", EVEN), ("late", LATE)):
        generated = job.generate()
        store(generated, folder / name)
        found[name] = folder / name, generated.truth
    return found


@pytest.fixture(scope="module")
def found(made) -> Any:
    with Run.open(made["even"][0]) as before, Run.open(made["late"][0]) as after:
        return aligned_steps(before, after)


def median_step(truth: Truth) -> int:
    numbers = [step.step for step in truth.ranks[0].steps]
    walls = {number: sum(rank.steps[place].wall for rank in truth.ranks) for place, number in enumerate(numbers)}
    return sorted(numbers, key=lambda number: walls[number])[(len(numbers) - 1) // 2]


def test_both_medians_are_those_of_the_truth(made, found) -> None:
    told = found.to_json()["medians"]
    for key, name in (("before", "even"), ("after", "late")):
        truth = made[name][1]
        number = median_step(truth)
        assert told[f"{key}_step"] == number != 11, "the step with the stall is not the median"
        walls = [step.wall for rank in truth.ranks for step in rank.steps if step.step == number]
        assert told[f"{key}_ns"] == round(sum(walls) / len(walls))
        assert told[f"{key}_steps"] == 5


def test_rows_are_pairs_of_one_rank_and_the_straggler_is_first(found) -> None:
    names = [name for name, _ in found.rows.rows]
    assert names[:2] == ["A rank 1", "B rank 1"]
    assert sorted(names) == sorted(f"{side} rank {rank}" for side in "AB" for rank in range(3))


def test_each_row_shows_its_step_from_the_same_start(made, found) -> None:
    strips = found.rows
    width = (strips.stop - strips.start) / strips.bins
    for row, codes in strips.rows:
        side, _, rank = row.split()
        truth = made["even" if side == "A" else "late"][1]
        number = median_step(truth)
        steps = {own.rank: next(step for step in own.steps if step.step == number) for own in truth.ranks}
        origin = min(step.start for step in steps.values())
        own = steps[int(rank)]
        drawn = [place for place, code in enumerate(codes) if code]
        assert drawn[0] * width == pytest.approx(own.start - origin, abs=3 * width)
        assert (drawn[-1] + 1) * width == pytest.approx(own.stop - origin, abs=3 * width)
        for code, line in enumerate(LINES, 1):
            assert codes.count(code) * width == pytest.approx(own.lines.get(line, 0), abs=20 * width), (row, line)


def test_the_time_axis_ends_with_the_longer_step(made, found) -> None:
    truth = made["late"][1]
    number = median_step(truth)
    steps = [step for rank in truth.ranks for step in rank.steps if step.step == number]
    longest = max(step.stop for step in steps) - min(step.start for step in steps)
    assert found.rows.start == 0
    assert found.rows.stop == pytest.approx(longest, rel=0.01)


def test_events_of_both_runs_are_below_their_rows(found) -> None:
    events = found.rows.events
    assert events.rows == tuple(name for name, _ in found.rows.rows)
    by_row: dict[str, list[str]] = {name: [] for name in events.rows}
    first = 0
    for lane in events.lanes:
        by_row[events.rows[lane.row]] += [events.names[code] for code in events.name[first : first + lane.events]]
        first += lane.events
    assert first == len(events.start)
    counts = {name: sum("nvjet" in one for one in names) for name, names in by_row.items()}
    assert set(counts.values()) <= {24, 25}, "the matmuls of a step, and one that begins before the last rank ends it"
    assert max(events.launch) <= len(events.start)
    places = {(row, event) for row, event in zip(events.meetings.row, events.meetings.event, strict=True)}
    assert len(places) == len(events.meetings.row) > 0


def test_a_run_without_steps_is_named(made) -> None:
    with Run.open(made["even"][0]) as before, MemoryRun(ranks=[{"rank": 0, "events": 0}]) as after:
        result = aligned_steps(before, after)
    assert result.verdict.startswith("Run B has no profiled step")
    assert not result.blocks


def test_only_the_ranks_that_others_wait_for_most(tmp_path: Path) -> None:
    cluster = SyntheticCluster(ranks=MOST_RANKS + 4, steps=2)
    store(cluster.generate(), tmp_path / "a")
    late = MOST_RANKS + 2
    store(replace(cluster, stragglers=(Straggler(late, "slow_kernels", factor=2),)).generate(), tmp_path / "b")
    with Run.open(tmp_path / "a") as before, Run.open(tmp_path / "b") as after:
        result = aligned_steps(before, after)
    assert len(result.rows.rows) == 2 * MOST_RANKS
    assert result.rows.rows[0][0] == f"A rank {late}"
    assert any(f"{MOST_RANKS} of {MOST_RANKS + 4} ranks" in note for note in result.notes)
    assert not result.rows.events.meetings.meeting, "a part of a collective is not shown as a collective"


def _events(names: tuple[str, ...], launch: list[int], row: int = 0) -> Events:
    count = len(launch)
    meetings = Meetings([5] * 2, [0, 1], [7, 8], [1, 2], [3, 4], [0, 1], [0, 0], ("all_reduce",))
    numbers = list(range(count))
    return Events(
        ("rank 0", "rank 1"),
        (Lane(row, "stream 7", count),),
        ("kernel",),
        names,
        numbers,
        [1] * count,
        [0] * count,
        [place % len(names) for place in numbers],
        numbers,
        launch,
        [0] * count,
        meetings,
    )


def test_joined_events_refer_to_their_own_side() -> None:
    rows = ("A rank 0", "B rank 0", "A rank 1", "B rank 1")
    joined = join_events(
        rows, [(_events(("x", "y"), [0, 1]), {0: 0, 1: 2}), (_events(("y",), [0, 1], 1), {0: 1, 1: 3})]
    )
    assert [lane.row for lane in joined.lanes] == [0, 3]
    assert (joined.names, list(joined.name)) == (("x", "y"), [0, 1, 1, 1])
    assert list(joined.launch) == [0, 1, 0, 3]
    assert list(joined.meetings.meeting) == [5, 5, 11, 11]
    assert list(joined.meetings.row) == [0, 2, 1, 3]

"""The table of marks, from rows made by hand."""

from __future__ import annotations

from typing import Any

from lostflops.account.memory.marks import describe, notes, table
from lostflops.explain.analyze.memory import memory
from memory_run import MemoryRun


def mark(rank: int, number: int, name: str, **more: Any) -> dict[str, Any]:
    row = {"rank": rank, "attempt": 1, "number": number, "name": name, "occurrence": 0, "time": 100 * number + rank}
    empty = {"step": None, "device": None, "allocated": None, "reserved": None, "peak": None, "resident": None}
    return {**row, **empty, **more}


def on_device(allocated: int, peak: int) -> dict[str, Any]:
    return {"device": "cuda:0", "allocated": allocated, "reserved": allocated + 5, "peak": peak, "resident": 900}


MARKS = [
    mark(0, 0, "start", resident=500),
    mark(0, 1, "init", **on_device(40, 45)),
    mark(0, 2, "only 0", **on_device(41, 45)),
    mark(0, 3, "step", **on_device(30, 45), step=0),
    mark(1, 0, "start", resident=500),
    mark(1, 1, "init", **on_device(60, 61)),
    mark(1, 2, "step", **on_device(90, 99), step=0),
    mark(1, 3, "step", **on_device(80, 99), step=1) | {"occurrence": 1},
    mark(1, 0, "an earlier attempt", **on_device(999, 999)) | {"attempt": 0},
]
KEYS = ("title", "ranks", "lowest", "highest", "highest_rank", "least_change", "most_change", "reserved", "peak")


def test_marks_are_compared_over_ranks_and_with_each_ranks_own_mark_before() -> None:
    with MemoryRun(marks=MARKS) as run:
        rows = [tuple(row[key] for key in KEYS) for row in table(run).to_json()]
        alone = [tuple(row[key] for key in KEYS[:4]) for row in table(run, (0,)).to_json()]
    assert rows == [
        ("start", 2, 0, 0, 0, None, None, None, None),  # the device was not used yet, so it held nothing
        ("init", 2, 40, 60, 1, 40, 60, 65, 61),
        ("only 0", 1, 41, 41, 0, 1, 1, 46, 45),
        ("step, step 0", 2, 30, 90, 1, -11, 30, 95, 99),
        ("step, step 1", 1, 80, 80, 1, -10, -10, 85, 99),
    ]
    assert alone == [("start", 1, 0, 0), ("init", 1, 40, 40), ("only 0", 1, 41, 41), ("step", 1, 30, 30)]


def test_a_name_that_repeats_is_compared_within_each_step() -> None:
    """Rank 0 sets the mark in steps 4 and 8, twice in 8; rank 1 only in step 8. It has no step before the first."""
    places = [(0, None), (0, 4), (0, 8), (0, 8), (1, None), (1, 8)]
    numbers = [0, 1, 2, 3, 0, 1]
    rows = [
        mark(rank, number, "loss", occurrence=number, step=step, resident=10 * (number + 1) + rank)
        for number, (rank, step) in zip(numbers, places, strict=True)
    ]
    with MemoryRun(marks=rows) as run:
        found = [(row["title"], row["ranks"], row["lowest"], row["highest"]) for row in table(run).to_json()]
    assert sorted(found) == [
        ("loss", 2, 10, 11),
        ("loss, step 4", 1, 20, 20),
        ("loss, step 8", 2, 21, 30),
        ("loss, step 8 (2)", 1, 40, 40),
    ]


def test_a_name_set_once_by_each_rank_is_one_mark_in_any_step() -> None:
    rows = [mark(0, 0, "saved", step=3, resident=10), mark(1, 0, "saved", step=5, resident=20)]
    with MemoryRun(marks=rows) as run:
        assert [(row["title"], row["step"], row["last_step"]) for row in table(run).to_json()] == [("saved", 3, 5)]


def test_without_a_device_the_memory_is_that_of_the_process() -> None:
    rows = [mark(0, 0, "a", resident=500), mark(0, 1, "b", resident=700), mark(0, 2, "c")]
    with MemoryRun(marks=rows) as run:
        found = table(run)
        data = [(row["kind"], row["highest"], row["most_change"]) for row in found.to_json()]
        says = describe(found)
    assert data == [("process", 500, None), ("process", 700, 200), ("process", None, None)]
    assert says == "The program set 3 marks. 'b' has the most memory: 700 B resident on rank 0."


def test_memory_answers_with_marks_alone_and_says_what_is_missing() -> None:
    lost = {"rank": 0, "what": "marks_dropped", "effect": "dropped", "count": 7, "reason": "too many"}
    with MemoryRun(ranks=[{"rank": 0}, {"rank": 1}], marks=MARKS, stats=[lost]) as run:
        data = memory(run).to_json()
        assert list(notes(run)) == ["7 marks were not recorded: too many."]
    assert data["verdict"].startswith(
        "The program set 5 marks. 'step, step 0' has the most memory: 90 B allocated on its "
    )
    assert data["peak"] is None
    assert len(data["marks"]) == 5
    assert "7 marks were not recorded: too many." in data["notes"]


def test_a_run_without_marks() -> None:
    with MemoryRun(ranks=[{"rank": 0}]) as run:
        assert memory(run).to_json()["marks"] == []

"""The sentence on how a job ended comes from whatever its ranks, their launcher and the command could record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lostflops.account.job.ending import describe_ending, ending_of
from lostflops.ingest import ingest
from lostflops.store.run import Run
from made_captures import BASE, MS, Record, end, fact, frames, session, step, write

OWN = "<module> train.py:40;train_step train.py:31;linear torch/nn/functional.py:9"
OF_TORCH = "train_step train.py:31;all_reduce torch/distributed/distributed_c10d.py:99"


def rank_of(number: int, *facts: Record, steps: int = 5, ended: bool = True) -> list[Record]:
    taken = [step(k, (500 + 100 * k) * MS, (0, 0, 0, 0, 100 * MS)) for k in range(steps)]
    return [session(number, 3), *taken, *facts, *([end(2_000 * MS)] if ended else [])]


def raised(error: str, at: int, stack: str = OWN) -> Record:
    return fact("ended", {"wall": BASE + at * MS, "error": error, "stack": stack})


def failed(code: int | None = None, signal: int | None = None) -> Record:
    return fact("failed", {"wall": BASE, "exit_code": code, "signal": signal, "error": None, "stack": None})


def command(code: int | None = None, signal: int | None = None) -> Record:
    return fact("command", {"start": BASE, "stop": BASE + 3_000 * MS, "exit_code": code, "signal": signal})


def describe_end(folder: Path, ranks: Sequence[list[Record]]) -> str:
    for number, records in enumerate(ranks):
        write(folder / "capture", number, frames(number, f"rank-{number}", records))
    ingest([folder / "capture"], folder, workers=1)
    with Run.open(folder) as run:
        return describe_ending(ending_of(run))


IN_BACKWARD = "train_step train.py:31;backward torch/_tensor.py:7;_engine_run_backward torch/autograd/graph.py:9"
stopped = fact("stopped", {"wall": BASE + 1_000 * MS, "reason": "overhead"})
well = fact("ended", {"wall": BASE + 1_500 * MS, "error": None, "stack": None})


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [
        pytest.param([rank_of(0, well, command(0)), rank_of(1, well, command(0))], "", id="well"),
        pytest.param([rank_of(0, well), rank_of(1, well)], "", id="well without a command"),
        pytest.param([rank_of(0, ended=False), rank_of(1, ended=False)], "", id="still runs, for all that is known"),
        pytest.param(
            [rank_of(0, raised("ValueError", 1_100), command(1), steps=4)],
            "Rank 0 raised ValueError at train.py:31 (train_step), after step 3.",
            id="raised alone",
        ),
        pytest.param(
            [
                rank_of(0, raised("RuntimeError", 1_300, OF_TORCH), failed(1), command(1)),
                rank_of(1, raised("ValueError", 1_100), failed(1), command(1), steps=4),
                rank_of(2, failed(signal=15), command(1), ended=False),
            ],
            "Rank 1 raised ValueError at train.py:31 (train_step), after step 3. Then rank 0 raised RuntimeError at "
            "train.py:31 (train_step) 200 ms later, rank 2 was stopped.",
            id="the earliest error is first",
        ),
        pytest.param(
            [
                rank_of(0, raised("RuntimeError", 1_100, OF_TORCH), failed(1), command(1)),
                rank_of(1, failed(signal=9), command(1), ended=False),
            ],
            "Rank 1 was ended by SIGKILL, after step 4. Then rank 0 raised RuntimeError at train.py:31 (train_step).",
            id="errors follow from a rank that was killed",
        ),
        pytest.param(
            [
                rank_of(0, raised("RuntimeError", 1_100, OF_TORCH), command(1)),
                rank_of(1, command(1), ended=False),
            ],
            "Rank 1 was killed after step 4; by what was not recorded. Then rank 0 raised RuntimeError at train.py:31 "
            "(train_step).",
            id="a rank that nobody saw die",
        ),
        pytest.param(
            [rank_of(0, command(signal=15), ended=False), rank_of(1, command(signal=15), ended=False, steps=4)],
            "The job was ended by SIGTERM after step 3.",
            id="the command was ended",
        ),
        pytest.param(
            [rank_of(0, well, command(0)), rank_of(1, raised("ValueError", 1_100), command(1))],
            "Rank 1 raised ValueError at train.py:31 (train_step), after step 4.",
            id="each rank has a command of its own",
        ),
        pytest.param([rank_of(0, raised("EarlyStop", 900), command(0))], "", id="an error that its command survived"),
        pytest.param(
            [rank_of(0, failed(signal=6), ended=False), rank_of(1, raised("ValueError", 1_100))],
            "Rank 1 raised ValueError at train.py:31 (train_step), after step 4. Then rank 0 was ended by SIGABRT.",
            id="a watchdog aborts who waits",
        ),
        pytest.param(
            [rank_of(0, raised("RuntimeError", 1_100, IN_BACKWARD)), rank_of(1, ended=False)],
            "Rank 1 was killed after step 4; by what was not recorded. Then rank 0 raised RuntimeError at train.py:31 "
            "(train_step).",
            id="the backward pass notices a death",
        ),
        pytest.param(
            [rank_of(0, raised("RuntimeError", 1_100, IN_BACKWARD), failed(1)), rank_of(1, ended=False)],
            "Rank 0 raised RuntimeError at train.py:31 (train_step), after step 4. Then rank 1 was stopped.",
            id="who is not named by the launcher was stopped by it",
        ),
        pytest.param(
            [rank_of(0, stopped, raised("ValueError", 1_100))],
            "Rank 0 raised ValueError at train.py:31 (train_step), after step 4 or a later one.",
            id="the collector stopped before",
        ),
        pytest.param([rank_of(0, well, command(3))], "The job ended with exit code 3 after step 4.", id="exit code"),
        pytest.param(
            [rank_of(0, raised("KeyboardInterrupt", 1_100), command(signal=2))],
            "Rank 0 was interrupted at train.py:31 (train_step), after step 4.",
            id="interrupted",
        ),
        pytest.param(
            [rank_of(0, raised("MemoryError", 900), command(1), steps=0)],
            "Rank 0 raised MemoryError at train.py:31 (train_step), in its first step.",
            id="before a step ended",
        ),
        pytest.param(
            [rank_of(0, fact("ended", "badly"), fact("failed", [1]), fact("command", {"exit_code": "1"}))],
            "",
            id="facts of a stranger",
        ),
    ],
)
def test_the_sentence(tmp_path: Path, ranks: list[list[Any]], sentence: str) -> None:
    assert describe_end(tmp_path, ranks) == sentence


def test_a_restart_that_went_well_ended_well(tmp_path: Path) -> None:
    whole = frames(0, "first", rank_of(0, raised("ValueError", 1_100)))
    second = [session(0, 1, wall=9_000 * MS, restart=1), step(0, 9_500 * MS, (0, 0, 0, 0, MS)), well, command(0)]
    write(tmp_path / "capture", 0, whole + frames(0, "second", [*second, end(9_900 * MS)]))
    ingest([tmp_path / "capture"], tmp_path, workers=1)
    with Run.open(tmp_path) as run:
        assert ending_of(run) is None

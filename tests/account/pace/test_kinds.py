"""Steps of different optimizers are not compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import lostflops as lf
from lostflops.account.job.life import life_of
from lostflops.account.pace.kinds import describe_kinds, step_kinds
from lostflops.account.pace.normal import normal_steps
from lostflops.account.pace.timings import choose_pace, paces
from lostflops.ingest import ingest
from lostflops.store.run import Run
from made_captures import MS, end, fact, frames, session, step, write


def made_run(folder: Path, steps: Sequence[tuple[str | None, int]]) -> Path:
    """A run of steps of these kinds, which take so many ms; optimizer 0 has 8 parameters, each other 1,000 times more
    than the one before."""
    told = [fact("optimizer", {"number": number, "type": "SGD", "parameters": 8 * 1000**number}) for number in range(2)]
    records, now = [session(0, 1), *told], 0
    for number, (kind, ms) in enumerate(steps):
        records.append(step(number, now, (0, 0, 0, 0, ms * MS), kind_of_step=kind))
        now += ms * MS
    write(folder / "capture", 0, frames(0, "one", [*records, end(now)]))
    ingest([folder / "capture"], folder, workers=1)
    return folder


def test_models_in_turn_have_each_their_normal_step(tmp_path: Path) -> None:
    """First 40 steps of 10 ms, then 40 of 200 ms: no step of either is slow."""
    with Run.open(made_run(tmp_path, [("0", 10)] * 40 + [("1", 200)] * 40)) as run:
        normal, pace = normal_steps(run), choose_pace(paces(run))
        assert normal is not None
        assert pace is not None
        assert normal.location.value == pace.p50 == 200 * MS
        assert life_of(run)["training"] == 40 * 210 * MS
        assert describe_kinds(run) == (
            "Steps are of 2 kinds: 40 with SGD of 8.00 k parameters take 200 ms each and 95.2% of the time in steps; "
            "40 with SGD of 8 parameters take 10.0 ms each and 4.8%. What follows is about those with SGD of 8.00 k "
            "parameters."
        )


def test_a_step_of_another_kind_is_slow_for_its_own_kind(tmp_path: Path) -> None:
    steps = [("0", 10)] * 40 + [("1", 200)] * 40
    steps[20] = ("0", 150)
    with Run.open(made_run(tmp_path, steps)) as run:
        assert life_of(run)["stalled"] == 140 * MS


@pytest.mark.parametrize("kinds", [["0"] * 60, [None] * 60, ["0"] * 58 + ["0+1"] * 2])
def test_one_kind_is_not_mentioned(tmp_path: Path, kinds: list[str | None]) -> None:
    with Run.open(made_run(tmp_path, [(kind, 10) for kind in kinds])) as run:
        assert step_kinds(run) == []
        assert describe_kinds(run) == ""


def test_steps_of_two_kinds_have_no_period(tmp_path: Path) -> None:
    """Every third step also trains a second model: that is what the job is for, not a loss that comes back."""
    steps = [("0+1", 50 + number % 7) if number % 3 == 2 else ("0", 10 + number % 5) for number in range(120)]
    with Run.open(made_run(tmp_path, steps)) as run:
        (first, second) = step_kinds(run)
        assert (first.is_main, second.is_main) == (False, True)
        assert life_of(run)["stalled"] == 0
    with lf.open(tmp_path) as opened:
        assert opened.diagnose().to_json()["findings"] == []

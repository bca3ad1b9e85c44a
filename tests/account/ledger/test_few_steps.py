"""A few steps stand for a large run: which, what they show, and that what is predicted from them is what all say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lostflops.account.ledger import few_steps as module
from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.few_steps import describe_chosen_steps, few_steps, is_large, step_times
from lostflops.account.ledger.scope import scope
from lostflops.ingest import ingest
from lostflops.predict.graph.build import build
from lostflops.predict.whatif.baseline import baseline
from lostflops.predict.whatif.whatif import whatif
from lostflops.show.serve.work import StoppableRun, Stopped
from lostflops.store.run import Run
from lostflops.testing import Straggler, SyntheticCluster, store

STEPS = 12


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    late = Straggler(rank=2, cause="slow_kernels", factor=1.3)
    return store(
        SyntheticCluster(ranks=4, steps=STEPS, stragglers=(late,)).generate(), tmp_path_factory.mktemp("few") / "run"
    )


def events(run: Run) -> int:
    return int(run.sql("select sum(events) from ranks").fetchall()[0][0])


def test_a_small_run_is_its_own(path: Path) -> None:
    with Run.open(path) as run:
        assert few_steps(run) is run
        assert few_steps(run, events(run)) is run
        assert describe_chosen_steps(run) == ""
        assert run.whole is run


@pytest.mark.parametrize(("share", "size"), [(0.5, 6), (0.26, 3), (0.01, 1)])
def test_as_many_steps_as_fit_and_never_none(path: Path, share: float, size: int) -> None:
    with Run.open(path) as run:
        few = few_steps(run, int(events(run) * share))
        assert len(few.steps) == size
        assert list(few.steps) == list(range(few.steps[0], few.steps[0] + size))
        assert few.whole is run
        assert few_steps(few, 1) is few


def test_only_their_rows_are_shown_and_all_ranks(path: Path) -> None:
    with Run.open(path) as run:
        few = few_steps(run, events(run) // 4)
        for name in ("events", "steps", "collectives"):
            shown, all_of_them = (
                one.sql(f"select step, count(*) from {name} where step is not null group by step").fetchall()
                for one in (few, run)
            )
            assert dict(shown) == {step: rows for step, rows in all_of_them if step in few.steps}
        assert few.ranks == run.ranks
        assert few.sql("select count(*) from ranks").fetchall() == run.sql("select count(*) from ranks").fetchall()


def test_step_times_are_those_of_the_graph(path: Path) -> None:
    with Run.open(path) as run:
        number, took = step_times(run)
        steps = build(run).steps
    assert number.tolist() == steps.number.tolist()
    assert took.tolist() == steps.measured.tolist()


def test_what_is_predicted_from_them_is_what_all_say(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [("straggler", "removed")]
    with Run.open(path) as run:
        whole = whatif(run, asked, keep=False).to_json()
        monkeypatch.setattr("lostflops.predict.whatif.baseline.few_steps", lambda run: few_steps(run, events(run) // 4))
        few = whatif(run, asked, keep=False).to_json()
        assert len(set(baseline(run).graph.steps.number.tolist())) == STEPS // 4
    assert few["saving"]["value"] == pytest.approx(whole["saving"]["value"], abs=0.01)
    assert few["baseline"]["measured_ns"] == pytest.approx(whole["baseline"]["measured_ns"], rel=0.05)
    assert any(note.startswith("The run is large, so only steps") for note in few["notes"])
    assert not any("Only one step was recorded" in note for note in few["notes"])


def test_chance_is_told_by_all_steps(path: Path) -> None:
    with Run.open(path) as run:
        few = few_steps(run, 1)
        assert len(few.steps) == 1
        assert (baseline(few).noise, baseline(few).recorded) == (baseline(run).noise, STEPS)


def test_steps_that_are_not_like_all_do_not_stand_for_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run.open(path) as run:
        times = module.step_times

        def longer(one: Run) -> tuple[np.ndarray, np.ndarray]:
            number, took = times(one)
            return number, took * 2 if one.steps else took

        monkeypatch.setattr(module, "step_times", longer)
        assert few_steps(run, events(run) // 4) is run


def test_a_run_is_large_where_its_few_steps_are(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run.open(path) as run:
        assert not is_large(run)
        monkeypatch.setattr(module, "AFFORDED", events(run) - 1)
        assert is_large(run)
        monkeypatch.setattr(module, "few_steps", lambda run, **options: few_steps(run, events(run) // 4, **options))
    with Run.open(path) as run:
        assert not is_large(run)


def without(folder: Path, dropped: Callable[[int, dict[str, Any]], bool]) -> Path:
    """A run of traces that lack the events of a rank for which that holds."""
    files = SyntheticCluster(ranks=2, steps=STEPS).generate().traces.write(folder / "traces")
    for rank, file in enumerate(files):
        trace = json.loads(file.read_text())
        trace["traceEvents"] = [event for event in trace["traceEvents"] if not dropped(rank, event)]
        file.write_text(json.dumps(trace))
    ingest(files, folder / "run", workers=1)
    return folder / "run"


def shares(run: Run) -> dict[str, float]:
    total: dict[str, int] = {}
    for one in ledgers(run, scope(run, None)):
        total = {line: ns + total.get(line, 0) for line, ns in one.lines.items()}
    return {line: ns / sum(total.values()) for line, ns in total.items()}


def test_devices_whose_launches_were_not_recorded_are_shown(tmp_path: Path) -> None:
    launches = ("cuda_runtime", "cuda_driver", "ac2g")
    with Run.open(without(tmp_path, lambda rank, event: event.get("cat") in launches)) as run:
        assert run.sql("select count(*) from events where kind = 'kernel' and step is not null").fetchall() == [(0,)]
        few = few_steps(run, events(run) // 2)
        assert len(few.steps) == STEPS // 2
        assert shares(few)["compute"] == pytest.approx(shares(run)["compute"], abs=0.1)
        shown, met = (
            "select count(*) from collectives",
            "select count(*) from arrivals join collectives using (rank, event)",
        )
        assert few.sql(shown).fetchall() == few.sql(met).fetchall() != run.sql(shown).fetchall()


def test_they_are_steps_that_every_rank_recorded(tmp_path: Path) -> None:
    def late(rank: int, event: dict[str, Any]) -> bool:
        name = str(event.get("name"))
        return rank == 1 and name.startswith("ProfilerStep#") and int(name.partition("#")[2]) < 10 + STEPS // 2

    with Run.open(without(tmp_path, late)) as run:
        all_of_them, by_rank_1 = (
            {step for (step,) in run.sql(f"select step from steps where rank in ({ranks})").fetchall()}
            for ranks in ("0, 1", "1")
        )
        assert len(by_rank_1) == STEPS // 2 < len(all_of_them) == STEPS
        for share in (2, 4, 12):
            assert set(few_steps(run, events(run) // share).steps) <= by_rank_1


def test_it_keeps_the_limits_of_the_run_and_its_steps_for_other_threads(path: Path) -> None:
    with Run.open(path, {"memory_limit": "300MiB"}) as run:
        few = few_steps(run, events(run) // 4)
        assert few.sql("select current_setting('memory_limit')").fetchall() == [("300.0 MiB",)]
        with few.beside() as other:
            assert (other.steps, other.whole) == (few.steps, run)
            assert (
                other.sql("select count(*) from events").fetchall() == few.sql("select count(*) from events").fetchall()
            )
        assert run.sql("select count(distinct step) from steps").fetchall() == [(STEPS,)]


def test_it_ends_when_the_run_is_told_to(path: Path) -> None:
    with StoppableRun.open(path) as run:
        few = few_steps(run, events(run) // 4)
        assert few.steps
        run.stop()
        with pytest.raises(Stopped):
            few.sql("select 1")

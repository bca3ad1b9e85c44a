"""Predictions are kept, found again and scored."""

import errno
import fcntl
import os
import re
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from lostflops.core.errors import BrokenRun, UsageError
from lostflops.core.results import Result
from lostflops.ingest import ingest
from lostflops.predict.whatif.predictions import StoredPrediction, find, load_predictions
from lostflops.predict.whatif.score import list_predictions, score, step_times
from lostflops.predict.whatif.whatif import whatif
from lostflops.store.commit import RunWriter
from lostflops.store.run import Run
from lostflops.store.seals import UNSEALED, seal
from lostflops.testing import SyntheticCluster
from made_whatif import CHANGES, disk_run, made, of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, `old` and `new`; kernels of the new one take twice as long."""
    folder = tmp_path_factory.mktemp("runs")
    disk_run(folder / "old")
    disk_run(folder / "new", slower=2)
    return folder


@pytest.fixture
def folder(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    copytree(runs, tmp_path / "jobs")
    return tmp_path / "jobs"


def mean(path: Path) -> int:
    with Run.open(path) as run:
        times = step_times(run)
        return round(sum(times) / len(times))


def ask(path: Path, network: str = "2x", level: int = 100) -> Result:
    with Run.open(path) as run:
        return whatif(run, [("network", network)], build=of(made((level,) * 3)), known=CHANGES)


def asked(path: Path, network: str = "2x", level: int = 100) -> str:
    return str(ask(path, network, level).to_json()["prediction_id"])


def scored(prediction: StoredPrediction, holder: Path, path: Path) -> Result:
    with Run.open(path) as run:
        return score(prediction, holder, run)


def test_the_same_question_is_kept_once(folder: Path) -> None:
    first = asked(folder / "old")
    (before,) = load_predictions(folder / "old")
    assert asked(folder / "old") == first
    assert asked(folder / "old", "4x") != first
    assert [kept for kept in load_predictions(folder / "old") if kept.id == first] == [before]
    assert (before.text, before.predicted_ns, before.interval) == ("network=2x", 90, (85, 95))
    assert (before.run.path, before.run.ranks) == (str(folder / "old"), 2)
    assert not [path for path in (folder / "old" / "predictions").iterdir() if path.name.startswith(".")]


def test_a_run_that_cannot_be_written_is_answered_all_the_same(folder: Path) -> None:
    (folder / "old" / "predictions").write_text("in the way")
    told = ask(folder / "old")
    assert told.to_json()["prediction_id"] is None
    assert any("could not be stored" in note for note in told.notes)
    assert told.to_json()["predicted_ns"] == 90


def test_no_prediction_is_written_out_of_a_run_of_strangers(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (folder / "old" / "predictions").symlink_to(own)
    told = ask(folder / "old")
    assert any("could not be stored" in note for note in told.notes)
    assert list(own.iterdir()) == []
    (folder / "old" / "predictions").unlink()
    kept = asked(folder / "old")
    file = folder / "old" / "predictions" / f"{kept}.json"
    (own / "notes").write_text("mine")
    file.with_name(f".{file.name}.{os.getpid()}").symlink_to(own / "notes")
    prediction, holder = find(kept, [folder / "old"])
    assert not any("could not be stored" in note for note in scored(prediction, holder, folder / "new").notes)
    assert (own / "notes").read_text() == "mine"
    forged = file.read_text().replace(f'"{kept}"', '"../../../own/planted"')
    file.write_bytes(seal(re.sub('"seal": "[0-9a-f]+"', f'"seal": "{UNSEALED}"', forged).encode()))
    with pytest.raises(BrokenRun, match="holds another prediction"):
        find(kept, [folder / "old"])


def test_predictions_outlive_another_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    traces = SyntheticCluster(ranks=2).generate().traces.write(tmp_path / "traces")
    ingest(traces, tmp_path / "run", workers=1)
    kept = asked(tmp_path / "run")
    ingest(traces, tmp_path / "run", workers=1, replace=True)
    assert [prediction.id for prediction in load_predictions(tmp_path / "run")] == [kept]
    with Run.open(tmp_path / "run") as run:
        assert not list_predictions(run).notes
    (tmp_path / "run" / "run.json").unlink()
    rmtree(tmp_path / "run" / "data")
    other = SyntheticCluster(ranks=2, seed=5).generate().traces.write(tmp_path / "others")
    ingest(other, tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        assert kept in list_predictions(run).notes[0]


def test_found_by_the_index_beside_or_as_told(folder: Path, tmp_path: Path) -> None:
    kept = asked(folder / "old")
    assert find(kept, [])[1] == folder / "old"
    (tmp_path / "state" / "lostflops" / "predictions.jsonl").write_text("no json\n")
    assert find(kept, [folder])[1] == folder / "old"
    assert find(kept, [folder / "old"], known=False)[1] == folder / "old"
    with pytest.raises(UsageError, match="--from RUN"):
        find(kept, [folder / "new"])
    with pytest.raises(UsageError, match="is not a prediction id"):
        find("../../etc", [folder])


def test_what_a_killed_writer_left_is_removed_and_hides_nothing(folder: Path, tmp_path: Path) -> None:
    run, index = folder / "old", tmp_path / "state" / "lostflops" / "predictions.jsonl"
    index.parent.mkdir(parents=True)
    index.write_text('{"id":"p-00000000","run":"/half a li')
    draft = run / "predictions" / ".p-00000000.json.1"
    draft.parent.mkdir()
    draft.write_text("{")
    assert find(asked(run), [])[1] == run
    assert not draft.exists()
    draft.write_text("{")
    with RunWriter(run):
        pass
    assert not draft.exists()


def test_without_locks_a_draft_may_be_one_that_somebody_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    draft = folder / "old" / "predictions" / ".p-00000000.json.1"
    draft.parent.mkdir()
    draft.write_text("{")
    kept = asked(folder / "old")
    assert draft.exists()
    assert (draft.parent / f"{kept}.json").exists()


def test_a_run_that_moved_is_found_where_it_is_now(folder: Path) -> None:
    kept = asked(folder / "old")
    (folder / "old").rename(folder / "moved")
    found, holder = find(kept, [folder])
    assert holder == folder / "moved"
    scored(found, holder, folder / "new")
    assert len(next(load_predictions(folder / "moved")).scores) == 1


@pytest.mark.parametrize(
    ("factor", "inside", "sign_right"),
    [(0.99, True, True), (1.5, False, False), (0.5, False, True)],
)
def test_scores(folder: Path, factor: float, inside: bool, sign_right: bool) -> None:
    """A gain of 10% is predicted; the new run then takes `factor` of what was predicted."""
    level = round(mean(folder / "new") / 0.9 / factor)
    kept = asked_at(folder / "old", level)
    told = scored(*find(kept, []), folder / "new").to_json()
    assert told["score"]["measured_ns"] == mean(folder / "new")
    assert told["score"]["error"] == pytest.approx(1 / factor - 1, rel=1e-3)
    assert (told["score"]["inside"], told["score"]["sign_right"]) == (inside, sign_right)
    (entry,) = next(load_predictions(folder / "old")).scores
    assert (entry.inside, entry.sign_right, entry.run.path) == (inside, sign_right, str(folder / "new"))


def asked_at(path: Path, level: int) -> str:
    """A prediction of 90% of `level`."""
    from dataclasses import replace

    import numpy as np

    from lostflops.predict.graph.editing import retime_graph

    graph = made((level,) * 3)
    scale = level / 100
    grown = retime_graph(
        graph,
        duration=np.round(graph.tasks.duration * scale).astype(np.int64),
        transfer=np.round(graph.meetings.transfer * scale).astype(np.int64),
    )
    with Run.open(path) as run:
        told = whatif(run, [("network", "2x")], build=of(replace(grown)), known=CHANGES).to_json()
    assert told["predicted_ns"] == pytest.approx(0.9 * level, abs=2)
    return str(told["prediction_id"])


def test_the_run_itself_is_no_score(folder: Path) -> None:
    told = scored(*find(asked(folder / "old"), []), folder / "old")
    assert told.verdict.startswith("No score: the prediction was made from this run.")
    assert not next(load_predictions(folder / "old")).scores


def test_a_run_is_scored_once_and_one_that_was_known_is_noted(folder: Path) -> None:
    kept = asked(folder / "old")
    for _ in range(2):
        told = scored(*find(kept, []), folder / "new")
    assert any("before the prediction was made" in note for note in told.notes)
    assert told.to_json()["score"]["in_advance"] is False
    with Run.open(folder / "old") as run:
        rows = list_predictions(run).to_json()["predictions"]
    assert [row["prediction_id"] for row in rows] == [kept]


def test_a_run_that_was_recorded_later(folder: Path) -> None:
    found, holder = find(asked(folder / "old"), [])
    found.date = "2000-01-01T00:00:00+00:00"
    told = scored(found, holder, folder / "new")
    assert told.to_json()["score"]["in_advance"] is True
    assert not told.notes


def test_other_ranks_are_noted(folder: Path) -> None:
    found, holder = find(asked(folder / "old"), [])
    found.run.ranks = 4
    assert any("4 ranks before, 2 ranks after" in note for note in scored(found, holder, folder / "new").notes)


def test_a_damaged_file_says_so(folder: Path) -> None:
    kept = asked(folder / "old")
    (folder / "old" / "predictions" / f"{kept}.json").write_text("{")
    with pytest.raises(BrokenRun, match="is damaged"):
        find(kept, [])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_run(folder: Path) -> None:
    (folder / "old").chmod(0o555)
    try:
        assert ask(folder / "old").to_json()["prediction_id"] is None
    finally:
        (folder / "old").chmod(0o755)


def test_a_run_without_steps_says_how_to_get_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = asked(folder / "old")
    monkeypatch.setattr("lostflops.predict.whatif.score.step_times", lambda run: [])
    with pytest.raises(UsageError, match=r"recorded no whole step.*profiler\.step\(\)"):
        scored(*find(kept, []), folder / "new")

"""A run is the old one or the new one, whatever happens to the writer."""

import os
import re
import socket
import subprocess
import sys
from collections import Counter

import pytest

from lostflops.core.errors import BrokenRun, RunBusy, RunError, RunTooNew
from lostflops.store import commit, manifest
from lostflops.store.commit import RunWriter, rank_rows
from lostflops.store.manifest import load
from lostflops.store.run import Run


def names(folder):
    with Run.open(folder) as run:
        return run.sql("select rank, name from lanes order by rank, lane").fetchall()


def named_files(folder):
    return {"run.json"} | {file.path for files in load(folder).files.values() for file in files}


def test_a_commit_makes_a_run(made):
    made.put([3, 1])
    assert names(made.folder) == [(1, "first"), (1, "first+"), (3, "first"), (3, "first+")]
    with Run.open(made.folder) as run:
        assert run.ranks == (1, 3)
        assert run.sql("select rank, source, events from ranks order by rank").fetchall() == [
            (1, "/traces/kineto-1.json", 1),
            (3, "/traces/kineto-3.json", 1),
        ]
    assert made.files() == named_files(made.folder)


def test_generations_count_up_and_keep_parts_that_did_not_change(made):
    made.put([0])
    before = load(made.folder)
    made.put([1])
    after = load(made.folder)
    assert (before.generation, after.generation) == (1, 2)
    assert before.files["lanes"][0] in after.files["lanes"]


def test_an_exception_leaves_the_old_run_and_nothing_else(made):
    made.put([0])
    before, manifest_text = made.files(), (made.folder / "run.json").read_bytes()
    with pytest.raises(ZeroDivisionError), RunWriter(made.folder) as run:  # noqa: PT012 - the block is what is interrupted
        made.part(run, 0, "second")
        made.part(run, 7, "second")
        raise ZeroDivisionError
    assert made.files() == before
    assert (made.folder / "run.json").read_bytes() == manifest_text
    assert names(made.folder) == [(0, "first"), (0, "first+")]


def test_leaving_without_a_commit_changes_nothing(made):
    made.put([0])
    before = made.files()
    with RunWriter(made.folder) as run:
        made.part(run, 7, "second")
    assert made.files() == before
    assert not [path for path in (made.folder / "data").rglob("*") if path.is_dir() and not any(path.iterdir())]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_an_exception_in_a_new_run_leaves_no_folder(made, error):
    with pytest.raises(error), RunWriter(made.folder) as run:  # noqa: PT012 - the block is what is interrupted
        made.part(run, 0, "first")
        raise error
    assert not made.folder.exists()


def test_an_exception_in_an_empty_folder_leaves_it_empty(made):
    made.folder.mkdir()
    with pytest.raises(ZeroDivisionError), RunWriter(made.folder):
        raise ZeroDivisionError
    assert list(made.folder.iterdir()) == []


@pytest.mark.parametrize("is_new", [True, False])
def test_an_interrupt_behind_the_switch_leaves_the_new_run(made, is_new):
    """Ctrl-C may arrive between the rename of the manifest and the end of the `with`."""
    if not is_new:
        made.put([0])
    with pytest.raises(KeyboardInterrupt), RunWriter(made.folder) as run:  # noqa: PT012 - the block is what is interrupted
        run.commit([made.source(0)], {"lanes": [made.part(run, 0, "second")]})
        raise KeyboardInterrupt
    assert names(made.folder) == [(0, "second"), (0, "second+")]


def test_an_interrupt_inside_the_switch_leaves_the_old_or_the_new_run(made, monkeypatch):
    """The manifest is renamed, and the interrupt comes while the folder is made durable."""
    made.put([0])

    def interrupted(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), RunWriter(made.folder) as run:  # noqa: PT012 - the block is what is interrupted
        part = made.part(run, 0, "second")
        monkeypatch.setattr(manifest.os, "open", interrupted)
        run.commit([made.source(0)], {"lanes": [part]})
    assert names(made.folder) in ([(0, "first"), (0, "first+")], [(0, "second"), (0, "second+")])


def test_a_failing_manifest_leaves_the_old_run(made, monkeypatch):
    made.put([0])

    def full(*_):
        raise OSError(28, "No space left on device")

    before = made.files()
    monkeypatch.setattr(manifest, "save", full)
    with pytest.raises(OSError, match="No space"):
        made.put([0], "second")
    monkeypatch.undo()
    assert names(made.folder) == [(0, "first"), (0, "first+")]
    assert made.files() == before


def test_what_an_interrupted_ingest_left_is_removed_by_the_next(made):
    made.put([0])
    for leftover in ("data/000002/events/kineto-000001.parquet", "data/000009/x/y.parquet", "data/000002/tmp123"):
        path = made.folder / leftover
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half a fi")
    (made.folder / ".run.json.new").write_bytes(b'{"schema": 1, "wri')
    old = named_files(made.folder)
    made.put([1])
    assert made.files() == named_files(made.folder) | old
    assert names(made.folder) == [(0, "first"), (0, "first+"), (1, "first"), (1, "first+")]


def test_what_an_interrupted_first_ingest_left_is_no_foreign_folder(made):
    (made.folder / "data" / "000001" / "lanes").mkdir(parents=True)
    (made.folder / "data" / "000001" / "lanes" / "kineto-000000.parquet").write_bytes(b"half")
    (made.folder / ".lock").touch()
    made.put([0])
    assert names(made.folder) == [(0, "first"), (0, "first+")]


def test_parts_that_were_replaced_are_removed_by_the_next(made):
    """Not at once: a reader may still be using them."""
    made.put([0])
    made.put([0], "second")
    second = named_files(made.folder)
    made.put([1], "third")
    assert made.files() == named_files(made.folder) | second
    assert names(made.folder) == [(0, "second"), (0, "second+"), (1, "third"), (1, "third+")]


def test_a_reader_of_the_old_run_is_not_disturbed_by_one_commit(made):
    made.put([0])
    with Run.open(made.folder) as old:
        made.put([0], "second")
        assert old.sql("select name from lanes order by lane").fetchall() == [("first",), ("first+",)]


def test_a_second_writer_is_told_to_wait(made):
    made.put([0])
    with RunWriter(made.folder), pytest.raises(RunBusy, match="another ingest"), RunWriter(made.folder):
        pass
    made.put([1])
    assert len(names(made.folder)) == 4


def test_a_second_process_is_told_to_wait(made):
    code = (
        "import sys; from pathlib import Path; from lostflops.core.errors import RunBusy; "
        "from lostflops.store.commit import RunWriter\n"
        "try:\n  RunWriter(Path(sys.argv[1])).__enter__()\n"
        "except RunBusy: sys.exit(42)"
    )
    with RunWriter(made.folder):
        done = subprocess.run([sys.executable, "-c", code, made.folder], check=False, timeout=60)
    assert done.returncode == 42


@pytest.mark.parametrize("is_early", [False, True])
def test_who_is_refused_learns_who_writes(made, is_early):
    what = "the job of .* is adding its newest window" if is_early else "another ingest"
    said = rf"^{what}.* \(process {os.getpid()} on {re.escape(socket.gethostname())}\)"
    with (
        RunWriter(made.folder, is_early=is_early),
        pytest.raises(RunBusy, match=said) as refused,
        RunWriter(made.folder),
    ):
        pass
    assert refused.value.is_early is is_early


def test_what_else_stands_in_a_lock_is_not_repeated(made):
    with RunWriter(made.folder):
        (made.folder / ".lock").write_text("early 1 \x1b[2J")
        with pytest.raises(RunBusy, match=r"^another ingest is writing") as refused, RunWriter(made.folder):
            pass
    assert not refused.value.is_early


def test_a_refused_writer_does_not_free_the_lock(made):
    with RunWriter(made.folder):
        for _ in range(2):
            with pytest.raises(RunBusy), RunWriter(made.folder):
                pass


@pytest.mark.parametrize("foreign", ["notes.txt", "traces/rank0.json", "data/rank0.json", "data/000001/rank0.json"])
def test_a_foreign_folder_is_refused_and_left_as_it_was(made, foreign):
    precious = made.folder / foreign
    precious.parent.mkdir(parents=True)
    precious.write_text("precious")
    with pytest.raises(RunError, match="other files"), RunWriter(made.folder):
        pass
    assert precious.read_text() == "precious"
    assert {path for path in made.folder.rglob("*") if not path.is_dir()} == {precious}


def test_a_file_in_the_place_of_a_run_is_refused(made):
    made.folder.write_text("precious")
    with pytest.raises(RunError, match="cannot be written"), RunWriter(made.folder):
        pass
    assert made.folder.read_text() == "precious"


@pytest.mark.parametrize(
    ("text", "error"), [("{", BrokenRun), ('{"schema": 99}', RunTooNew), ('{"schema": 0}', RunError)]
)
def test_a_run_that_cannot_be_read_is_not_written_to(made, text, error):
    made.put([0])
    before = made.files()
    (made.folder / "run.json").write_text(text)
    with pytest.raises(error), RunWriter(made.folder):
        pass
    assert made.files() == before
    assert (made.folder / "run.json").read_text() == text


@pytest.fixture
def few(monkeypatch):
    """Ranges from 5 ranks on, 4 ranks in each."""
    monkeypatch.setattr(commit, "MOST_SINGLE_RANKS", 4)
    monkeypatch.setattr(commit, "RANKS_PER_FILE", 4)


def ranges(folder):
    return sorted(file.ranks for file in load(folder).files["lanes"])


def test_very_many_ranks_share_files(made, few):
    made.put([0, 1, 2, 5])
    assert ranges(made.folder) == [[0], [1], [2], [5]]
    made.put([9])
    assert ranges(made.folder) == [[0, 1, 2], [5], [9]]
    assert names(made.folder) == [(rank, name) for rank in (0, 1, 2, 5, 9) for name in ("first", "first+")]


def test_replacing_one_rank_of_a_range_keeps_the_others(made, few):
    made.put(list(range(10)))
    made.put([5], "second")
    expected = [
        (rank, name + plus) for rank in range(10) for name in [("first", "second")[rank == 5]] for plus in ("", "+")
    ]
    assert names(made.folder) == expected
    assert ranges(made.folder) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    made.put([20], "third")
    assert names(made.folder) == [*expected, (20, "third"), (20, "third+")]


def test_ranges_that_did_not_change_are_not_written_again(made, few):
    made.put(list(range(10)))
    before = {tuple(file.ranks): file.path for file in load(made.folder).files["lanes"]}
    made.put([5], "second")
    after = {tuple(file.ranks): file.path for file in load(made.folder).files["lanes"]}
    assert [ranks for ranks in before if after[ranks] != before[ranks]] == [(4, 5, 6, 7)]


def test_a_range_can_be_replaced_again_and_again(made, few):
    made.put(list(range(6)))
    for number in range(4):
        made.put([1, 4], f"turn {number}")
    assert Counter(name for _, name in names(made.folder)) == {"first": 4, "first+": 4, "turn 3": 2, "turn 3+": 2}


def test_formats_do_not_share_a_file(made, few):
    with RunWriter(made.folder) as run:
        sources = [made.source(rank, f) for rank in range(6) for f in ("kineto", "flight_recorder")]
        parts = [made.part(run, s.rank, s.format, s.format) for s in sources]
        run.commit(sources, {"lanes": parts})
    assert sorted((file.format, file.ranks) for file in load(made.folder).files["lanes"]) == [
        ("flight_recorder", [0, 1, 2, 3]),
        ("flight_recorder", [4, 5]),
        ("kineto", [0, 1, 2, 3]),
        ("kineto", [4, 5]),
    ]
    assert len(names(made.folder)) == 24


def test_ranges_begin_beyond_256_ranks(made):
    with RunWriter(made.folder) as run:
        part = made.part(run, 0, "shared")
        same = [type(part)(path=part.path, format="kineto", ranks=[rank]) for rank in range(256)]
        assert run._merge_files(None, "lanes", same) == sorted(same, key=lambda file: file.ranks)
    assert (commit.MOST_SINGLE_RANKS, commit.RANKS_PER_FILE) == (256, 64)


def test_one_row_per_rank_described_by_its_timeline(made):
    dump = made.source(2, "flight_recorder", events=0, backend="gloo", world_size=4, path="/a/dump")
    trace = made.source(2, "kineto", events=9, host="node7", base_time=5, rank_source="file name", path="/b/trace")
    (row,) = rank_rows([dump, trace])
    assert row == {
        "rank": 2,
        "rank_source": "file name",
        "host": "node7",
        "device": None,
        "device_index": None,
        "world_size": 4,
        "backend": "gloo",
        "formats": "kineto,flight_recorder",
        "source": "/b/trace",
        "source_bytes": 10,
        "source_hash": "00",
        "base_time": 5,
        "events": 9,
    }

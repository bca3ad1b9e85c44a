"""Traces that are not there when their job has ended: nothing is lost without a word."""

from __future__ import annotations

import fcntl
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lostflops.cli import ingesting, late
from lostflops.cli.late import LatePlaces, conclude, wait_for_exports
from lostflops.cli.verbs import run
from lostflops.collect import export, gather
from lostflops.collect.capture import SUFFIX, host_file, read_frames, trace_file
from lostflops.collect.gather import Gatherer
from lostflops.ingest import ingest
from lostflops.store.run import Run
from tests.collect.jobs import finish, run_words
from tests.made_captures import end, frames, session, write, write_window

STEP = [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 10, "dur": 90}]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "_PATIENCE", 0.2)
    monkeypatch.setattr(late, "_QUIET", 0.05)


@pytest.fixture
def places(tmp_path: Path) -> LatePlaces:
    """A job of two ranks on this host; the first has written its trace."""
    local, folder = tmp_path / "a spool", tmp_path / "a run"
    (folder / "capture" / "windows").mkdir(parents=True)
    for rank in range(2):
        write(local, rank, frames(rank, f"s{rank}", [session(rank), end(1)]))
    write_window(local, 0, 0, STEP)
    return LatePlaces(local, folder / "capture", folder)


@contextmanager
def writing(trace: Path) -> Iterator[None]:
    """Somebody writes it, until the end; then it is there."""
    with export.lock_of(trace).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        write_window(trace.parent, 1, 0, STEP)
        export.lock_of(trace).unlink()


def gatherer(places: LatePlaces) -> Gatherer:
    return Gatherer(places.local, places.capture, socket.gethostname())


def obey(said: str, behind: str) -> None:
    """Do what the command that was told does."""
    before, _, words = said.partition(behind)[2].splitlines()[0].rpartition("lostflops ingest ")
    subprocess.run(["sh", "-ec", before.removesuffix(" && ") or "true"], check=True)
    source, _, out = shlex.split(words)
    ingest([source], out, workers=1)


def traced(folder: Path) -> list[tuple[int, int, int]]:
    """Ranks with their numbers of events and attempts."""
    query = "select rank, (select count(*) from events e where e.rank = r.rank), (select count(*) from attempts a "
    with Run.open(folder) as opened:
        return opened.sql(f"{query} where a.rank = r.rank) from ranks r order by rank").fetchall()


def test_what_is_still_being_written_is_kept_named_and_can_be_added(
    places: LatePlaces, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = trace_file(places.local, 1, 0)
    with writing(trace):
        conclude(places, gatherer(places))
        ingest([places.capture], places.run, workers=1)
        assert traced(places.run) == [(0, 1, 1), (1, 0, 1)]
        assert [path.name for path in places.local.iterdir()] == [f"{trace.name}.lock"]
    waiting, said = capsys.readouterr().err.splitlines()
    assert f"the trace of rank 1 (window 0) is still being written to {places.local}: waiting" in waiting
    assert f"the trace of rank 1 (window 0) is still being written to {places.local} on {socket.gethostname()}" in said
    assert "not in the run yet" in said
    obey(said, "To add it later: ")
    assert traced(places.run) == [(0, 1, 1), (1, 1, 1)]


def test_without_a_spool_it_is_named_too(
    places: LatePlaces, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = LatePlaces(places.local, places.local, tmp_path / "run")
    with writing(trace_file(places.capture, 1, 0)):
        conclude(places)
        ingest([places.capture], places.run, workers=1)
    said = capsys.readouterr().err.splitlines()[-1]
    assert "rank 1 (window 0)" in said
    obey(said, "To add it later: ")
    assert traced(places.run) == [(0, 1, 1), (1, 1, 1)]


@pytest.mark.parametrize("is_spooled", [True, False])
def test_a_trace_that_failed_after_its_rank_had_ended_is_told(
    places: LatePlaces, capsys: pytest.CaptureFixture[str], is_spooled: bool
) -> None:
    for rank, reason in enumerate(("No space left on device", "", "kept: not reduced")):
        export.lock_of(trace_file(places.local, rank + 1, 0)).write_text(reason)
    if is_spooled:
        conclude(places, gatherer(places))
        assert not places.local.exists()
    else:
        conclude(LatePlaces(places.local, places.local, places.run))
    assert capsys.readouterr().err.splitlines() == [
        "lostflops: the trace of rank 1 (window 0) is missing: No space left on device.",
        "lostflops: the trace of rank 2 (window 0) is missing: the process that writes the trace ended early.",
    ]


def test_where_all_is_there_nothing_is_said_and_the_spool_goes(
    places: LatePlaces, capsys: pytest.CaptureFixture[str]
) -> None:
    conclude(places, gatherer(places))
    assert not places.local.exists()
    assert capsys.readouterr().err == ""


def test_a_trace_that_ends_while_the_last_ones_are_carried_is_carried_or_kept(places: LatePlaces) -> None:
    """One ends and is carried, one ends too late, one fails, and one is written anew."""
    traces = [trace_file(places.local, rank, 0) for rank in range(4)]
    locks = [export.lock_of(trace).open("w") for trace in traces]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX)

    def carried() -> set[Path]:
        for trace in traces[:2]:
            export.lock_of(trace).unlink()
        export.lock_of(traces[2]).write_text("no room")
        locks[2].close()
        return {traces[0], traces[3]}

    assert export.missing(places.local, carried) == ([traces[1], traces[3]], {traces[2]: "no room"})
    for lock in locks:
        lock.close()


def test_who_interrupts_the_wait_loses_nothing(
    places: LatePlaces, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(folder: Path) -> None:
        wait_for_exports(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(late, "wait_for_exports", interrupted)
    with writing(trace_file(places.local, 1, 0)), pytest.raises(KeyboardInterrupt):
        conclude(places, gatherer(places))
    assert {frame.rank for frame in read_frames(host_file(places.capture, socket.gethostname()))[0]} == {0, 1}
    assert "To add it later: " in capsys.readouterr().err
    assert trace_file(places.local, 1, 0).exists()


def test_who_interrupts_the_carrying_learns_where_the_rest_lies(
    places: LatePlaces, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gather, "_copy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        conclude(places, gatherer(places))
    obey(capsys.readouterr().err, "To add them later: ")
    assert traced(places.run) == [(0, 1, 1), (1, 0, 1)]


def no_host_file(places: LatePlaces) -> Callable[[], None]:
    """What stands in the way, and how it goes."""
    host_file(places.capture, socket.gethostname()).mkdir()
    return host_file(places.capture, socket.gethostname()).rmdir


def no_trace(places: LatePlaces) -> Callable[[], None]:
    blocker = trace_file(places.capture, 0, 0)
    (blocker / "in the way").mkdir(parents=True)
    return lambda: shutil.rmtree(blocker)


@pytest.mark.parametrize("obstacle", [no_host_file, no_trace])
def test_what_cannot_be_carried_stays_and_can_be_brought_in(
    places: LatePlaces, capsys: pytest.CaptureFixture[str], obstacle: Callable[[LatePlaces], Callable[[], None]]
) -> None:
    clear = obstacle(places)
    conclude(places, gatherer(places))
    said = capsys.readouterr().err
    assert f"They are kept in {places.local} on {socket.gethostname()}" in said
    assert len(list(places.local.glob(f"*{SUFFIX}"))) == 2
    clear()
    obey(said, "To add them later: ")
    assert traced(places.run) == [(0, 1, 1), (1, 0, 1)]


def test_what_was_carried_from_a_spool_that_is_gone_is_read(
    places: LatePlaces, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_report", lambda *_: None)
    carrying = gatherer(places)
    carrying.gather()
    shutil.rmtree(places.local)
    run._conclude(places, carrying, as_json=False, is_gone=False, status=0)
    assert (
        f"{places.local} on {socket.gethostname()} is gone: the last records of its ranks are lost."
        in capsys.readouterr().err
    )
    assert traced(places.run) == [(0, 1, 1), (1, 0, 1)]


def test_what_the_last_ingest_left_out_is_told_broken_files_first(
    places: LatePlaces, capsys: pytest.CaptureFixture[str]
) -> None:
    for window in range(1, 5):
        write_window(places.local, 0, window, STEP)
    broken = trace_file(places.local, 1, 4)
    broken.write_bytes(b'{"traceEvents": }')
    ingesting.ingest_capture(places.local, places.run)
    first, *windows, more = capsys.readouterr().err.splitlines()
    assert first.startswith(f"lostflops: skipped {broken}: ")
    assert [line.partition(": skipped ")[2].partition(": ")[2][:19] for line in windows] == [
        "1 trace of window 0",
        "1 trace of window 1",
    ]
    assert more.startswith("lostflops: skipped 2 more; to see all: lostflops ingest ")


def test_a_spool_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = finish([*run_words(tmp_path / "run", "--spool", str(tmp_path / "file")), "true"])
    assert done.code == 0
    assert b"cannot be used (File exists): ranks write directly to" in done.stderr


def test_a_spool_is_made_and_known_wherever_a_rank_goes(tmp_path: Path) -> None:
    words = [*run_words(tmp_path / "run", "--spool", "not/there"), "sh", "-c", "echo $LOSTFLOPS_COLLECT"]
    done = finish(words, cwd=tmp_path)
    assert f"{tmp_path}/not/there/lostflops-" in done.stdout.decode()

"""A bad source is refused with its own reason; the others are ingested."""

import json
import os
import pickle
import sys
from copy import copy
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lostflops.core.errors import BrokenSource, LostflopsError, RunError
from lostflops.core.limits import LARGEST_WORLD
from lostflops.ingest import ingest, rounds
from lostflops.ingest.common import columns
from lostflops.ingest.formats.kineto import reader as kineto
from lostflops.store.run import Run
from lostflops.store.spread import worker_process

HUGE = (1 << 63) - 1
OP = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 1}


def trace(folder: Path, number: int, **info: Any) -> Path:
    path = folder / f"rank{number}.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": number, "world_size": 2, **info}, "traceEvents": [OP]}))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "traces"
    made.mkdir()
    trace(made, 0)
    return made


def refused(folder: Path, run: Path, workers: int) -> str:
    """Ingest the folder; return the only reason. Rank 0 must be there, and nothing of other ranks."""
    done = ingest([folder], run, workers=workers)
    with Run.open(run) as stored:
        assert stored.rows("select distinct rank from events") == [(0,)]
        named = {file.path for files in stored.manifest.files.values() for file in files}
    assert {str(path.relative_to(run)) for path in (run / "data").rglob("*.parquet")} == named
    ((_, reason),) = done.skipped
    return reason


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ({"pg_config": [{"pg_name": "0", "ranks": [0, 1, HUGE]}]}, "process group '0' states rank 9,223,372,036,854"),
        ({"pg_config": [{"pg_name": "0", "ranks": [1, LARGEST_WORLD]}]}, "process group '0' states rank 1,000,000"),
        ({"world_size": 999_999_999}, "states a world size of 999,999,999"),
        ({"world_size": 2_100_000_000}, "states a world size of 2,100,000,000"),
        ({"world_size": HUGE}, "states a world size of 9,223,372,036,854,775,807"),
        ({"rank": 2_000_000_000}, "states rank 2,000,000,000"),
        ({"rank": HUGE}, "states rank 9,223,372,036,854,775,807"),
    ],
)
def test_numbers_that_no_job_has(folder: Path, tmp_path: Path, info: dict[str, Any], reason: str, workers: int) -> None:
    trace(folder, 1, **info)
    assert reason in refused(folder, tmp_path / "run", workers)
    with pytest.raises(BrokenSource, match=r"rank1\.json"):
        ingest([folder / "rank0.json", folder / "rank1.json"], tmp_path / "named", workers=workers)


def test_a_world_at_the_limit_is_accepted(folder: Path, tmp_path: Path) -> None:
    trace(folder, 0, world_size=LARGEST_WORLD)
    trace(folder, LARGEST_WORLD - 1, world_size=LARGEST_WORLD)
    assert ingest([folder], tmp_path / "run", workers=1).ranks_added == (0, LARGEST_WORLD - 1)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("device", [1 << 62, -5, 1 << 31])
def test_a_snapshot_of_a_device_that_no_host_has(folder: Path, tmp_path: Path, device: int, workers: int) -> None:
    block = {"size": 512, "requested_size": 512, "state": "active_allocated", "address": 4096, "frames": []}
    bad = {"device": device, "address": 4096, "total_size": 512, "segment_type": "small", "blocks": [block]}
    (folder / "rank0.pickle").write_bytes(pickle.dumps({"segments": [bad], "device_traces": []}))
    done = ingest([folder], tmp_path / "run", workers=workers)
    assert done.ranks_added == (0,)
    with Run.open(tmp_path / "run") as run:
        assert run.rows("select count(*) from allocator_blocks") == [(0,)]
        assert ("snapshot_parts_malformed", 1) in run.rows("select what, count from stats")


@pytest.mark.parametrize(
    "error",
    [
        OverflowError("too large"),
        ValueError("strange"),
        RecursionError("too deep"),
        KeyError("gone"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        ZeroDivisionError(),
    ],
)
def test_an_unexpected_error_is_a_defect_and_refuses_one_source(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    trace(folder, 1)
    _fail_for(monkeypatch, {"rank1.json"}, error)
    reason = refused(folder, tmp_path / "run", workers=1)
    assert type(error).__name__ in reason
    assert "this is a defect of Lostflops, please report it" in reason
    with pytest.raises(BrokenSource, match="defect of Lostflops"):
        ingest([folder / "rank0.json", folder / "rank1.json"], tmp_path / "named", workers=1)


def test_memory_that_runs_out_refuses_one_source(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace(folder, 1)
    _fail_for(monkeypatch, {"rank1.json"}, MemoryError())
    assert "there is not enough memory to read it" in refused(folder, tmp_path / "run", workers=1)


def test_files_of_one_task_are_kept_apart(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of many ranks share a part: those of refused files must not be in it, those of others must."""
    for rank in range(1, 20):
        trace(folder, rank, world_size=20)
    monkeypatch.setattr(rounds, "MOST_SINGLE_RANKS", 2)
    trace(folder, 0, world_size=20)
    bad = {f"rank{rank}.json" for rank in (3, 4, 11)}
    _fail_for(monkeypatch, bad, OverflowError("too large"))
    done = ingest([folder], tmp_path / "run", workers=1)
    assert {Path(path).name for path, _ in done.skipped} == bad
    kept = [(rank,) for rank in range(20) if rank not in (3, 4, 11)]
    with Run.open(tmp_path / "run") as run:
        assert run.rows("select rank from events order by rank") == kept


def test_a_file_over_which_workers_die_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace(folder, 1)
    dying = (
        "import os, sys\n"
        "from lostflops.ingest.formats.kineto import reader\n"
        "read = reader.ingest\n"
        "reader.ingest = lambda job: os._exit(7) if job.path.name == 'rank1.json' else read(job)\n"
    )
    monkeypatch.setattr(worker_process, "_WORKER", worker_process._WORKER.replace("main(int", dying + "main(int"))
    assert "3 workers died" in (reason := refused(folder, tmp_path / "run", workers=2))
    assert "exit code 7" in reason


def test_a_source_that_cannot_be_opened(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace(folder, 1)
    claim = kineto.rank_claim

    def fail(path: Path) -> Any:
        if path.name == "rank1.json":
            raise OSError(5, "Input/output error", str(path))
        return claim(path)

    monkeypatch.setattr(kineto, "rank_claim", fail)
    assert "Input/output error" in refused(folder, tmp_path / "run", workers=1)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_source_that_cannot_be_joined_with_others(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """What is wrong may show only when all sources are read; the one that fails alone too is refused."""
    trace(folder, 1)
    module = sys.modules["lostflops.ingest.ingest"]
    align = module.align_ranks

    def fail(run: Any, files: Any, held: Any) -> None:
        if any(source.rank == 1 for source in held):
            raise OverflowError("too large")
        align(run, files, held)

    monkeypatch.setattr(module, "align_ranks", fail)
    reason = refused(folder, tmp_path / "run", workers)
    assert "OverflowError: too large" in reason
    assert "please report it" in reason
    with pytest.raises(BrokenSource, match=r"rank1\.json cannot be read: OverflowError"):
        ingest([folder / "rank0.json", folder / "rank1.json"], tmp_path / "named", workers=workers)
    (folder / "rank0.json").unlink()
    with pytest.raises(BrokenSource, match="none of 1 files can be read"):
        ingest([folder], tmp_path / "alone", workers=workers)


def test_a_defect_that_no_source_shows_alone_is_said_in_words(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace(folder, 1)

    def fail(_run: Any, _files: Any, held: Any) -> None:
        if len(held) > 1:
            raise KeyError("gone")

    monkeypatch.setattr(sys.modules["lostflops.ingest.ingest"], "align_ranks", fail)
    with pytest.raises(RunError, match=r"KeyError: 'gone'.*please report it"):
        ingest([folder], tmp_path / "run", workers=1)
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_not_blamed_on_a_source(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_for(monkeypatch, {"rank0.json"}, OSError(28, "No space left on device"))
    with pytest.raises(LostflopsError, match="No space left on device"):
        ingest([folder], tmp_path / "run", workers=1)


def test_a_disk_that_fails_is_not_blamed_on_a_source(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a file that is open already has no name: it would look like an error of the source."""
    trace(folder, 1)
    fsync, calls = os.fsync, count()

    def fail(handle: int) -> None:
        if next(calls) == 3:  # of a file of the second rank
            raise OSError(5, "Input/output error")
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(LostflopsError, match=r"Input/output error: \S+\.parquet"):
            ingest([folder], tmp_path / "run", workers=1)
    assert not (tmp_path / "run").exists()


def test_a_disk_that_is_full_for_spilled_rows_is_not_blamed_on_a_source(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace(folder, 1)
    monkeypatch.setattr(columns, "PIECE_ROWS", 1)
    with Path("/dev/full").open("r+b", buffering=0) as full, monkeypatch.context() as patch:
        patch.setattr(columns.tempfile, "TemporaryFile", lambda **_: full)
        with pytest.raises(LostflopsError, match="No space left on device"):
            ingest([folder], tmp_path / "run", workers=1)
    assert not (tmp_path / "run").exists()


def test_an_error_of_the_progress_report_is_not_blamed_on_a_source(folder: Path, tmp_path: Path) -> None:
    def report(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ingest([folder], tmp_path / "run", workers=1, progress=report)


def _fail_for(monkeypatch: pytest.MonkeyPatch, names: set[str], error: Exception) -> None:
    """Let the reader fail after it has put the rows of these files."""
    read = kineto.ingest

    def fail(job: Any) -> Any:
        found = read(job)
        if job.path.name in names:
            raise copy(error)  # an error that is kept would keep the frames that it passed
        return found

    monkeypatch.setattr(kineto, "ingest", fail)

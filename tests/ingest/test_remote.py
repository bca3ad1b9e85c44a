"""Traces and runs in an object store: the same run as from files, and nothing fetched or sent that need not be."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lostflops.collect.capture import frame_bytes
from lostflops.core.errors import BrokenSource, RankConflict, SourceError, UnknownFormat, UsageError
from lostflops.ingest import IngestProgress, ingest
from lostflops.store.objects import Objects
from lostflops.store.run import Run
from lostflops.store.spread import worker_process
from lostflops.store.tables import TABLES
from lostflops.testing import SyntheticCluster

if TYPE_CHECKING:
    from made_store import ObjectStore


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return SyntheticCluster(ranks=3, steps=1).generate().traces.write(tmp_path_factory.mktemp("traces"))


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of objects that were fetched by this process."""
    names: list[str] = []
    fetch = Objects.fetch
    monkeypatch.setattr(
        Objects, "fetch", lambda self, address, path: (names.append(address.name), fetch(self, address, path))
    )
    return names


def rows(run: str | Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables, without the paths of sources."""
    found = {}
    with Run.open(run) as opened:
        for table in TABLES:
            chosen = "* exclude (source)" if table.name == "ranks" else "*"
            found[table.name] = opened.sql(f"select {chosen} from {table.name} order by all").fetchall()
    return found


def test_objects_make_the_run_that_files_make(object_store: ObjectStore, cluster: list[Path], tmp_path: Path) -> None:
    traces = object_store.put_all(cluster)
    local = ingest(cluster, tmp_path / "local", workers=1)
    done = ingest([traces], object_store / "run", workers=2)
    assert str(done.run) == object_store / "run"
    assert (done.ranks_added, done.events) == (local.ranks_added, local.events)
    assert rows(object_store / "run") == rows(tmp_path / "local")
    with Run.open(object_store / "run") as run:
        told = run.sql("select source from ranks order by rank").fetchall()
    assert [source for (source,) in told] == [f"{traces}/{file.name}" for file in cluster]
    here = ingest([f"{traces}/*"], tmp_path / "here", workers=1)
    assert here.run == tmp_path / "here"
    assert rows(tmp_path / "here") == rows(tmp_path / "local")


def test_objects_that_did_not_change_are_not_fetched_again(
    object_store: ObjectStore, cluster: list[Path], fetched: list[str]
) -> None:
    traces, run = object_store.put_all(cluster[:2]), object_store / "run"
    ingest([traces], run, workers=1)
    fetched.clear()
    object_store.put(f"traces/{cluster[0].name}", cluster[0])  # the same content at another time
    object_store.put(f"traces/{cluster[2].name}", cluster[2])
    done = ingest([traces], run, workers=1)
    assert [name for name in fetched if name.endswith(".json")] == [cluster[2].name]
    assert (done.ranks_added, done.ranks_replaced, done.ranks_unchanged) == ((2,), (), (0, 1))
    object_store.put(f"traces/{cluster[1].name}", cluster[1].read_bytes() + b"\n")
    fetched.clear()
    assert ingest([traces], run, workers=1).ranks_replaced == (1,)
    assert [name for name in fetched if name.endswith(".json")] == [cluster[1].name]


def test_what_is_no_trace_is_skipped_and_names_stay_in_the_folder(
    object_store: ObjectStore, cluster: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    traces = object_store.put_all(cluster[:1])
    trace = cluster[1].read_bytes()
    for name in ("../../../outside.json", "a/../../outside.json", "a//outside.json", "a\x1b[31m.json", "x" * 300):
        object_store.put(f"traces/{name}", trace)
    object_store.put("traces/config.json", b'{"lr": 1}')
    object_store.put("traces/notes.md", b"# notes")
    object_store.put("traces/.hidden/rank1.json", trace)
    done = ingest([traces], tmp_path / "run", workers=1)
    assert done.ranks_added == (0,)
    reasons = {path.removeprefix(f"{traces}/"): reason for path, reason in done.skipped}
    assert reasons.pop("config.json") == "no reader recognises it"
    assert len(reasons) == 5
    assert all(reason.startswith("its name has ") for reason in reasons.values())
    assert all(name.isprintable() for name in reasons)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not list(tmp_path.parent.rglob("outside.json"))
    with pytest.raises(UnknownFormat, match=r"s3://\S+/config.json has an unknown format"):
        ingest([f"{traces}/config.json"], tmp_path / "other", workers=1)
    with pytest.raises(UsageError, match="has no object"):
        ingest([object_store / "nothing"], tmp_path / "other", workers=1)


@pytest.mark.parametrize("pattern", ["day-*", "day-*/*", "day-1/", "day-[12]/deep"])
def test_folders_that_a_glob_names_are_searched(
    object_store: ObjectStore, cluster: list[Path], tmp_path: Path, pattern: str
) -> None:
    for number, name in enumerate(("day-1/a.json", "day-1/deep/b.json", "day-1/deep/er/c.json")):
        object_store.put(name, cluster[number])
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(cluster[number].read_bytes())
    local = ingest([f"{tmp_path}/{pattern}"], tmp_path / "local", workers=1)
    assert ingest([object_store / pattern], tmp_path / "run", workers=1).ranks_added == local.ranks_added


def test_a_folder_may_be_called_like_a_glob(object_store: ObjectStore, cluster: list[Path], tmp_path: Path) -> None:
    object_store.put("job[1]/rank0 #1?.json", cluster[0])
    assert ingest([object_store / "job[1]"], tmp_path / "run", workers=1).ranks_added == (0,)


def test_ranks_that_nothing_tells_are_assigned_and_two_files_of_a_rank_refused(
    object_store: ObjectStore, cluster: list[Path], tmp_path: Path
) -> None:
    event = b'{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":1,"ts":1,"dur":1}'
    object_store.put_all(cluster[:1])
    for name in ("b.json", "c.json"):
        object_store.put(f"traces/{name}", b'{"traceEvents":[' + event.replace(b"op", name.encode()) + b"]}")
    heard: list[IngestProgress] = []
    done = ingest([object_store / "traces"], tmp_path / "run", workers=1, progress=heard.append)
    assert done.ranks_added == (0, 1, 2)
    assert (heard[-1].files_done, heard[-1].bytes_done) == (3, heard[-1].bytes_total)
    with Run.open(tmp_path / "run") as run:
        found = run.sql("select rank, source, rank_source from ranks where rank > 0 order by rank").fetchall()
    assert found == [(1, object_store / "traces/b.json", "assigned"), (2, object_store / "traces/c.json", "assigned")]
    copy = object_store.put("copy/other.json", cluster[0].read_bytes() + b" ")
    with pytest.raises(RankConflict, match=rf"two files have rank 0: .*{copy}"):
        ingest([copy], tmp_path / "run", workers=1)


def test_a_folder_called_like_a_pattern_is_that_folder(
    object_store: ObjectStore, cluster: list[Path], tmp_path: Path
) -> None:
    for name, file in zip(("job[1]/a.json", "job1/b.json"), cluster, strict=False):
        object_store.put(name, file)
    assert ingest([object_store / "job[1]"], tmp_path / "run", workers=1).ranks_added == (0,)
    assert ingest([object_store / "job[0-9]/*"], tmp_path / "run", workers=1).ranks_added == (1,)


def test_an_object_that_changes_while_it_is_fetched_is_an_error(
    object_store: ObjectStore, cluster: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = object_store.put_all(cluster[:1])
    fetch = Objects.fetch

    def longer(self: Objects, address, path: Path) -> None:
        fetch(self, address, path)
        path.write_bytes(path.read_bytes() + b" ")

    monkeypatch.setattr(Objects, "fetch", longer)
    with pytest.raises(SourceError, match=rf"{traces}/{cluster[0].name} changed while it was read"):
        ingest([traces], tmp_path / "run", workers=1)


def test_an_object_that_is_replaced_while_it_is_fetched_is_an_error_though_its_size_is_the_same(
    object_store: ObjectStore, cluster: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = object_store.put_all(cluster[:1])
    fetch = Objects.fetch

    def replaced(self: Objects, address, path: Path) -> None:
        fetch(self, address, path)
        object_store.put(f"traces/{cluster[0].name}", cluster[0].read_bytes()[:-1] + b" ")

    monkeypatch.setattr(Objects, "fetch", replaced)
    with pytest.raises(SourceError, match=rf"{traces}/{cluster[0].name} changed while it was read"):
        ingest([traces], tmp_path / "run", workers=1)


def test_what_a_killed_worker_had_fetched_goes(
    object_store: ObjectStore, cluster: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, once = tmp_path / "scratch", tmp_path / "once"
    scratch.mkdir()
    once.mkdir()
    dying = (
        "import os, sys\n"
        "try:\n"
        f"    os.rmdir({str(once)!r})\n"
        "except FileNotFoundError:\n"
        "    pass\n"
        "else:\n"
        "    sys.path.insert(0, sys.argv[1])\n"
        "    from lostflops.ingest import tasks\n"
        "    tasks.inspect_file = lambda *_, **__: os.kill(os.getpid(), 9)\n"
    )
    monkeypatch.setattr(worker_process, "_WORKER", dying + worker_process._WORKER)
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    done = ingest([object_store.put_all(cluster)], tmp_path / "run", workers=2)
    assert done.ranks_added == (0, 1, 2)
    assert not once.exists()
    assert list(scratch.iterdir()) == []


def test_many_ranks_are_few_objects(
    object_store: ObjectStore, cluster: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lostflops.ingest.rounds.MOST_SINGLE_RANKS", 4)
    event = b'{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":1,"ts":1,"dur":1}'
    for rank in range(9):
        object_store.put(f"traces/rank{rank}.json", b'{"traceEvents":[' + event + b"]}")
    done = ingest([object_store / "traces"], object_store / "run", workers=1)
    assert done.ranks_added == tuple(range(9))
    with Run.open(object_store / "run") as run:
        assert {len(files) for files in run.manifest.files.values()} <= {1, 2, 3, 4}
        assert run.sql("select count(*), count(distinct rank) from events").fetchall() == [(9, 9)]


def test_a_broken_object_is_named_by_its_address(
    object_store: ObjectStore, cluster: list[Path], tmp_path: Path
) -> None:
    object_store.put_all(cluster[:1])
    broken = object_store.put("traces/rank8.json", b'{"deviceProperties": [], "x": 1}')
    done = ingest([object_store / "traces"], tmp_path / "run", workers=1)
    [(path, reason)] = done.skipped
    assert (done.ranks_added, path) == ((0,), broken)
    assert reason.startswith(f"{broken}: ")
    with pytest.raises(BrokenSource, match=rf"^{broken}: .*traceEvents"):
        ingest([broken], tmp_path / "run", workers=1)


def test_captures_are_read_from_a_store(object_store: ObjectStore, tmp_path: Path) -> None:
    """Steps of two ranks, and the window that both have."""
    step = {"kind": "step", "step": 1, "start": 10**18, "stop": 10**18 + 5}
    event = b'{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":1,"ts":1,"dur":1}'
    folder = tmp_path / "capture"
    folder.mkdir()
    for rank in (0, 1):
        (folder / f"rank-{rank:05d}.capture").write_bytes(frame_bytes(rank, f"s{rank}", 0, 0, [step]))
        for window in (1, 2):
            trace = b'{"traceEvents":[' + event + b'],"distributedInfo":{"rank":%d}}' % rank
            (folder / f"rank-{rank:05d}.w{window:04d}.json.gz").write_bytes(gzip.compress(trace))
    files = sorted(folder.iterdir())
    (folder / "rank-00001.w0002.json.gz").unlink()
    stored = object_store.put_all([file for file in files if file.exists()], "job/capture")
    local = ingest([folder], tmp_path / "local", workers=1)
    done = ingest([stored], object_store / "run", workers=1)
    assert done.ranks_added == local.ranks_added == (0, 1)
    assert [reason.partition(".")[0] for _, reason in done.skipped] == ["1 trace of window 2, but other windows have 2"]
    assert rows(object_store / "run") == rows(tmp_path / "local")


@pytest.mark.parametrize(
    "broken", [b"", b"PK\x03\x04" + bytes(22) + b'\x09\0\0\0part.json{"reduced":1'], ids=["head", "end"]
)
def test_a_raw_trace_is_read_from_a_store_where_its_reduced_form_is_broken(
    object_store: ObjectStore, tmp_path: Path, broken: bytes
) -> None:
    event = b'{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":1,"ts":1,"dur":1}'
    raw = gzip.compress(b'{"traceEvents":[' + event + b"]}")
    address = object_store.put("job/capture/rank-00003.w0000.json.gz", raw)
    left = object_store.put("job/capture/rank-00003.w0000.parts", broken)
    for _ in range(2):
        done = ingest([object_store / "job/capture"], tmp_path / "run", workers=1)
        assert [path for path, _ in done.skipped] == [left]
        with Run.open(tmp_path / "run") as run:
            assert run.sql("select rank, source, events from ranks").fetchall() == [(3, address, 1)]


@pytest.mark.slow
def test_three_hundred_ranks_are_few_objects(object_store: ObjectStore) -> None:
    event = b'{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":1,"ts":1,"dur":1}'
    for rank in range(300):
        object_store.put(f"traces/rank{rank}.json", b'{"traceEvents":[' + event + b"]}")
    done = ingest([object_store / "traces"], object_store / "run", workers=2)
    assert done.ranks_added == tuple(range(300))
    with Run.open(object_store / "run") as run:
        assert run.sql("select count(*), count(distinct rank) from events").fetchall() == [(300, 300)]
        assert max(len(files) for files in run.manifest.files.values()) <= 9

"""A run in an object store is the old one or the new one, whenever its writer dies and whoever else writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from s3fs.errors import translate_boto_error

from lostflops.core.errors import BrokenRun, NotARun, RunBusy, RunError, UsageError
from lostflops.store import mirror, objects
from lostflops.store.manifest import Manifest, encode_manifest
from lostflops.store.objects import Objects
from lostflops.store.remote_commit import writer_of
from lostflops.store.run import Run

if TYPE_CHECKING:
    from made_store import ObjectStore

NAMES = "select rank, name from lanes order by rank, lane"


def names(run: str) -> list[tuple[int, str]]:
    with Run.open(run) as opened:
        return opened.sql(NAMES).fetchall()


def lanes(*ranks: tuple[int, str]) -> list[tuple[int, str]]:
    return [(rank, name + more) for rank, name in ranks for more in ("", "+")]


@pytest.fixture
def remote(made, object_store: ObjectStore):
    made.folder = object_store / "run"
    return made


def manifest_of(store: ObjectStore, number: int) -> Manifest:
    return msgspec.json.decode(store.read(f"run/commits/{number:06d}.json"), type=Manifest)


def data_of(*manifests: Manifest) -> list[str]:
    return sorted({f"run/{file.path}" for one in manifests for files in one.files.values() for file in files})


class Death:
    """What the given call did is not seen, and nothing after it reaches the store: as when the process is killed."""

    def __init__(self, at: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self._at = at
        for name in ("send", "write", "create", "remove"):
            monkeypatch.setattr(Objects, name, self._counted(getattr(Objects, name)))

    def _counted(self, do: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            self.calls += 1
            if self._at is not None and self.calls > self._at:
                raise SystemExit("dead")
            done = do(*given)
            if self.calls == self._at:
                raise SystemExit("died")
            return done

        return counted


def test_a_commit_makes_a_run_and_the_next_one_keeps_its_parts(remote, object_store: ObjectStore) -> None:
    with pytest.raises(NotARun, match=r"s3://\S+/run is not a run.*-o s3://"):
        Run.open(remote.folder)
    remote.put([0, 1])
    assert names(remote.folder) == lanes((0, "first"), (1, "first"))
    remote.put([1, 2], "second")
    assert names(remote.folder) == lanes((0, "first"), (1, "second"), (2, "second"))
    before, after = manifest_of(object_store, 1), manifest_of(object_store, 2)
    assert (before.generation, after.generation) == (1, 2)
    assert before.files["lanes"][0] in after.files["lanes"]
    assert object_store.keys("run/data") == data_of(before, after)


def test_of_old_commits_the_number_stays_and_the_data_go(remote, object_store: ObjectStore) -> None:
    for name in ("first", "second", "third", "fourth"):
        remote.put([0], name)
    assert [object_store.read(f"run/commits/{number:06d}.json") for number in (1, 2)] == [mirror.GONE] * 2
    assert object_store.keys("run/data") == data_of(manifest_of(object_store, 3), manifest_of(object_store, 4))
    assert names(remote.folder) == lanes((0, "fourth"))


@pytest.mark.slow
def test_a_writer_that_dies_anywhere_leaves_the_old_run_or_the_new_one(
    remote, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.put([0])
    remote.put([0], "old")
    with monkeypatch.context() as patch:
        whole = Death(None, patch)
        remote.put([0], "old")
    assert whole.calls >= 6  # two of the probe, two parts, the commit, an old commit, old data
    has_new = []
    for step in range(1, whole.calls + 1):
        with monkeypatch.context() as patch:
            Death(step, patch)
            with pytest.raises(SystemExit):
                remote.put([0], "new")
        found = names(remote.folder)
        has_new.append(found == lanes((0, "new")))
        assert has_new[-1] or found == lanes((0, "old"))
        if has_new[-1]:
            remote.put([0], "old")
    remote.put([0], "old")
    assert names(remote.folder) == lanes((0, "old"))
    # The commit is one call, and everything before it changes nothing.
    assert has_new == sorted(has_new)
    assert {True, False} == set(has_new)
    last = max(int(Path(key).stem) for key in object_store.keys("run/commits") if key.endswith(".json"))
    named = data_of(manifest_of(object_store, last - 1), manifest_of(object_store, last))
    assert object_store.keys("run/data") == named  # the next commit removes what the dead had sent


def test_of_two_writers_the_second_to_commit_changes_nothing(remote, object_store: ObjectStore) -> None:
    remote.put([0])
    with writer_of(remote.folder) as run:
        part = remote.part(run, 0, "late")
        remote.put([1], "early")
        before = object_store.keys("run")
        with pytest.raises(RunBusy, match="another ingest wrote"):
            run.commit([remote.source(0)], {"lanes": [part]})
    assert names(remote.folder) == lanes((0, "first"), (1, "early"))
    assert object_store.keys("run") == before


def test_a_writer_that_was_overtaken_several_times_does_not_commit(remote) -> None:
    remote.put([0])
    with writer_of(remote.folder) as run:
        part = remote.part(run, 0, "late")
        for name in ("second", "third", "fourth"):
            remote.put([0], name)
        with pytest.raises(RunBusy):
            run.commit([remote.source(0)], {"lanes": [part]})
    assert names(remote.folder) == lanes((0, "fourth"))


def test_a_writer_that_was_slow_to_end_takes_nothing_from_later_commits(
    remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer_of(remote.folder) as run:
        run.commit([remote.source(0)], {"lanes": [remote.part(run, 0, "first")]})
        remote.put([1], "second")
        remote.put([2], "third")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    assert names(remote.folder) == lanes((0, "first"), (1, "second"), (2, "third"))


def test_a_commit_that_arrives_after_its_writer_gave_up_is_whole(
    remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[tuple[Any, ...]] = []
    create = Objects.create

    def slow(self: Objects, data: bytes, address: Any) -> bool:
        if not address.name.endswith(".json"):
            return create(self, data, address)
        late.append((self, data, address))
        raise OSError(5, "timed out", address.url)

    with monkeypatch.context() as patch:
        patch.setattr(Objects, "create", slow)
        with pytest.raises(OSError, match="timed out"):
            remote.put([0])
    assert create(*late[0])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    assert names(remote.folder) == lanes((0, "first"))


def test_a_store_that_does_not_say_which_condition_failed_is_understood(
    remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some answer 412 alone, which s3fs takes for a fault."""
    filesystem = objects.objects_of(mirror.Address(remote.folder))._filesystem
    pipe = filesystem.pipe_file

    def terse(*given: Any, **more: Any) -> Any:
        try:
            return pipe(*given, **more)
        except FileExistsError as error:
            cause: Any = error.__cause__
            cause.response["Error"].pop("Condition")
            raise translate_boto_error(cause) from cause

    monkeypatch.setattr(filesystem, "pipe_file", terse)
    monkeypatch.setattr(objects.time, "sleep", lambda _: pytest.fail("tried again"))
    remote.put([0])
    with writer_of(remote.folder) as run:
        part = remote.part(run, 0, "late")
        remote.put([1], "early")
        with pytest.raises(RunBusy, match="another ingest wrote"):
            run.commit([remote.source(0)], {"lanes": [part]})
    assert names(remote.folder) == lanes((0, "first"), (1, "early"))


def test_what_later_commits_name_stays_though_the_answer_to_ours_was_lost(
    remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = Objects._call_with_retries
    lost = []

    def answer_lost(self: Objects, do: Callable[[], Any], about: Any) -> Any:
        if about.name == "000001.json" and not lost:
            lost.append(do())
            remote.put([1], "second")
            remote.put([2], "third")
        return tried(self, do, about)

    with monkeypatch.context() as patch:
        patch.setattr(Objects, "_call_with_retries", answer_lost)
        with pytest.raises(RunBusy, match="may or may not be in the run"):
            remote.put([0])
    assert lost
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    assert names(remote.folder) == lanes((0, "first"), (1, "second"), (2, "third"))


def test_a_commit_whose_answer_was_lost_is_ours(remote, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = Objects._call_with_retries
    lost = []

    def answer_lost(self: Objects, do: Callable[[], Any], about: Any) -> Any:
        if about.name == "000001.json" and not lost:
            lost.append(do())
        return tried(self, do, about)

    monkeypatch.setattr(Objects, "_call_with_retries", answer_lost)
    remote.put([0])
    assert lost
    assert names(remote.folder) == lanes((0, "first"))


def test_a_commit_that_arrives_after_its_writer_gave_up_is_a_whole_run(
    remote, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.put([0])
    late = []

    def unanswered(self: Objects, data: bytes, address: Any) -> bool:
        late.append((data, address.name))
        raise TimeoutError

    with monkeypatch.context() as patch:
        create = Objects.create
        patch.setattr(
            Objects, "create", lambda *given: (unanswered if given[2].name == "000002.json" else create)(*given)
        )
        with pytest.raises(TimeoutError):
            remote.put([0], "late")
    assert names(remote.folder) == lanes((0, "first"))
    [(data, name)] = late
    object_store.put(f"run/commits/{name}", data)
    assert names(remote.folder) == lanes((0, "late"))


def test_a_store_that_creates_over_what_is_there_is_refused(remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Objects, "create", lambda self, data, address: self.write(data, address) is None)
    with pytest.raises(RunError, match="does not support If-None-Match"):
        remote.put([0])


def test_other_objects_are_left_alone(remote, object_store: ObjectStore) -> None:
    object_store.put("run/notes.md", b"mine")
    with pytest.raises(RunError, match=r"other objects \('notes.md'\)"):
        remote.put([0])
    assert object_store.keys("run") == ["run/notes.md"]


def test_a_file_is_fetched_once(remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    remote.put([0])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    fetched = []
    fetch = Objects.fetch
    monkeypatch.setattr(Objects, "fetch", lambda *given: (fetched.append(given[1].name), fetch(*given)))
    assert names(remote.folder) == names(remote.folder) == lanes((0, "first"))
    assert sorted(fetched) == ["all.parquet", "kineto-000000.parquet"]


def test_what_somebody_still_reads_stays_for_a_week_after_it_was_replaced(remote, tmp_path: Path) -> None:
    def age() -> list[Path]:
        files = sorted((tmp_path / "cache").rglob("lanes/*.parquet"))
        for file in files:
            os.utime(file, (0, 0))
        return files

    remote.put([0])
    names(remote.folder)
    with Run.open(remote.folder) as reader:
        [old] = age()
        remote.put([0], "second")
        assert names(remote.folder) == lanes((0, "second"))
        assert reader.sql(NAMES).fetchall() == lanes((0, "first"))
    assert old in age()
    names(remote.folder)
    assert not old.exists()
    assert names(remote.folder) == lanes((0, "second"))


def test_a_reader_that_was_overtaken_reads_the_new_run(remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    remote.put([0])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    fetch = mirror.fetch
    overtaken = []

    def later(*given: Any) -> Path:
        if not overtaken:
            overtaken.append(True)
            for name in ("second", "third"):
                remote.put([0], name)
        return fetch(*given)

    monkeypatch.setattr(mirror, "fetch", later)
    assert names(remote.folder) == lanes((0, "third"))


REMOVED = (lambda store, key: store.remove(key), "is missing")
CUT = (lambda store, key: store.put(key, b"PAR1"), "has 4 bytes instead of")


@pytest.mark.parametrize("damage", [REMOVED, CUT])
def test_what_is_missing_or_damaged_is_said(
    remote, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: Any
) -> None:
    remote.put([0])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    do, words = damage
    do(object_store, next(key for key in object_store.keys("run/data") if "/lanes/" in key))
    with pytest.raises(BrokenRun, match=rf"s3://\S+/lanes/\S+ {words}"):
        Run.open(remote.folder)


@pytest.mark.parametrize(
    "path",
    [
        "../../outside.parquet",
        "/etc/passwd",
        "data/000001-0123456789abcdef/lanes/../../../../x.parquet",
        "data/000001-0123456789abcdef/lanes/a\nb.parquet",
        "data/000001-0123456789abcdef/nothing/x.parquet",
    ],
)
def test_paths_of_a_manifest_stay_in_the_copy(
    remote, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    remote.put([0])
    forged = msgspec.json.decode(object_store.read("run/commits/000001.json"), type=Manifest)
    forged.files["lanes"][0].path = path
    object_store.put("run/commits/000002.json", encode_manifest(forged))
    monkeypatch.setattr(Objects, "fetch", lambda *_: pytest.fail("fetched"))
    with pytest.raises(BrokenRun, match=r"cannot belong to a run|outside the run"):
        Run.open(remote.folder)


def test_the_copy_and_the_run_hold_no_key(remote, object_store: ObjectStore, tmp_path: Path) -> None:
    remote.put([0])
    names(remote.folder)
    here = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    held = b"".join([*map(object_store.read, object_store.keys("run")), *(path.read_bytes() for path in here)])
    assert len(here) >= 3
    assert b"of-tests" not in held


def test_a_store_that_fails_is_tried_again_and_then_named(remote, monkeypatch: pytest.MonkeyPatch) -> None:
    remote.put([0])
    waits: list[float] = []
    monkeypatch.setattr(objects.time, "sleep", waits.append)
    filesystem = objects.objects_of(mirror.Address(remote.folder))._filesystem
    cat, failures = filesystem.cat_file, [TimeoutError("timed out")] * 2

    def failing(*given: Any) -> bytes:
        if failures:
            raise failures.pop()
        return cat(*given)

    monkeypatch.setattr(filesystem, "cat_file", failing)
    assert names(remote.folder) == lanes((0, "first"))
    assert waits == list(objects.WAITS[:2])
    failures += [TimeoutError("timed out")] * 9
    with pytest.raises(RunError, match=r"s3://\S+/commits/000001.json cannot be read: timed out"):
        Run.open(remote.folder)
    assert len(failures) == 9 - len(objects.WAITS) - 1


def test_a_store_without_keys_and_other_stores_are_refused_in_words(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="cannot read gs://"):
        Run.open("gs://bucket/run")
    with pytest.raises(UsageError, match="cannot contain keys") as caught:
        Run.open("s3://key:secret@bucket/run")
    assert "secret" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(UsageError, match=r"pip install 'lostflops\[s3\]'"):
        writer_of(object_store / "run")


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
from lostflops.ingest import ingest
from lostflops.store.objects import Objects

at, calls = float(sys.argv[3]), 0
def counted(do):
    def call(*given):
        global calls
        calls += 1
        if calls > at:
            os.kill(os.getpid(), signal.SIGKILL)
        done = do(*given)
        if calls > at - 0.5:  # the answer is lost
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return call
for name in ("send", "write", "create", "remove"):
    setattr(Objects, name, counted(getattr(Objects, name)))
ingest([sys.argv[1]], sys.argv[2], workers=1, replace=True)
print(calls)
"""


@pytest.mark.slow
def test_kill_9_leaves_the_old_run_and_the_next_ingest_succeeds(object_store: ObjectStore, tmp_path: Path) -> None:
    from lostflops.ingest import ingest
    from lostflops.testing import SyntheticCluster

    old, new = (
        SyntheticCluster(ranks=2, steps=steps).generate().traces.write(tmp_path / f"traces{steps}") for steps in (2, 3)
    )
    traces, run = object_store.put_all(new, "new"), object_store / "run"

    def steps() -> int:
        with Run.open(run) as opened:
            return int(
                opened.sql("select max(n) from (select count(*) as n from steps group by rank)").fetchall()[0][0]
            )

    def killed(at: float) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", KILLED, traces, run, str(at), *sys.path]
        return subprocess.run(words, check=False, capture_output=True, text=True)

    ingest(old, run, workers=1)
    before = steps()
    whole = killed(float("inf"))
    calls, after = int(whole.stdout), steps()
    assert (before, after) == (2, 3)
    for at in sorted({1.0, calls / 3, calls / 2, calls - 4.5, calls - 3.0, calls - 2.5, calls - 1.0}):
        ingest(old, run, workers=1, replace=True)
        assert steps() == before
        assert killed(at).returncode == -signal.SIGKILL, at
        assert steps() in (before, after)
    ingest(old, run, workers=1, replace=True)
    assert steps() == before

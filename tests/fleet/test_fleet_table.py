"""A fleet that was made by adding runs: an Iceberg table, the same for every engine that reads it."""

import functools
import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from made_summaries import make_summary, summaries

pytest.importorskip("pyiceberg", reason="the extra fleet is not installed")

import sqlalchemy
from pyarrow.parquet import ParquetFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.utils.config import Config

from lostflops.core.errors import BrokenRun, RunBusy, RunError, UsageError
from lostflops.fleet import changes, commits
from lostflops.fleet.catalogs import load_table
from lostflops.fleet.changes import add_runs, compact, expire, remove_runs
from lostflops.fleet.data_files import FILE_ROWS, list_tasks
from lostflops.fleet.kinds import LocalTable, find_kind, is_fleet
from lostflops.fleet.locations import local_path
from lostflops.fleet.place import open_fleet, read_version
from lostflops.fleet.summary import COLUMNS
from lostflops.fleet.sweep import GRACE_SECONDS


def read(place):
    return sorted(open_fleet(place, None).summaries(), key=lambda summary: summary.run)


def read_runs(place):
    with open_fleet(place, None).table(["run"]) as fleet:
        return sorted(run for (run,) in fleet.execute("SELECT run FROM runs").fetchall())


def list_data(place):
    return sorted((place / "runs" / "data").iterdir())


def open_table(place):
    return load_table(LocalTable(place))


@pytest.fixture
def place(tmp_path):
    return tmp_path / "a fleet's ä%20"


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """A catalog that is described elsewhere."""
    monkeypatch.setattr(commits, "_LONGEST_TURN", 0.05)
    engine = functools.partial(sqlalchemy.create_engine, poolclass=sqlalchemy.NullPool)
    monkeypatch.setattr("pyiceberg.catalog.sql.create_engine", engine)  # leaves no connection open
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path}/other.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it reads the environment when it is imported
    return "catalog:prod"


@settings(max_examples=10)
@given(made=st.lists(summaries(), unique_by=lambda summary: summary.run, min_size=1, max_size=4))
def test_summaries_survive_the_table(tmp_path_factory, made):
    place = tmp_path_factory.mktemp("fleet")
    assert add_runs(place, made) == len(made)
    assert read(place) == sorted(made, key=lambda summary: summary.run)


def test_many_runs_are_one_commit(place):
    count = FILE_ROWS + 3
    add_runs(place, (make_summary(f"{number:04d}") for number in range(count)))
    assert len(open_table(place).metadata.snapshots) == 1
    assert len(list_data(place)) == 2
    assert len(read_runs(place)) == count


def test_adding_nothing_makes_nothing(place):
    assert add_runs(place, []) == 0
    assert not place.exists()


def test_only_the_columns_that_are_asked_for(place):
    add_runs(place, [make_summary("a")])
    with open_fleet(place, None).table(["start", "labels", "commit"]) as fleet:
        assert fleet.sql("FROM runs").columns == ["labels", "start", "commit"]
        assert fleet.sql("FROM runs").types == [COLUMNS[name] for name in ("labels", "start", "commit")]


def test_a_run_that_is_added_again_is_replaced_in_one_commit(place):
    add_runs(place, [make_summary(run) for run in "abc"])
    add_runs(place, [make_summary("d")])
    add_runs(
        place, [make_summary("b", mfu=0.1), make_summary("e"), make_summary("d", mfu=0.2), make_summary("d", mfu=0.3)]
    )
    assert [(summary.run, summary.mfu) for summary in read(place)] == [
        ("a", 0.4), ("b", 0.1), ("c", 0.4), ("d", 0.3), ("e", 0.4),
    ]  # fmt: skip
    assert len(open_table(place).metadata.snapshots) == 3


def test_a_run_that_another_writer_adds_meanwhile_is_replaced(configured, monkeypatch):
    place = configured
    add_runs(place, [make_summary("a")])
    plan, others = changes.Rewrite.plan, [make_summary("b", mfu=0.1)]

    def plan_late(rewrite, table):
        change = plan(rewrite, table)
        if others:
            add_runs(place, [others.pop()])
        return change

    monkeypatch.setattr(changes.Rewrite, "plan", plan_late)
    add_runs(place, [make_summary("b", mfu=0.2)])
    assert [(summary.run, summary.mfu) for summary in read(place)] == [("a", 0.4), ("b", 0.2)]


def test_small_files_are_merged_while_runs_are_added(place, monkeypatch):
    monkeypatch.setattr(changes, "_MOST_SMALL", 4)
    monkeypatch.setattr(changes, "_COMMITS_PER_CHECK", 4)
    made = [make_summary(f"{number:02d}", start=100 - number) for number in range(12)]
    for summary in made:
        add_runs(place, [summary])
    assert read(place) == made
    assert len(list_tasks(open_table(place))) < 8


def test_compact_and_expire_keep_all_rows_and_remove_files(place):
    made = [make_summary(f"{number:02d}") for number in range(5)]
    for summary in made:
        add_runs(place, [summary])
    assert compact(place) == 5
    assert compact(place) == 0
    assert read(place) == made
    assert len(list_data(place)) == 6
    assert expire(place, datetime.now(UTC) - timedelta(days=1)) == 0
    assert len(list_data(place)) == 6
    assert expire(place, datetime.now(UTC)) == 5
    assert len(list_data(place)) == 1
    assert read(place) == made


def test_files_of_killed_writers_are_removed_when_they_are_old(place):
    add_runs(place, [make_summary("a")])
    left = [place / "runs" / part / "left" for part in ("data", "metadata")]
    for path in left:
        path.touch()
    expire(place, datetime.now(UTC))
    assert all(path.exists() for path in left)
    old = time.time() - GRACE_SECONDS - 10
    for path in place.rglob("*"):
        os.utime(path, (old, old))
    expire(place, datetime.now(UTC))
    assert not any(path.exists() for path in left)
    add_runs(place, [make_summary("b")])
    assert read_runs(place) == ["a", "b"]


def test_metadata_stays_small(place):
    for number in range(45):
        add_runs(place, [make_summary(f"{number:02d}")])
    table = open_table(place)
    assert len(table.metadata.snapshots) <= 20
    assert len(table.metadata.metadata_log) <= 10
    assert len(table.current_snapshot().manifests(table.io)) <= 16
    assert len(list((place / "runs" / "metadata").glob("*.json"))) <= 11
    assert len(read_runs(place)) == 45


def test_runs_are_removed_by_the_time_that_they_stopped(place):
    day = 86_400 * 10**9
    made = [make_summary(str(number), start=0, stop=number * day) for number in range(6)]
    add_runs(place, made[:4])
    add_runs(place, made[4:])
    assert remove_runs(place, datetime.fromtimestamp(3 * 86_400, UTC)) == 3
    assert read(place) == made[3:]
    assert remove_runs(place, datetime.fromtimestamp(3 * 86_400, UTC)) == 0
    assert remove_runs(place, datetime(9999, 12, 31, tzinfo=UTC)) == 3
    assert read(place) == []


def test_a_catalog_that_another_process_locked_is_busy_and_not_broken(place, monkeypatch):
    add_runs(place, [make_summary("a")])
    monkeypatch.setattr("lostflops.fleet.local_catalog.LOCK_SECONDS", 0.1)
    with closing(sqlite3.connect(place / "catalog.db")) as catalog:
        catalog.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RunBusy, match="locked by another process"):
            read(place)
    assert len(read(place)) == 1


def test_every_engine_reads_the_same_rows(place):
    made = [make_summary(f"{number:02d}", start=number, mfu=number / 7) for number in range(20)]
    add_runs(place, made[:15])
    add_runs(place, made[10:])
    expected = [(summary.run, summary.start, summary.mfu, summary.life, len(summary.hosts)) for summary in made]
    query = "run, start, mfu, life, len(hosts) FROM {} ORDER BY run"
    with open_fleet(place, None).table() as fleet:
        assert fleet.execute(f"SELECT {query.format('runs')}").fetchall() == expected
    table = open_table(place)
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["run"])
    assert [(row["run"], row["start"], row["mfu"], dict(row["life"]), len(row["hosts"])) for row in rows] == expected


CHDB = """
import chdb
query = "SELECT run, start, life, length(hosts) AS hosts FROM icebergLocal('runs') ORDER BY run"
print(chdb.query(query, "JSONEachRow"))
"""


def test_chdb_reads_the_same_rows(place):
    pytest.importorskip("chdb", reason="chdb is not installed")
    made = [make_summary(f"{number:02d}", start=number) for number in range(20)]
    add_runs(place, made[:15])
    add_runs(place, made[10:])
    # It reads tables below its working folder only.
    done = subprocess.run([sys.executable, "-c", CHDB], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line]
    assert [(row["run"], int(row["start"]), int(row["hosts"])) for row in rows] == [
        (summary.run, summary.start, 1) for summary in made
    ]
    assert {key: int(value) for key, value in rows[0]["life"].items()} == made[0].life


def test_an_empty_catalog_has_no_runs_yet(place):
    add_runs(place, [make_summary("a")])
    with sqlite3.connect(place / "catalog.db") as catalog:
        catalog.execute("DELETE FROM iceberg_tables")
    catalog.close()
    with pytest.raises(RunError, match=r"has no runs yet. Add some: lostflops fleet add"):
        read(place)


def test_a_folder_that_was_moved_is_refused(place, tmp_path):
    add_runs(place, [make_summary("a")])
    moved = place.rename(tmp_path / "moved")
    with pytest.raises(BrokenRun, match="A fleet cannot be moved"):
        read(moved)
    with pytest.raises(BrokenRun, match="A fleet cannot be moved"):
        add_runs(moved, [make_summary("a")])


@pytest.mark.parametrize("data", [b"", b"not a database, but long enough to be read as one" * 40])
def test_a_catalog_of_garbage_is_refused(place, data):
    place.mkdir()
    (place / "catalog.db").write_bytes(data)
    with pytest.raises(RunError, match=r"is not the catalog of a fleet|has no runs yet"):
        read(place)


def edit_metadata(place: Path, **changed: object) -> None:
    path = Path(open_table(place).metadata_location.removeprefix("file://"))
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


@pytest.mark.parametrize("name", ["py-io-impl", "write.py-location-provider.impl", "write.data.path"])
def test_a_table_that_names_code_or_places_is_refused(place, name):
    add_runs(place, [make_summary("a")])
    edit_metadata(place, properties={name: "antigravity.Any"})
    for use in (read, compact, lambda place: add_runs(place, [make_summary("b")])):
        with pytest.raises(BrokenRun, match=f"sets {name}, so it was not made by Lostflops"):
            use(place)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"properties": 1}', b'{"properties": {}}', b"\xff"])
def test_metadata_of_garbage_is_refused(place, data):
    add_runs(place, [make_summary("a")])
    Path(open_table(place).metadata_location.removeprefix("file://")).write_bytes(data)
    with pytest.raises(BrokenRun, match=r"is not the metadata of a table|cannot be used"):
        read(place)


def test_a_file_elsewhere_is_not_read(place, tmp_path):
    add_runs(place, [make_summary("a")])
    table = open_table(place)
    (tmp_path / "list.avro").write_bytes(b"")
    snapshots = json.loads(table.metadata.model_dump_json())["snapshots"]
    snapshots[0]["manifest-list"] = f"file://{tmp_path}/list.avro"
    edit_metadata(place, snapshots=snapshots)
    with pytest.raises(BrokenRun, match="which is not in its place"):
        read(place)


def test_rows_of_a_file_elsewhere_are_not_read(place, tmp_path):
    """Whoever may write a table must not make those who read it open files that only they can read."""
    add_runs(place, [make_summary("a")])
    add_runs(tmp_path / "private", [make_summary("secret")])
    (private,) = list_data(tmp_path / "private")
    table = open_table(place)
    named = {"file_path": f"file://{private}", "record_count": 1, "file_size_in_bytes": private.stat().st_size}
    kind = {"content": DataFileContent.DATA, "file_format": FileFormat.PARQUET, "partition": Record()}
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
        added.append_data_file(DataFile.from_args(**named, **kind, spec_id=0))
    with pytest.raises(BrokenRun, match="which is not in its place"):
        read(place)


@pytest.mark.parametrize("data", [b"", b"PAR1 garbage PAR1", None])
def test_a_damaged_data_file_is_named(place, data):
    add_runs(place, [make_summary("a")])
    (file,) = list_data(place)
    file.unlink() if data is None else file.write_bytes(data)
    with pytest.raises(BrokenRun, match=f"is missing or damaged.*{file.name}"):
        read(place)


def test_bits_that_flipped_in_a_data_file_are_an_error(place):
    add_runs(place, [make_summary(str(number), name="n" * 40) for number in range(50)])
    (file,) = list_data(place)
    data = bytearray(file.read_bytes())
    for at in range(100, len(data) // 2, 7):
        data[at] ^= 0xFF
    file.write_bytes(bytes(data))
    with pytest.raises(BrokenRun, match="is missing or damaged"):
        read(place)


def test_a_table_with_other_columns_is_refused(tmp_path):
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    place = tmp_path / "fleet"
    place.mkdir()
    catalog = SqlCatalog("lostflops", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    catalog.create_namespace("lostflops")
    catalog.create_table("lostflops.runs", Schema(NestedField(1, "run", LongType())), f"file://{place}/runs")
    catalog.close()
    for use in (read, lambda place: add_runs(place, [make_summary("b")])):
        with pytest.raises(BrokenRun, match="has a column run of another type: it is not a fleet"):
            use(place)


def test_a_configured_catalog_is_used_by_its_name(configured):
    made = [make_summary("a"), make_summary("b")]
    with pytest.raises(RunError, match="catalog:prod has no runs yet"):
        read(configured)
    for summary in made:
        add_runs(configured, [summary])
    assert read(configured) == made
    assert compact(configured) == 2
    assert expire(configured, datetime.now(UTC)) == 2
    assert read(configured) == made


def test_a_writer_that_others_always_overtake_gives_up_in_time_and_leaves_no_file(place, monkeypatch):
    add_runs(place, [make_summary("a")])
    before, began = list_data(place), time.monotonic()
    monkeypatch.setattr(commits, "_publish", lambda *_: False)
    with pytest.raises(RunBusy, match=r"other writers changed .* for 1 s without a pause"):
        add_runs(place, [make_summary("b")], seconds=1)
    assert 1 <= time.monotonic() - began < 10
    assert list_data(place) == before


def test_a_catalog_that_is_not_configured_is_an_error_in_words():
    with pytest.raises(BrokenRun, match="catalog:nowhere cannot be used"):
        read("catalog:nowhere")


def test_a_fleet_in_a_bucket_needs_no_catalog(object_store):
    place = object_store / "fleet"
    with pytest.raises(RunError, match="has no runs yet"):
        read(place)
    made = [make_summary(f"{number:02d}", start=number) for number in range(6)]
    add_runs(place, made[:4])
    add_runs(place, made[2:])
    assert read(place) == made
    assert compact(place) == 2
    assert expire(place, datetime.now(UTC)) == 2
    assert len(object_store.keys("fleet/data")) == 1
    assert read(place) == made
    assert str(find_kind(place)) == place


def test_a_fleet_in_a_bucket_is_served_and_notices_runs(object_store):
    place = object_store / "served"
    assert not is_fleet(place)
    add_runs(place, [make_summary("a")])
    assert is_fleet(place)
    before = read_version(place)
    assert read_version(place) == before
    add_runs(place, [make_summary("b")])
    assert read_version(place) != before


def test_garbage_in_a_bucket_is_an_error_in_words(object_store):
    place = object_store / "fleet"
    object_store.put("fleet/metadata/v1.metadata.json", b"{}")
    with pytest.raises(BrokenRun, match="cannot be used"):
        read(place)
    with pytest.raises(UsageError, match="cannot read gs://"):
        read("gs://bucket/fleet")


def delete_row(place: Path, run: str) -> None:
    """Delete a row as Spark does it: a file with its position, which readers apply."""
    import pyarrow as pa
    from pyarrow import parquet
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestContent,
        ManifestEntry,
        ManifestEntryStatus,
        ManifestWriterV2,
    )
    from pyiceberg.typedef import Record

    class DeleteWriter(ManifestWriterV2):
        def content(self):
            return ManifestContent.DELETES

    table = open_table(place)
    (task,) = list_tasks(table)
    runs = parquet.read_table(local_path(task.file.file_path), columns=["run"]).column(0).to_pylist()
    schema = pa.schema([
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ])  # fmt: skip
    path = place / "runs" / "data" / "deletes.parquet"
    rows = pa.Table.from_pydict({"file_path": [task.file.file_path], "pos": [runs.index(run)]}, schema)
    parquet.write_table(rows, path)
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
        spec_id=0,
    )
    with table.transaction() as transaction:
        producer = transaction.update_snapshot().fast_append()
        existing = producer._existing_manifests()
        output = producer.new_manifest_output()
        with DeleteWriter(table.spec(), table.schema(), output, producer.snapshot_id, "gzip") as writer:
            status = ManifestEntryStatus.ADDED
            writer.add(ManifestEntry.from_args(status=status, snapshot_id=producer.snapshot_id, data_file=file))
        producer._manifests = lambda: [*existing, writer.to_manifest_file()]
        producer.commit()


def test_rows_that_another_engine_deleted_are_gone(place):
    made = [make_summary(run) for run in "abcd"]
    add_runs(place, made)
    delete_row(place, "b")
    rest = [made[0], *made[2:]]
    assert read(place) == rest
    add_runs(place, [make_summary("d", mfu=0.9)])
    assert read(place) == [*rest[:2], make_summary("d", mfu=0.9)]


def test_merging_drops_rows_that_another_engine_deleted(place):
    made = [make_summary(run) for run in "abcd"]
    add_runs(place, made)
    delete_row(place, "b")
    assert compact(place) == 1
    assert read(place) == [made[0], *made[2:]]
    assert not list_tasks(open_table(place))[0].delete_files


@pytest.fixture
def patch_catalog(monkeypatch):
    """Replace what the catalog does with a commit, once: the function gets the true one."""
    monkeypatch.setattr(commits, "_LONGEST_TURN", 0.05)  # what it does first is another writer, which does not wait

    def patch(do):
        true = SqlCatalog.commit_table

        def commit_table(catalog, table, requirements, updates):
            monkeypatch.setattr(SqlCatalog, "commit_table", true)
            return do(lambda: true(catalog, table, requirements, updates))

        monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)

    return patch


def test_a_commit_whose_answer_was_lost_counts(place, patch_catalog):
    add_runs(place, [make_summary("a")])

    def lose_answer(commit):
        commit()
        raise ConnectionError("no answer")

    patch_catalog(lose_answer)
    assert add_runs(place, [make_summary("b")]) == 1
    assert read_runs(place) == ["a", "b"]
    assert len(list_data(place)) == 2


def test_a_catalog_that_fails_is_an_error_in_words_and_deletes_nothing(place, patch_catalog):
    add_runs(place, [make_summary("a")])

    def fail(commit):
        raise ConnectionError("no answer")

    patch_catalog(fail)
    with pytest.raises(BrokenRun, match="no answer"):
        add_runs(place, [make_summary("b")])
    assert read_runs(place) == ["a"]
    assert len(list_data(place)) == 2, "the commit may arrive later"
    add_runs(place, [make_summary("b")])
    assert read_runs(place) == ["a", "b"]


def test_versions_that_expire_meanwhile_are_no_conflict(place, patch_catalog):
    for number in range(20):
        add_runs(place, [make_summary(f"{number:02d}")])

    def expire_first(commit):
        expire(place, datetime.now(UTC))
        return commit()

    patch_catalog(expire_first)
    add_runs(place, [make_summary("20")])  # trims versions that are gone by then
    assert len(read_runs(place)) == 21


def test_runs_that_are_added_meanwhile_survive_merging(place, patch_catalog):
    for number in range(4):
        add_runs(place, [make_summary(str(number))])

    def add_first(commit):
        add_runs(place, [make_summary("new")])
        return commit()

    patch_catalog(add_first)
    assert compact(place) == 4
    assert read_runs(place) == ["0", "1", "2", "3", "new"]


def test_merging_gives_way_to_a_run_that_is_replaced(place, patch_catalog):
    for number in range(4):
        add_runs(place, [make_summary(str(number))])

    def replace_first(commit):
        add_runs(place, [make_summary("2", mfu=0.9)])
        return commit()

    patch_catalog(replace_first)
    compact(place)
    assert [summary.mfu for summary in read(place)] == [0.4, 0.4, 0.9, 0.4]


@pytest.mark.parametrize("where", ["local", "configured", "bucket"])
def test_files_from_before_a_time_are_not_opened(where, tmp_path, configured, request, monkeypatch):
    place = tmp_path / "fleet" if where == "local" else configured
    if where == "bucket":
        place = request.getfixturevalue("object_store") / "fleet"
    for number in range(3):
        add_runs(place, [make_summary(str(number), start=100 * number, stop=1000)])
    for task in list_tasks(load_table(find_kind(place)), "start < 100"):
        load_table(find_kind(place)).io.delete(task.file.file_path)
    with open_fleet(place, None).table(["run"], since=150) as fleet:
        assert fleet.execute("select run from runs").fetchall() == [("2",)]
    with pytest.raises(BrokenRun):
        read(place)


def test_adding_to_a_bucket_reads_the_names_of_runs_and_not_their_rows(object_store):
    place = object_store / "fleet"
    add_runs(place, [make_summary(f"{number:032x}", name="x" * 5000 + str(number)) for number in range(0, 400, 2)])
    table = load_table(find_kind(place))
    (task,) = list_tasks(table)
    with table.io.open_parts(task.file.file_path) as file:
        ParquetFile(file).read(columns=["run"])
        assert file.cache.total_requested_bytes < task.file.file_size_in_bytes / 2
    add_runs(place, [make_summary(f"{number:032x}") for number in range(3)])
    assert len(read(place)) == 201

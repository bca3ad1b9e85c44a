"""The manifest: what it refuses, and with which error."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.core.errors import BrokenRun, LostflopsError, NotARun, RunError, RunTooNew
from lostflops.core.limits import LARGEST_MANIFEST
from lostflops.store import manifest
from lostflops.store.manifest import FILE_NAME, DataFile, Manifest, Source, current_columns, is_run, load, save
from lostflops.store.tables import SCHEMA_VERSION, TABLES

FULL = Manifest(
    writer="lostflops 0",
    generation=7,
    columns=current_columns(),
    sources=[
        Source(
            path="/träces/it's \"0\".json", size=1 << 40, modified_ns=1, hash="ab", format="kineto", rank=3,
            rank_source="recorded", host="h", device="H100", device_index=1, world_size=8, backend="nccl",
            base_time=1 << 60, events=5,
        )
    ],
    files={"events": [DataFile(path="data/000007/events/a.parquet", format="kineto", ranks=[3])]},
)  # fmt: skip


def test_what_is_saved_is_loaded(tmp_path):
    save(tmp_path, FULL)
    assert load(tmp_path) == FULL
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_every_table_and_column_is_named():
    assert current_columns() == {table.name: [column.name for column in table.columns] for table in TABLES}


def test_a_folder_without_manifest_is_not_a_run(tmp_path):
    with pytest.raises(NotARun, match="lostflops ingest"):
        load(tmp_path)
    with pytest.raises(NotARun):
        load(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(NotARun):
        load(tmp_path / "file")


def test_a_name_that_nearly_exists_is_asked_about_and_not_ingested_into(tmp_path):
    for name in ("keller", "kelpr"):
        (tmp_path / name).mkdir()
    save(tmp_path / "keller", FULL)
    with pytest.raises(NotARun, match=r"kellr does not exist\. Did you mean \S+keller\?$"):
        load(tmp_path / "kellr")
    with pytest.raises(NotARun, match="To make one"):
        load(tmp_path / "kelpr")
    with pytest.raises(NotARun, match="To make one"):
        load(tmp_path / "other")


def test_a_newer_schema_says_how_to_upgrade(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"schema": SCHEMA_VERSION + 1, "sources": "in a form not known yet"}))
    with pytest.raises(RunTooNew, match="pip install -U lostflops"):
        load(tmp_path)


def test_a_schema_that_is_too_old_is_refused(tmp_path, monkeypatch):
    save(tmp_path, FULL)
    monkeypatch.setattr(manifest, "OLDEST_READABLE", SCHEMA_VERSION + 1)
    monkeypatch.setattr(manifest, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    with pytest.raises(RunError, match="Ingest its traces again"):
        load(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"schema": "one"}',
        b'{"schema": 1.5}',
        b'{"schema": 1, "generation": "x"}',
        b'{"schema": 1, "sources": [{}]}',
        b'{"schema": 1, "files": {"events": [{"path": "a"}]}}',
        b'{"schema": 1, "writer": "\xff\xfe"}',
        b'{"\xff": 1, "schema": 1}',
        b'{"schema": 1, "writer": "\\ud800"}',
        b'{"schema": 1, "x": ' + b"[" * 100_000,
        b"\0" * 100,
    ],
)
def test_damage_is_a_broken_run(tmp_path, damage):
    (tmp_path / "run.json").write_bytes(damage)
    with pytest.raises(BrokenRun, match="damaged"):
        load(tmp_path)


def test_a_folder_in_the_place_of_the_manifest(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(RunError):
        load(tmp_path)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_damage_is_an_error_of_ours_or_still_a_manifest(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    save(folder, FULL)
    text = bytearray((folder / "run.json").read_bytes())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    (folder / "run.json").write_bytes(bytes(text))
    try:
        found = load(folder)
    except LostflopsError:
        return
    assert isinstance(found, Manifest)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGEST_MANIFEST + 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [(make_pipe, "not a regular file"), (make_endless, "is a link"), (make_large, "too large for a list of files")],
)
def test_what_is_no_plain_file_is_refused_unread(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    make(tmp_path / FILE_NAME)
    with pytest.raises(BrokenRun, match=said):
        load(tmp_path)
    assert not is_run(tmp_path)

"""Reduced traces: a run of them is the run of the traces, and what is no such file gives no row."""

from __future__ import annotations

import gzip
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.made_captures import end, frames, session, write, write_window
from tests.run_rows import rows_of
from tests.shared_data import TRACES

from lostflops.collect.capture import reduced_form, trace_file
from lostflops.core.errors import BrokenSource
from lostflops.ingest import ingest
from lostflops.ingest.common.reader import RankClaim
from lostflops.ingest.find.trace_file import TraceFile
from lostflops.ingest.reduce import reduce
from lostflops.ingest.tasks import FileBatch, carry_out
from lostflops.store.run import Run

EVENTS = [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 10, "dur": 90},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 20, "dur": 5},
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 2, "ts": 30, "dur": 5},
]


def reduced_beside(raw: Path, scratch: Path) -> Path:
    """The trace reduced, under the name that the collector gives it."""
    scratch.mkdir()
    plain = scratch / raw.name.removesuffix(".gz")
    plain.write_bytes(gzip.decompress(raw.read_bytes()))
    target = reduced_form(raw)
    reduce(plain, scratch).replace(target)
    shutil.rmtree(scratch)
    return target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "capture"


def window(folder: Path, rank: int, number: int = 0, name: str = "aten::relu") -> Path:
    """A window of a rank as a reduced trace alone."""
    raw = write_window(folder, rank, number, [*EVENTS, EVENTS[1] | {"name": name}])
    found = reduced_beside(raw, folder / "scratch")
    raw.unlink()
    return found


REAL = [
    "NVIDIA__Megatron-LM/tp2/rank*.pt.trace.json.gz",
    pytest.param("astra-sim__astra-sim/megatron-tp8/megatron_kineto_?.json.gz", marks=pytest.mark.slow),
    pytest.param("meta-pytorch__torchrec/sst_long_a2a_optimizer_2/*.json.gz", marks=pytest.mark.slow),
    pytest.param("facebookresearch__HolisticTraceAnalysis/cpu_only__rank-34*.json.gz", marks=pytest.mark.slow),
    pytest.param("facebookresearch__HolisticTraceAnalysis/amd_trace__*.json.gz", marks=pytest.mark.slow),
    pytest.param("pytorch__kineto/tb_plugin__samples__resnet50_num_workers_0__*.json.gz", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("pattern", REAL)
def test_a_run_of_reduced_traces_is_the_run_of_the_traces(tmp_path: Path, pattern: str) -> None:
    found = sorted(TRACES.glob(pattern))
    if not found:
        pytest.skip("the traces are not there")
    raw, reduced = tmp_path / "raw", tmp_path / "reduced"
    for folder in (raw, reduced):
        folder.mkdir()
    for number, path in enumerate(found):
        for folder in (raw, reduced):
            shutil.copy(path, trace_file(folder, number, 0))
        reduced_beside(trace_file(reduced, number, 0), tmp_path / "scratch")
        trace_file(reduced, number, 0).unlink()
    for folder in (raw, reduced):
        assert len(ingest([folder], tmp_path / f"{folder.name}-run").ranks_added) == len(found)
    assert rows_of(tmp_path / "reduced-run") == rows_of(tmp_path / "raw-run")
    assert len(rows_of(tmp_path / "raw-run")["events"]) > 0


def test_ranks_of_one_task_become_one_file_of_each_table(folder: Path, tmp_path: Path) -> None:
    paths = [window(folder, rank, name=f"of {rank}") for rank in range(3)]
    paths[1].write_bytes(paths[1].read_bytes()[:-100])
    files = [TraceFile(address=str(path), claim=RankClaim(rank, "recorded")) for rank, path in enumerate(paths)]
    staging = tmp_path / "staging"
    done = carry_out(FileBatch(format="kineto", files=files, staging=str(staging), stem="few"), lambda _: None)
    assert [source.rank for source in done.sources] == [0, 2]
    assert len(done.skipped) == 1
    parts = {(file.part.table, *file.part.ranks) for file in done.files}
    assert parts == {(name, 0, 2) for name in ("events", "lanes", "steps")}
    (events,) = (staging / "events").iterdir()
    query = f"select rank, count(*), count(*) filter (name = 'of ' || rank) from '{events}' group by rank order by rank"
    assert duckdb.sql(query).fetchall() == [(0, 4, 1), (2, 4, 1)]


@pytest.mark.slow
def test_many_ranks_become_few_files_with_all_rows(folder: Path) -> None:
    first = window(folder, 0)
    for rank in range(1, 300):
        _with_rank(first, reduced_form(trace_file(folder, rank, 0)), rank)
    ingest([folder], folder.parent, workers=2)
    assert len(list((folder.parent / "data").rglob("events/*.parquet"))) <= 300 // 37
    found = rows_of(folder.parent)["events"]
    assert len(found) == 300 * 4
    with Run.open(folder.parent) as run:
        assert run.sql("select count(distinct rank), min(rank), max(rank) from events").fetchall() == [(300, 0, 299)]


def test_a_trace_that_is_kept_beside_its_reduced_form_is_not_read(folder: Path) -> None:
    raw = write_window(folder, 0, 0, EVENTS)
    reduced = reduced_beside(raw, folder / "scratch")
    raw.write_bytes(b"anything")
    done = ingest([folder], folder.parent, workers=1)
    assert done.events == 3
    assert not done.skipped
    with Run.open(folder.parent) as run:
        assert run.sql("select source, formats from ranks").fetchall() == [(str(reduced), "kineto")]


BROKEN: dict[str, Callable[[Path], object]] = {
    "the end is missing": lambda path: path.write_bytes(path.read_bytes()[:-200]),
    "a byte is wrong": lambda path: changed_bytes(path, 700),
    "nothing is there": lambda path: path.write_bytes(b""),
    "the head is zeroes": lambda path: path.write_bytes(bytes(64) + path.read_bytes()[64:]),
    "a newer version wrote it": lambda path: rewritten(path, path, told=lambda told: told | {"schema": 99}),
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("is_in_the_run", [False, True])
def test_where_a_reduced_trace_is_broken_the_raw_one_beside_it_is_read(
    folder: Path, how: str, is_in_the_run: bool
) -> None:
    for rank in range(2):
        reduced_beside(write_window(folder, rank, 0, EVENTS), folder / "scratch")
        write(folder, rank, frames(rank, f"s{rank}", [session(rank), end(1)]))
    broken = reduced_form(trace_file(folder, 1, 0))
    if is_in_the_run:
        ingest([folder], folder.parent, workers=1)
    BROKEN[how](broken)
    for _ in range(2):
        done = ingest([folder], folder.parent, workers=1)
        ((path, why),) = done.skipped
        assert path == str(broken)
        assert why.endswith("; the raw trace next to it is used instead")
        assert [row[0] for row in rows_of(folder.parent)["events"]] == [0] * 3 + [1] * 3
        with Run.open(folder.parent) as run:
            found = run.sql("select source from ranks order by rank").fetchall()
        assert [source for (source,) in found] == [
            str(reduced_form(trace_file(folder, 0, 0))),
            str(trace_file(folder, 1, 0)),
        ]


def test_a_raw_trace_that_is_read_instead_is_of_the_rank_that_its_name_says(folder: Path) -> None:
    """A profiler writes no rank where the job has no process group."""
    for rank in range(2):
        raw = write_window(folder, rank, 0, EVENTS)
        raw.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}).encode()))
        broken = reduced_beside(raw, folder / "scratch")
        write(folder, rank, frames(rank, f"s{rank}", [session(rank), end(1)]))
    broken.write_bytes(broken.read_bytes()[:-200])
    ingest([folder], folder.parent, workers=1)
    with Run.open(folder.parent) as run:
        found = run.sql("select rank, rank_source from ranks order by rank").fetchall()
    assert found == [(0, "file name"), (1, "file name")]


def test_where_both_forms_are_broken_both_are_told(folder: Path) -> None:
    window(folder, 0)
    raw = write_window(folder, 1, 0, EVENTS)
    reduced = reduced_beside(raw, folder / "scratch")
    for path in (raw, reduced):
        path.write_bytes(path.read_bytes()[:100])
    done = ingest([folder], folder.parent, workers=1)
    assert [path for path, _ in done.skipped] == [str(reduced), str(raw)]
    assert done.ranks_added == (0,)


def test_a_form_takes_the_place_of_the_other(folder: Path) -> None:
    raw = write_window(folder, 0, 0, EVENTS)
    write(folder, 0, frames(0, "a", [session(0), end(1)]))
    assert ingest([folder], folder.parent, workers=1).events == 3
    reduced = reduced_beside(raw, folder / "scratch")
    assert ingest([folder], folder.parent, workers=1).events == 3
    reduced.unlink()
    write_window(folder, 0, 0, EVENTS[:1])
    assert ingest([folder], folder.parent, workers=1).events == 1
    assert len(rows_of(folder.parent)["events"]) == 1
    assert ingest([folder], folder.parent, workers=1).ranks_unchanged == (0,)


def test_windows_in_both_forms_are_counted_by_rank(folder: Path) -> None:
    """Rank 0 has window 1 in both forms, which are one window of one rank."""
    reduced_beside(write_window(folder, 0, 1, EVENTS), folder / "scratch")
    for rank in range(2):
        window(folder, rank, 2, "aten::tanh")
    done = ingest([folder], folder.parent, workers=1)
    ((pattern, why),) = done.skipped
    assert pattern == str(folder / "rank-*.w0001.parts")
    assert "1 trace of window 1, but other windows have 2" in why
    assert ingest([pattern], folder.parent.with_name("other"), workers=1).ranks_added == (0,)


def _with_rank(source: Path, target: Path, rank: int) -> None:
    """A reduced trace as that of another rank, in all its files."""
    rewritten(
        source,
        target,
        told=lambda told: told | {"rank": rank},
        part=f"* replace ({rank}::integer as rank)",
    )


def rewritten(
    source: Path,
    target: Path,
    *,
    tables: str = "",
    told: Callable[[dict[str, Any]], dict[str, Any]] = lambda told: told,
    part: str = "*",
    rename: Callable[[str], str] = lambda name: name,
) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target.with_suffix(".new"), "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename == "part.json":
                data = json.dumps(told(json.loads(data)), separators=(",", ":")).encode()
            elif part != "*" and info.filename.startswith(tables):
                data = _selected(data, part, target.parent)
            new.writestr(rename(info.filename), data)
    target.with_suffix(".new").replace(target)
    return target


def _selected(data: bytes, what: str, folder: Path) -> bytes:
    before, after = folder / "before.parquet", folder / "after.parquet"
    before.write_bytes(data)
    duckdb.sql(f"copy (select {what} from '{before}') to '{after}' (format parquet)")
    found = after.read_bytes()
    before.unlink()
    after.unlink()
    return found


def changed_bytes(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)


def compressed(path: Path) -> None:
    with zipfile.ZipFile(path) as old:
        members = [(info.filename, old.read(info)) for info in old.infolist()]
    with zipfile.ZipFile(path, "w") as new:
        new.writestr(*members[0])
        for name, _ in members[1:]:
            new.writestr(name, b"\0" * (1 << 24), zipfile.ZIP_DEFLATED)


def flagged(path: Path) -> None:
    """Its first member asks for what no reader can do."""
    data = bytearray(path.read_bytes())
    for flags in (6, data.index(b"PK\x01\x02") + 8):
        data[flags] |= 0x20
    path.write_bytes(data)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "another rank in one table": (
        lambda path: rewritten(path, path, told=lambda told: told | {"rank": 7}),
        "a rank other than 7",
    ),
    "a rank that is null": (
        lambda path: rewritten(path, path, part="* replace (null::integer as rank)"),
        "a rank other than 0",
    ),
    "no rank": (lambda path: rewritten(path, path, part="* exclude (rank)"), "no column of ranks"),
    "a time that overflows": (
        lambda path: rewritten(path, path, tables="events/", part="* replace (9223372036854775807 as start)"),
        "rows without a valid time",
    ),
    "a time that is null": (
        lambda path: rewritten(path, path, tables="events/", part="* replace (null::bigint as start)"),
        "events has 4 rows without a valid time",
    ),
    "an end before its start": (
        lambda path: rewritten(path, path, tables="events/", part="* replace (-1::bigint as dur)"),
        "events has 4 rows without a valid time",
    ),
    "a lane that no profiler writes": (
        lambda path: rewritten(path, path, tables="events/", part="* replace (2000000000 as lane)"),
        "events has 4 rows without a valid time or lane",
    ),
    "no starts": (lambda path: rewritten(path, path, tables="events/", part="* exclude (start)"), "events has 4 rows"),
    "an unknown column": (lambda path: rewritten(path, path, part="*, 1 as more"), "no column 'more'"),
    "another type": (
        lambda path: rewritten(path, path, part="* replace (rank::bigint as rank)"),
        "no column 'rank' of type BIGINT",
    ),
    "an unknown table": (
        lambda path: rewritten(path, path, rename=lambda name: name.replace("lanes", "timings")),
        "unexpected member",
    ),
    "a path": (
        lambda path: rewritten(path, path, rename=lambda name: name.replace("lanes/", "../../lanes/")),
        "unexpected member",
    ),
    "rows that it does not tell": (
        lambda path: rewritten(path, path, told=lambda told: told | {"rows": told["rows"] | {"events": 3}}),
        "the number of rows is not as declared",
    ),
    "another format": (lambda path: rewritten(path, path, told=lambda told: told | {"format": "nsys"}), "'nsys'"),
    "a newer schema": (lambda path: rewritten(path, path, told=lambda told: told | {"schema": 99}), "newer version"),
    "a newer layout": (lambda path: rewritten(path, path, told=lambda told: told | {"reduced": 2}), "newer version"),
    "a negative rank": (
        lambda path: rewritten(path, path, told=lambda told: told | {"rank": -1}),
        "part.json is damaged",
    ),
    "the end is missing": (lambda path: path.write_bytes(path.read_bytes()[:-200]), "not complete"),
    "a byte is wrong": (lambda path: changed_bytes(path, 700), "damaged"),
    "a feature that is not there": (flagged, "part.json is damaged"),
    "much of nothing": (compressed, "larger than the file"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_reduced_trace_gives_no_row(folder: Path, what: str) -> None:
    change, reason = HOSTILE[what]
    change(window(folder, 0))
    window(folder, 1)
    done = ingest([folder], folder.parent, workers=1)
    assert done.ranks_added == (1,)
    ((_, why),) = done.skipped
    assert reason in why
    assert {row[0] for row in rows_of(folder.parent)["events"]} == {1}
    with pytest.raises(BrokenSource, match="not a readable reduced trace"):
        ingest([reduced_form(trace_file(folder, 0, 0))], folder.parent, workers=1)


def test_every_stump_of_a_reduced_trace_is_refused(folder: Path) -> None:
    whole = window(folder, 0).read_bytes()
    window(folder, 1)
    for length in range(64, len(whole), 997):
        reduced_form(trace_file(folder, 0, 0)).write_bytes(whole[:length])
        assert ingest([folder], folder.parent, workers=1).ranks_added in ((1,), ())
        assert {row[0] for row in rows_of(folder.parent)["ranks"]} == {1}


def test_what_an_older_version_lacked_is_null(folder: Path) -> None:
    path = window(folder, 0)
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith("lanes/")]
        assert len(names) == 1

    def without_name(data: bytes) -> bytes:
        return _selected(data, "* exclude (name)", folder)

    with zipfile.ZipFile(path) as old, zipfile.ZipFile(folder / "x.new", "w") as new:
        for info in old.infolist():
            data = old.read(info)
            new.writestr(info.filename, without_name(data) if info.filename in names else data)
    (folder / "x.new").replace(path)
    ingest([folder], folder.parent, workers=1)
    with Run.open(folder.parent) as run:
        assert run.sql("select distinct name, kind from lanes").fetchall() == [(None, "thread")]


def test_the_rank_of_a_trace_that_tells_none_is_that_of_its_name(folder: Path) -> None:
    raw = write_window(folder, 5, 0, EVENTS)
    document = json.loads(gzip.decompress(raw.read_bytes()))
    del document["distributedInfo"]
    raw.write_bytes(gzip.compress(json.dumps(document).encode()))
    reduced_beside(raw, folder / "scratch")
    ingest([folder], folder.parent, workers=1)
    assert [row[:2] for row in rows_of(folder.parent)["ranks"]] == [(5, "file name")]


def test_folders_are_cleaned_from_what_is_read(folder: Path) -> None:
    def clean(blocks: Iterator[bytes]) -> Iterator[bytes]:
        yield b"".join(blocks).replace(b"aten::mm", b"clean")

    raw = write_window(folder, 0, 0, EVENTS)
    (folder / "work").mkdir()
    plain = folder / "work" / "rank-0.json"
    plain.write_bytes(gzip.decompress(raw.read_bytes()))
    reduce(plain, folder / "work", clean).replace(reduced_form(raw))
    shutil.rmtree(folder / "work")
    ingest([folder], folder.parent, workers=1)
    assert {row[4] for row in rows_of(folder.parent)["events"]} == {"ProfilerStep#3", "clean", "aten::add"}

"""Recorded exports of Nsight Systems against plain SQL over the same files."""

import gzip
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing

import pytest

from lostflops.explain.analyze.report import report
from lostflops.explain.compare import recordings
from lostflops.ingest import ingest
from lostflops.store.run import Run
from shared_data import TRACES

FILES = [
    "GindaChen__nsys-ai/mfu_2gpu_before",
    "GindaChen__nsys-ai/mfu_2gpu_after",
    "GindaChen__nsys-ai/h100_2gpu_1s",
    "hpcgroup__pipit/perlmutter-cloverleaf-cuda",
    "hpcgroup__pipit/saxpy-mpi-cuda_nsys_perlmutter0",
]
PREFIX = "CUPTI_ACTIVITY_KIND_"
pytestmark = pytest.mark.skipif(
    not (TRACES / f"{FILES[0]}.sqlite.gz").exists(), reason="no recorded exports beside the checkout"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder of the run and path of the unpacked file, by name; each is read once."""
    folder, known = tmp_path_factory.mktemp("nsys"), {}

    def get(name):
        if name not in known:
            packed = TRACES / f"{name}.sqlite.gz"
            plain, run = folder / f"{name.rpartition('/')[2]}.sqlite", folder / name.replace("/", "-")
            plain.write_bytes(gzip.decompress(packed.read_bytes()))
            ingest([packed], run, workers=1)
            known[name] = run, plain
        return known[name]

    return get


def device_rows(path):
    """Rank, class, name, stream, start and end of all that devices did; ranks in order of device and process."""
    with closing(sqlite3.connect(path)) as file:
        tables = {name for (name,) in file.execute("select name from sqlite_master")}
        texts = dict(file.execute("select id, value from StringIds"))
        rows = []
        for kind in ("KERNEL", "MEMCPY", "MEMSET"):
            if PREFIX + kind in tables:
                name = "demangledName" if kind == "KERNEL" else "null"
                query = f'select deviceId, globalPid, {name}, streamId, start, "end" from {PREFIX}{kind}'
                rows += [((device, pid), kind, *rest) for device, pid, *rest in file.execute(query)]
    number = {place: rank for rank, place in enumerate(sorted({row[0] for row in rows}))}
    kinds = {"KERNEL": "compute", "MEMCPY": "copy", "MEMSET": "copy"}
    return [
        (number[place], "comm" if "nccl" in texts.get(name, "") else kinds[kind], texts.get(name), stream, start, end)
        for place, kind, name, stream, start, end in rows
    ]


def union(spans):
    total, reach = 0, -1
    for start, end in sorted(spans):
        total += max(0, end - max(start, reach))
        reach = max(reach, end)
    return total


@pytest.mark.parametrize("name", FILES)
def test_the_ledger_is_what_sql_says(runs, name) -> None:
    run_folder, path = runs(name)
    rows = device_rows(path)
    expected = Counter()
    for rank in {row[0] for row in rows}:
        spans = defaultdict(list)
        for own, kind, _, _, start, end in rows:
            if own == rank:
                spans[kind].append((start, end))
        everything = [span for kind in ("compute", "comm", "copy") for span in spans[kind]]
        expected["total"] += max(end for _, end in everything) - min(start for start, _ in everything)
        expected["compute"] += union(spans["compute"])
        expected["comm"] += union(spans["compute"] + spans["comm"]) - union(spans["compute"])
        expected["copy"] += union(everything) - union(spans["compute"] + spans["comm"])
    with Run.open(run_folder) as run:
        told = report(run).to_json()
    found = Counter()
    for line in told["ledger"]["lines"]:
        found[line["line"].partition(".")[0]] += line["ns"]
    assert told["ledger"]["total_ns"] == sum(found.values()) == expected["total"]
    assert {kind: found[kind] for kind in ("compute", "comm", "copy")} == {
        kind: expected[kind] for kind in ("compute", "comm", "copy")
    }


@pytest.mark.parametrize("name", FILES)
def test_kernels_by_name_and_by_stream_are_what_sql_says(runs, name) -> None:
    run_folder, path = runs(name)
    named, streams = Counter(), Counter()
    for rank, kind, kernel, stream, start, end in device_rows(path):
        if kind != "copy":
            named[kernel] += 1
            streams[rank, stream] += end - start
    with Run.open(run_folder) as run:
        found = run.sql("select name, count(*) from events where kind in ('kernel', 'comm') group by name").fetchall()
        sums = run.sql(
            "select rank, stream, sum(dur) from events join lanes using (rank, lane) "
            "where events.kind in ('kernel', 'comm') group by all"
        ).fetchall()
    assert dict(found) == named
    assert {(rank, stream): ns for rank, stream, ns in sums} == streams


@pytest.mark.parametrize("name", FILES[:3])
def test_launches_are_joined_as_sql_joins_them(runs, name) -> None:
    run_folder, path = runs(name)
    with closing(sqlite3.connect(path)) as file:
        ((expected,),) = file.execute(
            f"select count(*) from {PREFIX}KERNEL k where exists (select 1 from {PREFIX}RUNTIME r "
            "where r.correlationId = k.correlationId and r.globalTid >> 24 = k.globalPid >> 24)"
        )
    with Run.open(run_folder) as run:
        ((found,),) = run.sql(
            "select count(*) from events k where kind in ('kernel', 'comm') and exists (select 1 from events r "
            "where r.kind = 'runtime' and r.rank = k.rank and r.correlation = k.correlation)"
        ).fetchall()
    assert found == expected > 0


def test_before_and_after_differ_on_named_lines_and_kernels(runs) -> None:
    sides = [[runs(name)[0]] for name in FILES[:2]]
    told = recordings.diff(*sides).to_json()
    assert told["answer"] == "inconclusive"
    lines = {row["line"]: row["delta_ns"] for row in told["lines"]}
    assert lines["compute"] < -80_000_000
    assert lines["idle.host"] > 50_000_000
    assert told["kernels"][0]["name"].startswith("void flash::flash_fwd_kernel")
    assert [(row["collective"], row["change"]) for row in told["collectives"]] == [
        ("all_to_all", "fewer calls, longer")
    ]

import json

import pytest

from lostflops.cli.verbs.sql import TABLE_ROWS
from lostflops.store.tables import TABLES
from memory_run import MemoryRun

KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


@pytest.fixture
def run(runs) -> str:
    events = [{"rank": 0, "event": i, "kind": "kernel", "name": KERNEL, "dur": i} for i in range(100)]
    runs["run"] = lambda: MemoryRun(ranks=[{"rank": 0, "events": 100}], events=events)
    return "run"


def test_a_table_is_cut_and_says_so(lostflops, run) -> None:
    outcome = lostflops("sql", run, "select event, dur from events order by event")
    lines = outcome.out.splitlines()
    assert lines[1] == "The first 40 rows; --limit N shows more, --format csv shows all."
    assert sum(line.split() == [str(i), str(i)] for i in range(100) for line in lines) == TABLE_ROWS
    assert lines[-1].startswith("Next: lostflops sql run")


def test_a_limit_that_fits_says_nothing(lostflops, run) -> None:
    assert lostflops("sql", run, "select event from events", "--limit", "100").out.splitlines()[1] == "100 rows."


def test_a_wide_table_stays_in_80_columns(lostflops, run) -> None:
    outcome = lostflops("sql", run, "select * from events limit 2")
    assert outcome.code == 0
    assert max(len(line.rstrip()) for line in outcome.out.splitlines()) <= 80
    assert outcome.out.count("vectorized_elementwise_kernel") == 2
    assert "occupancy" in outcome.out


def test_csv_has_all_rows_and_nothing_else(lostflops, run) -> None:
    outcome = lostflops("sql", run, "select event, host from events join ranks using (rank)", "--format", "csv")
    lines = outcome.out.splitlines()
    assert lines[0] == "event,host"
    assert sorted(lines[1:]) == sorted(f"{i}," for i in range(100))
    assert outcome.err == ""


@pytest.mark.parametrize("flag", [("--json",), ("--format", "json")])
def test_json(lostflops, run, flag: tuple[str, ...]) -> None:
    query = "select 1 as n, 'nan'::double as x, null as y, [1, 2] as l, date '2024-01-31' as d, 3 as n"
    data = json.loads(lostflops("sql", run, query, *flag).out)
    assert data["schema"] == "lostflops.sql/1"
    assert data["rows"] == [{"n": 1, "x": None, "y": None, "l": [1, 2], "d": "2024-01-31", "n_2": 3}]
    assert data["columns"][0] == {"name": "n", "type": "INTEGER"}


def test_json_limit_and_no_rows(lostflops, run) -> None:
    assert len(json.loads(lostflops("sql", run, "from events", "--json", "--limit", "3").out)["rows"]) == 3
    assert json.loads(lostflops("sql", run, "from events where false", "--json").out)["rows"] == []


def test_a_query_that_fails_while_running(lostflops, run) -> None:
    outcome = lostflops("sql", run, "select cast(name as integer) from events")
    assert outcome.code == 6
    assert outcome.err.startswith("lostflops: Conversion Error")


def test_without_a_query_the_tables_are_listed(lostflops, run) -> None:
    outcome = lostflops("sql", run)
    for table in TABLES:
        assert any(line.startswith(table.name) for line in outcome.out.splitlines())
    rows = json.loads(lostflops("sql", run, "--json").out)["rows"]
    assert [(row["table"], row["column"]) for row in rows] == [(t.name, c.name) for t in TABLES for c in t.columns]
    assert lostflops("sql", run, "--format", "csv").out.startswith("table,column,type,unit,doc\nranks,rank,INTEGER,,")


@pytest.mark.parametrize("statement", ["copy (select 1) to '{}'", "create table mine as select 1", "set threads = 1"])
def test_a_run_cannot_be_changed(lostflops, tmp_path, statement: str) -> None:
    trace = {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}
    (tmp_path / "rank0.json").write_text(json.dumps(trace))
    run = tmp_path / "run"
    assert lostflops("ingest", tmp_path / "rank0.json", "-o", run).code == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert lostflops("sql", run, statement.format(run / "run.json")).code == 6
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

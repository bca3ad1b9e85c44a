"""The SQL box: it reads the tables of the run, within limits, and nothing else."""

import time
from pathlib import Path

import pytest

from lostflops.show.serve.limits import ServeLimits
from lostflops.show.serve.live import LivePage
from lostflops.show.serve.queries import MOST_BYTES, MOST_ROWS

from .conftest import Server, unpacked

HOSTILE = [
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('/etc/passwd')",
    "select * from read_text('{run}/run.json')",
    "select * from read_parquet('{part}')",
    "select * from '/etc/passwd'",
    "select * from glob('/etc/*')",
    "select * from glob('{run}/*')",
    "select * from read_text('https://example.invalid/x')",
    "select * from read_duckdb('/tmp/x.db')",
    "copy (select 1) to '{run}/out.csv'",
    "copy steps to '{part}'",
    "with x as (copy (select 1) to '{part}' (format parquet)) select * from x",
    "with x as (copy (select 1) to '{run}/out.csv') select * from x",
    "from json_execute_serialized_sql(json_serialize_sql('with x as (copy (select 1) to ''{part}'') from x'))",
    "from query('select 1')",
    "attach '/tmp/x.db'",
    "install httpfs",
    "load httpfs",
    "pragma database_list",
    "set memory_limit = '100GB'",
    "reset memory_limit",
    "set variable x = 1",
    "create table t as select 1",
    "create view v as select 1",
    "drop view events",
    "insert into steps values (1)",
    "call pragma_version()",
    "select 1; select 2",
    "export database '/tmp/x'",
    "prepare p as select 1",
    "checkpoint",
    "select * from arrow_scan(1, 2, 3)",
    "select * from pandas_scan(1)",
    "select * from python_map_function(1)",
    "select * from sniff_csv('/etc/passwd')",
    "select * from duckdb_secrets()",
    "select * from duckdb_settings()",
    "select * from duckdb_views",
    "select * from duckdb_views()",
    'select * from Main."DUCKDB_VIEWS"',
    "from system.main.duckdb_views",
    "from information_schema.views",
    "from pg_catalog.pg_views",
    "from pg_views",
    "from pg_settings",
    "from sqlite_master",
    "summarize duckdb_views",
    "from query_table('duckdb_views')",
    "with duckdb_views as (from duckdb_views) from duckdb_views",
    "select (select max(sql) from duckdb_views)",
    "select current_setting('allowed_paths')",
    "select system.main.current_setting('allowed_paths')",
    "select 'allowed_paths'.current_setting()",
    "select pg_get_viewdef(range) from range(30000)",
    "select json_serialize_plan('from steps')",
    "explain analyze from steps",
    "",
    ";",
    "-- nothing",
]


@pytest.mark.parametrize("query", HOSTILE)
def test_what_is_no_reading_of_tables_is_refused(server: Server, run_folder: Path, query: str) -> None:
    part = next(run_folder.rglob("steps/*.parquet"))
    before = {path: path.stat().st_mtime_ns for path in run_folder.rglob("*")}
    answer = server.sql(query.replace("{run}", str(run_folder)).replace("{part}", str(part)))
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]
    assert {path: path.stat().st_mtime_ns for path in run_folder.rglob("*")} == before


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select count(*) from ranks", [[2]]),
        ("from range(3)", [[0], [1], [2]]),
        ("select 1 as a, 2 as a -- twice", [[1, 2]]),
        ("select 'copy' || 1;", [["copy1"]]),
        ("with recursive t(a) as (select 1 union all select a + 1 from t where a < 3) from t", [[1], [2], [3]]),
        ("select 9007199254740993, 'nan'::double", [["9007199254740993", "nan"]]),
        ("select null, [1, 2], true", [[None, "[1, 2]", True]]),
        ("select column_name from (describe steps) limit 1", [["rank"]]),
        ("select unnest([1, 2])", [[1], [2]]),
        ("select 1 where false", []),
        ("with views as (select 1) from views", [[1]]),
        ("select count(*) from memory.main.ranks", [[2]]),
        ("select table_name from information_schema.tables where table_name = 'steps'", [["steps"]]),
    ],
)
def test_queries_are_answered(server: Server, query: str, rows: list[list[object]]) -> None:
    [result] = unpacked(server.sql(query))["results"]
    assert result["blocks"][0]["rows"] == rows


@pytest.mark.parametrize("query", ["describe steps", "show tables", "summarize steps", "explain select 1"])
def test_what_describes_tables_is_answered(server: Server, query: str) -> None:
    [result] = unpacked(server.sql(query))["results"]
    assert result["blocks"][0]["rows"]


@pytest.mark.parametrize(
    "query", ["select " + "[" * 900 + "1" + "]" * 900, "from " + "(from " * 400 + "steps" + ")" * 400]
)
def test_nesting_is_limited(server: Server, query: str) -> None:
    answer = server.sql(query)
    assert (answer.status_code, answer.json()["error"]) == (422, "the query is nested too deeply")


def test_an_error_says_where(server: Server) -> None:
    assert "rnak" in server.sql("select rnak from events").json()["error"]


def test_rows_and_bytes_are_limited(server: Server) -> None:
    [many] = unpacked(server.sql("from range(1000000)"))["results"]
    assert many["verdict"] == "The first 10,000 rows."
    assert len(many["blocks"][0]["rows"]) == MOST_ROWS
    answer = server.sql("select repeat('x', 9000) || i from range(10000) t(i)")
    [wide] = unpacked(answer)["results"]
    assert wide["verdict"].startswith("The first ")
    assert sum(len(str(row)) for row in wide["blocks"][0]["rows"]) <= MOST_BYTES
    [long] = unpacked(server.sql("select repeat('x', 100000000)"))["results"]
    assert len(long["blocks"][0]["rows"][0][0]) == 10_000


def test_memory_is_limited(server: Server) -> None:
    answer = server.sql("select max(l) from (select list(i) as l from range(400000000) t(i))")
    assert answer.status_code == 422
    assert "needs more than 1.00 GB of memory" in answer.json()["error"]


def test_a_query_without_end_is_ended(run_folder: Path) -> None:
    # Long enough for a process of its own to start on a busy machine.
    live = LivePage(run_folder, limits=ServeLimits(sql_seconds=4))
    server = Server(live)
    assert unpacked(server.sql("select 1"))["results"]
    began = time.monotonic()
    answer = server.sql("select sum(a.range + b.range) from range(10000000) a, range(10000000) b")
    assert (answer.status_code, "4 s" in answer.json()["error"]) == (503, True)
    assert time.monotonic() - began < 8
    assert unpacked(server.sql("select 1"))["results"]
    assert live.close()

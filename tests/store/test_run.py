"""Questions to a run: older and damaged ones, and what SQL must not do."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import msgspec
import pytest

from lostflops.account.ledger.record import records
from lostflops.core.errors import BrokenRun, LostflopsError, NotARun, QueryError, RunTooNew, UsageError
from lostflops.store.commit import RunWriter
from lostflops.store.manifest import load, save
from lostflops.store.run import Run
from lostflops.store.tables import TABLES, table
from lostflops.testing import SyntheticCluster, store


@pytest.fixture
def run(made):
    made.put([0, 1])
    with Run.open(made.folder) as run:
        yield run


def snapshot(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_table_has_every_column_with_its_type(run):
    for declared in TABLES:
        relation = run.table(declared.name)
        assert relation.columns == [column.name for column in declared.columns]
        assert [str(kind) for kind in relation.types] == [column.type for column in declared.columns]


def test_views_are_made_when_a_query_names_them(run):
    made = "select view_name from duckdb_views() where not internal order by 1"
    assert run._connection.execute(made).fetchall() == []
    assert run.rows("select count(*) from lanes") == [(4,)]
    assert run._connection.execute(made).fetchall() == [("lanes",)]
    with run.beside() as other:  # of the same tables, on a connection of its own
        assert other.rows("select count(*) from lanes, (from query_table('ranks'))") == [(8,)]
    assert sorted(name for (name, *_) in run.sql("show tables").fetchall()) == sorted(one.name for one in TABLES)


def test_views_of_many_threads_are_made_once(run):
    queries = [f"select {number}, count(*) from {one.name}" for number in range(3) for one in TABLES]
    besides = [run.beside() for _ in queries]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda other, query: other.rows(query), besides, queries))
    assert found == [run.rows(query) for query in queries]


def test_tables_without_parts_are_empty(run):
    assert run.table("events").fetchall() == []
    assert run.sql("select count(*), min(start) from events").fetchall() == [(0, None)]


def test_a_table_that_is_not_there(run):
    with pytest.raises(UsageError, match=r"no table 'evnts'.*events"):
        run.table("evnts")


def test_sql_of_a_table(run):
    assert run.sql("select rank, name from lanes where lane = 0 order by rank").fetchall() == [
        (0, "first"),
        (1, "first"),
    ]
    assert run.sql("from lanes select count(*)").fetchall() == [(4,)]
    assert run.sql("with l as (select * from lanes) select max(rank) from l").fetchall() == [(1,)]
    assert run.sql("describe lanes").fetchall()[0][:2] == ("rank", "INTEGER")


@pytest.mark.parametrize("query", ["selec 1", "select nothing from lanes", "select * from nowhere", "", ";", "-- a"])
def test_sql_that_is_wrong_is_a_query_error(run, query):
    with pytest.raises(QueryError):
        run.sql(query)


def older(folder, **columns):
    """Make a run look as if it had been written before some tables or columns were declared."""
    manifest = load(folder)
    for name, kept in columns.items():
        if not kept:
            manifest.files.pop(name, None)
            manifest.columns.pop(name)
            continue
        manifest.columns[name] = list(kept)
        for file in manifest.files[name]:
            path = folder / file.path
            thinner = path.with_suffix(".thinner")
            duckdb.execute(
                f"copy (select {', '.join(kept)} from read_parquet('{path}')) to '{thinner}' (format parquet)"
            )
            thinner.replace(path)
            file.bytes, file.crc32 = path.stat().st_size, -1
    save(folder, manifest)


def test_an_older_run_reads_null_for_a_column_it_lacks(made):
    made.put([0])
    older(made.folder, lanes=["rank", "lane"])
    with Run.open(made.folder) as run:
        assert run.table("lanes").columns == list(table("lanes").column_names())
        assert run.sql("select rank, lane, name, stream from lanes order by lane").fetchall() == [
            (0, 0, None, None),
            (0, 1, None, None),
        ]


def test_an_older_run_reads_empty_for_a_table_it_lacks(made):
    made.put([0])
    older(made.folder, lanes=[], flight=[])
    with Run.open(made.folder) as run:
        assert run.table("lanes").fetchall() == run.table("flight").fetchall() == []


@pytest.mark.parametrize("new_rank", [0, 5])
def test_a_rank_can_be_added_to_an_older_run(made, new_rank):
    """Parts of the older schema stay; their missing columns are still null."""
    made.put([2])
    older(made.folder, lanes=["rank", "lane"])
    made.put([new_rank], "new")
    with Run.open(made.folder) as run:
        assert sorted(run.sql("select rank, lane, name from lanes").fetchall(), key=str) == sorted(
            [(2, 0, None), (2, 1, None), (new_rank, 0, "new"), (new_rank, 1, "new+")], key=str
        )


def test_a_rank_in_a_range_of_an_older_run_can_be_replaced(made, monkeypatch):
    monkeypatch.setattr("lostflops.store.commit.MOST_SINGLE_RANKS", 2)
    made.put([0, 1, 2])
    older(made.folder, lanes=["rank", "lane"])
    made.put([1], "new")
    with Run.open(made.folder) as run:
        assert run.sql("select rank, name from lanes order by rank, lane").fetchall() == [
            (0, None), (0, None), (1, "new"), (1, "new+"), (2, None), (2, None),
        ]  # fmt: skip


def test_a_newer_run_is_refused(made):
    made.put([0])
    text = msgspec.json.decode((made.folder / "run.json").read_bytes())
    (made.folder / "run.json").write_bytes(msgspec.json.encode(text | {"schema": 2}))
    with pytest.raises(RunTooNew):
        Run.open(made.folder)


def test_no_run(tmp_path):
    with pytest.raises(NotARun):
        Run.open(tmp_path)


def ask_everything(folder):
    with Run.open(folder) as run:
        for declared in TABLES:
            run.sql(f"select * from {declared.name}").fetchall()


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_part_is_a_broken_run(made, which):
    made.put([0, 1])
    (made.folder / load(made.folder).files["lanes"][which].path).unlink()
    with pytest.raises(BrokenRun):
        ask_everything(made.folder)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("damage", [b"", b"PAR1", b"no parquet at all, for sure not", None])
def test_a_damaged_part_is_a_broken_run(made, which, damage):
    made.put([0, 1])
    path = made.folder / load(made.folder).files["lanes"][which].path
    path.write_bytes(path.read_bytes()[:-40] if damage is None else damage)
    with pytest.raises(LostflopsError):
        ask_everything(made.folder)


@pytest.mark.parametrize("name", ["it's", 'a "b"', "a b", "[1]", "x*", "{a}", "ü", "a?b", "$folder", "a;b"])
def test_runs_in_folders_with_odd_names(made, name):
    made.folder = made.folder / name
    made.put([0])
    made.put([1], "second")
    with Run.open(made.folder) as run:
        assert run.sql("select rank, name from lanes where lane = 0 order by rank").fetchall() == [
            (0, "first"),
            (1, "second"),
        ]


def test_a_run_can_be_opened_by_a_relative_path_and_survives_chdir(made, monkeypatch, tmp_path):
    made.put([0])
    monkeypatch.chdir(tmp_path)
    with Run.open("run") as run:
        monkeypatch.chdir("/")
        assert run.sql("select count(*) from lanes").fetchall() == [(2,)]


def test_a_run_can_be_moved(made, tmp_path):
    made.put([0])
    moved = made.folder.rename(tmp_path / "elsewhere")
    with Run.open(moved) as run:
        assert run.sql("select count(*) from lanes").fetchall() == [(2,)]


OUTSIDE = [
    "select * from read_csv('{outside}')",
    "select * from read_text('{outside}')",
    "select * from read_blob('{outside}')",
    "select * from '{outside}'",
    "select * from glob('{folder}/*')",
    "select * from read_csv('/etc/hostname')",
    "select * from read_text('{run}/../secret.csv')",
    "select * from read_parquet('{run}/../*.parquet')",
    "select (select content from read_text('{outside}'))",
    "copy (select 42) to '{folder}/new.csv'",
    "copy lanes from '{outside}'",
    "export database '{folder}/new'",
    "attach '{folder}/new.duckdb'",
    "attach '{folder}/new.duckdb' as other",
    "install httpfs",
    "load httpfs",
    "pragma database_list",
    "pragma enable_profiling",
    "set enable_external_access = true",
    "set allowed_directories = ['/']",
    "reset lock_configuration",
    "explain analyze copy (select 42) to '{folder}/new.csv'",
    "explain analyze select * from read_text('{outside}')",
    "select 1; copy (select 42) to '{folder}/new.csv'",
    "copy (select 42) to '{folder}/new.csv'; select 1",
    "call pragma_version()",
    "import database '{folder}'",
    "checkpoint",
]  # fmt: skip
CHANGES = [
    "create table mine (a int)",
    "create table mine as select 1",
    "create or replace view lanes as select 1 as rank",
    "create macro f() as 1",
    "drop view lanes",
    "insert into lanes values (1)",
    "delete from lanes",
    "update lanes set rank = 1",
    "alter view lanes rename to others",
    "create temp table mine as select 1",
    "explain analyze create table mine as select 1",
    "explain analyze create or replace view lanes as select 1 as rank",
    "explain analyze drop view lanes",
    "begin",
    "prepare p as select 1",
]
DAMAGE = [
    "copy (select 42 as rank) to '{run}/run.json'",
    "copy (select 42 as rank) to '{part}' (format parquet)",
    "copy (select 42 as rank) to '{run}/data/new.parquet'",
    "explain analyze copy (select 42 as rank) to '{part}' (format parquet)",
    "explain analyze copy (select 42 as rank) to '{run}/run.json' (format csv)",
    "explain analyze copy (select 42 as rank) to '{run}/data/new.parquet'",
    "explain copy (select 42 as rank) to '{run}/run.json' (format csv)",
    "select 1; copy (select 42 as rank) to '{run}/run.json'",
    "with x as (copy (select 42 as rank) to '{part}' (format parquet)) select * from x",
    "with x as (COPY (select 42 as rank) to '{run}/data/new.parquet') select * from x",
    "explain analyze with x as (copy (select 42 as rank) to '{part}' (format parquet)) select * from x",
    "from json_execute_serialized_sql(json_serialize_sql('with x as (copy (select 42 as rank) to ''{part}'') from x'))",
    "from query('with x as (copy (select 42 as rank) to ''{part}'') select * from x')",
    "export database '{run}/data'",
    "attach '{run}/data/new.duckdb'",
    "attach '{part}' as p",
]


@pytest.mark.parametrize("query", OUTSIDE + CHANGES + DAMAGE)
def test_sql_reads_the_run_and_nothing_else(run, query):
    """Nothing outside is read, nothing anywhere is written, the tables stay what they are."""
    outside = run.path.parent / "secret.csv"
    outside.write_text("secret\n1\n")
    part = run.path / run.manifest.files["lanes"][0].path
    before = snapshot(run.path.parent)
    filled = query.replace("{outside}", str(outside)).replace("{folder}", str(run.path.parent))
    filled = filled.replace("{run}", str(run.path)).replace("{part}", str(part))
    rows: list[tuple[object, ...]] = []
    try:
        rows = run.sql(filled).fetchall()
    except QueryError:
        pass
    except duckdb.Error as error:
        pytest.fail(f"an error of DuckDB, not of ours: {error}")
    assert "secret" not in str(rows), "read outside of the run"
    assert snapshot(run.path.parent) == before
    assert run.sql("select count(*) from lanes").fetchall() == [(4,)]
    assert run.sql("select count(*) from duckdb_tables()").fetchall() == [(0,)]
    with pytest.raises(QueryError):
        run.sql(f"select * from read_text('{outside}')").fetchall()


def test_a_link_inside_the_run_does_not_lead_out(run):
    outside = run.path.parent / "secret.csv"
    outside.write_text("secret\n1\n")
    (run.path / "way-out").symlink_to(run.path.parent)
    with pytest.raises((QueryError, duckdb.Error)):
        run.sql(f"select * from read_csv('{run.path}/way-out/secret.csv')").fetchall()


@pytest.mark.parametrize("way", ["{outside}", "../secret.parquet", "data/../../secret.parquet", "file", "folder"])
def test_a_run_of_strangers_shows_nothing_that_is_outside_of_it(made, way):
    """Its manifest is theirs: it may name any file of whoever opens it, or reach one through a link."""
    made.put([0])
    outside = made.folder.parent / "secret.parquet"
    name = load(made.folder).files["lanes"][0].path
    (made.folder / name).rename(outside)
    if way == "file":
        (made.folder / name).symlink_to(outside)
    elif way == "folder":
        shutil.move((made.folder / name).parent, made.folder.parent / "elsewhere")
        outside.rename(made.folder.parent / "elsewhere" / Path(name).name)
        (made.folder / name).parent.symlink_to(made.folder.parent / "elsewhere")
    else:
        text = (made.folder / "run.json").read_text()
        (made.folder / "run.json").write_text(text.replace(name, way.replace("{outside}", str(outside))))
    with pytest.raises(BrokenRun):
        Run.open(made.folder)


def test_sql_does_not_see_python_variables(run):
    import numpy as np

    mine = {"a": np.arange(3)}
    assert mine
    with pytest.raises(QueryError):
        run.sql("select * from mine").fetchall()


def test_sql_has_no_network_and_loads_nothing(run):
    for query in ("from read_csv('https://example.invalid/x.csv')", "from read_parquet('s3://bucket/x.parquet')"):
        with pytest.raises(QueryError):
            run.sql(query).fetchall()


def test_closing_twice_is_fine(made):
    made.put([0])
    run = Run.open(made.folder)
    run.close()
    run.close()


def test_two_readers_at_once(made):
    made.put([0])
    with Run.open(made.folder) as one, Run.open(made.folder) as two:
        assert one.table("lanes").fetchall() == two.table("lanes").fetchall()


def test_a_reader_while_a_writer_holds_the_lock(made):
    made.put([0])
    with RunWriter(made.folder), Run.open(Path(str(made.folder))) as run:
        assert run.ranks == (0,)


def test_a_notebook_shows_what_is_in_a_run_and_how_to_go_on(made, monkeypatch):
    made.put([0, 1])
    monkeypatch.chdir(made.folder.parent)
    with Run.open(made.folder) as run:
        shown = run._repr_html_()
    assert f"<h3>Run {made.folder.name}</h3><p>2 ranks, 0 steps, 2 events.</p>" in shown
    assert '<td style="text-align:left">kineto</td>' in shown
    assert f"<code>lostflops open {made.folder.name}</code>" in shown
    assert "2 ranks, 2 events. It is closed: open it again to query it." in run._repr_html_()


def test_answers_are_kept_while_a_run_is_open_and_no_caller_can_change_them(tmp_path: Path) -> None:
    with Run.open(store(SyntheticCluster(ranks=2).generate(), tmp_path / "run")) as run:
        first = run.rows("select rank from ranks order by rank")
        first.append("changed")
        assert run.rows("select rank from ranks order by rank") == [(0,), (1,)]
        record = next(iter(records(run, [1])))
        assert next(iter(records(run, [0, 1][1:]))) is record
        with pytest.raises(ValueError, match="read-only"):
            record.device.kind[:1] = 9
        (step,) = run.rows("select min(step) from steps")[0]
        part = run.of_steps([step])
        assert part.rows("select count(distinct step) from steps") == [(1,)]
        assert run.rows("select count(distinct step) from steps")[0][0] > 1


def test_two_threads_of_one_run_get_their_own_rows(tmp_path: Path) -> None:
    with (
        Run.open(store(SyntheticCluster(ranks=2).generate(), tmp_path / "run")) as run,
        ThreadPoolExecutor(2) as threads,
    ):
        answers = list(threads.map(lambda number: run.rows(f"select {number}, count(*) from events"), range(200)))
    assert [answer[0][0] for answer in answers] == list(range(200))


def test_errors_of_our_own_queries_are_ours(tmp_path: Path) -> None:
    run = Run.open(store(SyntheticCluster(ranks=2).generate(), tmp_path / "run"))
    for ask in (run.rows, run.columns):
        with pytest.raises(QueryError):
            ask("select no_such_column from events")
    run.close()
    with pytest.raises(QueryError):
        run.rows("select 1")

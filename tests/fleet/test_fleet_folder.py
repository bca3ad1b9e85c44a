"""A folder of runs is a fleet without a catalog: its runs are read, and nothing is written. pyiceberg is not needed."""

import os
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lostflops.core.errors import BrokenRun, RunError, UsageError
from lostflops.fleet.changes import add_runs, compact
from lostflops.fleet.place import open_fleet, read_version
from lostflops.fleet.rows import fill_table, keep_newest, read_summary, select_summaries
from lostflops.fleet.summary import COLUMNS
from lostflops.store.connections import connect
from made_summaries import make_summary, summaries
from tests.store.conftest import HandMadeRun


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "team/b"):
        HandMadeRun(tmp_path / name).put([0])
    return tmp_path


def summarise(run):
    return make_summary(run.name, ranks=len(run.ranks))


def list_files(folder):
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_runs_are_read_and_nothing_is_written(folder):
    before = list_files(folder)
    fleet = open_fleet(folder, summarise)
    with fleet.table(["run", "life"]) as connection:
        assert connection.sql("SELECT * FROM runs ORDER BY run").fetchall() == [
            ("a", {"training": 4000, "starting": 1000}),
            ("b", {"training": 4000, "starting": 1000}),
        ]
    assert list(fleet.summaries()) == [make_summary("a", ranks=1), make_summary("b", ranks=1)]
    assert list_files(folder) == before


def test_each_run_is_summarised_once(folder):
    seen = []
    fleet = open_fleet(folder, lambda run: seen.append(run.name) or summarise(run))
    for _ in range(2):
        with fleet.table(["run"]) as connection:
            connection.sql("FROM runs").fetchall()
    assert seen == ["a", "b"]


def test_a_copied_run_counts_once(folder):
    """`team/b` is a copy of `a` that was made while the job ran."""
    fleet = open_fleet(folder, lambda run: make_summary("same", stop=2_000_000_000_000_000_000 - (run.name == "b")))
    assert [run.stop for run in fleet.summaries()] == [2_000_000_000_000_000_000]
    assert fleet.notes == ["1 run in this folder is a copy: counted once."]


def test_a_run_that_cannot_be_read_does_not_take_the_others(folder):
    (folder / "bad").mkdir()
    (folder / "bad" / "run.json").write_text("{")

    def fail_for_b(run):
        if run.name == "b":
            raise TypeError("a bug")
        return summarise(run)

    fleet = open_fleet(folder, fail_for_b)
    assert [run.run for run in fleet.summaries()] == ["a"]
    (note,) = fleet.notes
    assert note.startswith(f"2 runs cannot be read: not counted. {folder / 'bad'}: ")
    assert note.endswith(f"{folder / 'team' / 'b'}: TypeError: a bug.")


def test_a_folder_whose_name_is_no_text_is_named_in_text(folder):
    """Notes and versions become JSON and headers."""
    bad = folder / os.fsdecode(b"bad\xff")
    bad.mkdir()
    (bad / "run.json").write_text("{")
    fleet = open_fleet(folder, summarise)
    assert list(fleet.summaries())
    (note,) = fleet.notes
    assert f"{folder}/bad\\xff: " in note
    assert note.isascii()
    assert read_version(folder).isascii()


def test_a_folder_without_a_good_run_is_an_error(folder):
    def fail(run):
        raise BrokenRun(f"{run.name} is damaged")

    with pytest.raises(BrokenRun, match=r"no run in .* can be read. .*a is damaged"):
        list(open_fleet(folder, fail).summaries())


def test_runs_cannot_be_added_or_merged(folder):
    with pytest.raises(RunError, match="contains runs"):
        add_runs(folder, [make_summary("a")])
    with pytest.raises(UsageError, match="a folder of runs without a table"):
        compact(folder)


def test_a_column_that_does_not_exist_is_an_error(folder):
    with (
        pytest.raises(UsageError, match=r"no column 'lives'. Columns are: run, name"),
        open_fleet(folder, summarise).table(["lives"]),
    ):
        pass


@given(st.lists(summaries(), unique_by=lambda summary: summary.run, max_size=3))
@example([make_summary(str(number)) for number in range(600)])
def test_summaries_become_rows_and_back(made):
    with connect() as connection:
        fill_table(connection, "rows", made, list(COLUMNS))
        rows = connection.execute(select_summaries("rows")).fetchall()
    assert [read_summary(dict(zip(COLUMNS, row, strict=True))) for row in rows] == made


def test_impossible_summaries_are_refused():
    with pytest.raises(ValueError, match="does not sum to its whole time"):
        keep_newest([make_summary("a", total_ns=1)])
    for name, number in (("ranks", 2**31), ("attempts", 2**31), ("steps", 2**63), ("stop", 2**63), ("start", -(2**63))):
        with pytest.raises(ValueError, match="a number is too large"):
            keep_newest([make_summary("a", **{name: number})])
    with pytest.raises(ValueError, match="are over 2,562,048 GPU-hours"):
        keep_newest([make_summary("a", window_ns=2**63, lines={"compute": 2**63}, hosts=[])])


def test_the_time_of_a_large_job_is_kept():
    """16,384 ranks for 54 days are 21 million hours: more ns than 64 bits hold."""
    ns = 16_384 * 54 * 24 * 3_600_000_000_000
    assert keep_newest([make_summary("a", total_ns=ns, life={"training": ns})])[0].total_ns == ns > 2**63


WITHOUT_ICEBERG = """
import sys
for name in ("pyiceberg", "pyarrow", "sqlalchemy"):
    sys.modules[name] = None
from lostflops.fleet.place import open_fleet, read_version
from lostflops.fleet.changes import add_runs
from made_summaries import make_summary
assert len(list(open_fleet(sys.argv[1], lambda run: make_summary(run.name)).summaries())) == 2
try:
    add_runs(sys.argv[1] + "/new", [make_summary("a")])
except Exception as error:
    print(type(error).__name__, error)
"""


def test_without_the_extra_folders_work_and_tables_say_what_to_install(folder):
    command = [sys.executable, "-c", WITHOUT_ICEBERG, str(folder)]
    path = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=path, check=False)
    assert done.stdout == (
        "UsageError fleets made by adding runs need pyiceberg, which is not installed: pip install 'lostflops[fleet]'\n"
    ), done.stderr
    assert not (folder / "new").exists()

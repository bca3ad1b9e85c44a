"""`lostflops fleet` on runs and fleets that are not as they should be."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from tests.cli.conftest import Call

from lostflops.cli.verbs.run import _add_to_fleet
from lostflops.ingest import ingest
from made_captures import MS, Record, end, frames, session, step, write


def make_run(folder: Path, **labels: str) -> Path:
    fact: Record = {"kind": "job", "key": "labels", "value": labels}
    steps = [step(number, number * 100 * MS, (0, 0, 0, 0, 100 * MS)) for number in range(12)]
    write(folder / "capture", 0, frames(0, folder.name, [session(0, 1), fact, *steps, end(1300 * MS)]))
    ingest([folder / "capture"], folder, workers=1)
    return folder


def test_a_day_to_forget_is_not_taken_for_a_choice_of_runs(lostflops: Call, tmp_path: Path) -> None:
    done = lostflops("fleet", tmp_path, "--before", "2026-01-31")
    assert done.code == 2
    assert "--since DATE" in done.err


def test_a_label_of_a_run_sends_no_codes_to_the_terminal(lostflops: Call, tmp_path: Path) -> None:
    make_run(tmp_path / "run", **{"te\x1b[31mam": "a\x1b[31m", "job": "b\x1b[31m"})
    for options in ((), ("--by", "te\x1b[31mam"), ("--by", "none")):
        done = lostflops("fleet", tmp_path, *options)
        assert "\x1b[31m" not in done.out + done.err
    assert (done.code, "te\\x1b[31mam" in done.err) == (2, True)


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_added(lostflops: Call, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="the extra fleet is not installed")
    made = make_run(tmp_path / "runs" / "good")
    bad = tmp_path / "runs" / "bad"
    bad.mkdir()
    (bad / "run.json").write_text("{")
    done = lostflops("fleet", "add", tmp_path / "fleet", bad, made)
    assert done.code == 5
    assert f"1 of 2 runs were not added to {tmp_path / 'fleet'}. {bad}: " in done.err
    for place in (tmp_path / "fleet", tmp_path / "runs"):
        assert "1 run of 1 job used" in lostflops("fleet", place).out
    assert str(bad) in lostflops("fleet", tmp_path / "runs").out.replace("\n", "")


def test_a_damaged_fleet_leaves_a_command_to_add_the_run_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_run(tmp_path / "run")
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "catalog.db").write_text("damaged")
    _add_to_fleet(str(tmp_path / "fleet"), made, status=0)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"lostflops: the run was not added to {tmp_path / 'fleet'}: ")
    assert line.endswith(f" To try again: lostflops fleet add {tmp_path / 'fleet'} {made}")


def test_tables_as_csv_have_the_rows_of_json(lostflops: Call, tmp_path: Path) -> None:
    for team in ("a", "b"):
        make_run(tmp_path / "runs" / team, team=team)
    found = json.loads(lostflops("fleet", tmp_path / "runs", "--by", "team", "--csv", tmp_path / "out", "--json").out)
    files = {file.stem: list(csv.DictReader(file.read_text().splitlines())) for file in (tmp_path / "out").iterdir()}
    assert files.keys() == {"groups", "hours", "jobs", "fixes", "slow_hosts", "changes"}
    assert [row["name"] for row in files["groups"]] == [row["name"] for row in found["groups"]]
    assert [float(row["hours"]) for row in files["hours"]] == [row["hours"] for row in found["hours"]]
    assert files["fixes"] == []
    done = lostflops("fleet", "compact", tmp_path / "runs", "--csv", tmp_path / "out")
    assert (done.code, "--csv writes an answer" in done.err) == (2, True)

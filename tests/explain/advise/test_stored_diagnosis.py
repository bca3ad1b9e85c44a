"""A run is diagnosed once; every verb then reads what it stores, until the run or the code changes."""

import shutil
from dataclasses import replace
from functools import partial

import pytest

from lostflops.explain.advise import diagnose as module
from lostflops.explain.advise import diagnosis as stored
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.diagnose import diagnose, diagnosis, diagnosis_of
from lostflops.explain.advise.diagnosis import stored_diagnosis
from lostflops.ingest import ingest
from lostflops.predict.whatif.predictions import load_predictions
from lostflops.store.commit import RunWriter
from lostflops.store.run import Run
from lostflops.testing import Straggler, SyntheticCluster

JOB = SyntheticCluster(ranks=4, steps=4, stragglers=(Straggler(2, "slow_kernels", factor=1.5),))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    ingest(sorted(JOB.generate().traces.write(folder / "traces")), folder / "run", workers=1)
    return folder


@pytest.fixture
def run(base, tmp_path):
    return shutil.copytree(base / "run", tmp_path / "run")


def told(folder, **options):
    with Run.open(folder) as run:
        return diagnose(run, **options).to_json()


def test_the_second_answer_is_read_and_is_the_first(run, monkeypatch):
    first = told(run)
    assert list(first["findings"][0]["ranks"]) == [2]
    monkeypatch.setattr(module, "examine", pytest.fail)
    assert told(run) == first
    with Run.open(run) as opened:
        assert opened.rows("select cause, gain from findings order by number") == [
            (one["cause"], one["saving"]["value"]) for one in first["findings"]
        ]


def test_a_run_that_somebody_writes_to_is_diagnosed_but_not_changed(run):
    with RunWriter(run), Run.open(run) as opened:
        assert diagnosis_of(opened).findings
    with Run.open(run) as opened:
        assert stored_diagnosis(opened) is None


def test_other_code_diagnoses_again(run, monkeypatch):
    told(run)
    for one in (module, stored):
        monkeypatch.setattr(one, "diagnosis_code", lambda: "of tomorrow")
    with Run.open(run) as opened:
        assert stored_diagnosis(opened) is None
        assert diagnosis_of(opened).findings
    with Run.open(run) as opened:
        assert stored_diagnosis(opened) is not None
        assert opened.rows("select code from diagnosis") == [("of tomorrow",)]


def test_a_change_of_the_run_drops_it(run, base, tmp_path):
    told(run)
    traces = shutil.copytree(base / "traces", tmp_path / "traces")
    other = SyntheticCluster(ranks=4, steps=4, seed=9).generate().traces.write(tmp_path / "others")
    shutil.copy(sorted(other)[3], sorted(traces.iterdir())[3])
    ingest(sorted(traces.iterdir()), run, workers=1, replace=True)
    with Run.open(run) as opened:
        assert stored_diagnosis(opened) is None
        assert opened.rows("select count(*) from findings") == [(0,)]


def test_predictions_of_a_moved_run_are_stored_with_it(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    told(run)
    moved = run.rename(tmp_path / "moved")
    told(moved, keep=True)
    assert not run.exists()
    kept = list(load_predictions(moved))
    assert kept
    assert {one.run.path for one in kept} == {str(moved)}


def test_a_price_is_no_part_of_what_is_stored(run):
    plain, priced = told(run), told(run, usd_per_hour=3.0)
    assert plain["findings"][0]["usd"] is None
    assert priced["findings"][0]["usd"] > 0
    assert told(run) == plain


def test_a_diagnosis_with_a_rule_that_failed_is_not_stored(run, monkeypatch):
    def broken(case):
        raise MemoryError

    monkeypatch.setattr(module, "RULES", (replace(module.RULES[0], find=broken), *module.RULES[1:]))
    monkeypatch.setattr(module, "diagnosis", partial(diagnosis, rules=module.RULES))
    with Run.open(run) as opened:
        assert diagnosis_of(opened).findings
    with Run.open(run) as opened:
        assert stored_diagnosis(opened) is None


def test_ctrl_c_in_a_query_ends_the_diagnosis(run):
    def interrupted(query):
        raise RuntimeError("Query interrupted")  # as DuckDB does

    def asking(case):
        case.run._ask = interrupted
        case.run.rows("select 1")

    with Run.open(run) as opened, pytest.raises(KeyboardInterrupt):
        diagnosis(Case(opened), rules=(replace(module.RULES[0], find=asking),))

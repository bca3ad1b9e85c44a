"""Answers of ranks that were made elsewhere are those that are made here."""

import importlib.util
import shutil

import msgspec
import numpy as np
import pytest

from lostflops.account.ledger import by_rank as subject
from lostflops.account.ledger.accounts import LEDGER, LEDGER_WITH_KERNELS
from lostflops.account.ledger.by_rank import by_rank
from lostflops.account.ledger.kernel_totals import KERNELS
from lostflops.account.ledger.profile import PROFILE
from lostflops.account.ledger.scope import scope
from lostflops.core.errors import NotARun, RunError, UsageError
from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.store.spread.engines import ChosenEngine
from lostflops.testing import SyntheticCluster

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
ENGINES = ["local", pytest.param("ray", marks=[needs_ray, pytest.mark.slow])]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("by_rank")
    traces = SyntheticCluster(ranks=5, steps=3).generate().traces.write(folder / "traces")
    ingest(traces, folder / "run", workers=1)
    with Run.open(folder / "run") as opened:
        yield opened


def told(answers):
    """All of it, as text: arrays do not compare as one value."""
    return msgspec.msgpack.encode(list(answers), enc_hook=subject._pack_value)


class Heard:
    last = ()

    def __call__(self, *done):
        self.last = done


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_from_elsewhere_are_the_same(run, monkeypatch, engine):
    monkeypatch.setenv("LOSTFLOPS_WORKERS", "2")
    monkeypatch.setenv("LOSTFLOPS_ENGINE", engine)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    asked = scope(run, None)
    questions = (LEDGER, LEDGER_WITH_KERNELS, PROFILE, KERNELS) if engine == "local" else (LEDGER,)
    for question in questions:
        here, heard = told(by_rank(question, run, asked)), Heard()
        with monkeypatch.context() as patched:
            patched.setattr(subject, "WORTH", 0)
            patched.setattr(subject, "records", None)  # nothing is read in this process
            found = list(by_rank(question, run, asked, heard))
        assert len(found) == 5
        assert told(found) == here, question.name
        assert heard.last == (5, 5)


def test_some_ranks_and_steps_are_asked_for_elsewhere_too(run, monkeypatch):
    asked = scope(run, None, ranks=[1, 3, 4], steps=[run.sql("select max(step) from steps").fetchall()[0][0]])
    here = told(by_rank(PROFILE, run, asked))
    monkeypatch.setattr(subject, "WORTH", 0)
    monkeypatch.setenv("LOSTFLOPS_WORKERS", "2")
    profiles = list(by_rank(PROFILE, run, asked))
    assert [profile.rank for profile in profiles] == [1, 3, 4]
    assert [profile.steps.tolist() for profile in profiles] == [list(asked.steps)] * 3
    assert told(profiles) == here


def test_a_run_that_is_gone_is_an_error_of_the_one_who_asks(run, monkeypatch, tmp_path):
    monkeypatch.setattr(subject, "WORTH", 0)
    monkeypatch.setenv("LOSTFLOPS_WORKERS", "2")
    asked = scope(run, None)
    monkeypatch.setattr(run, "path", tmp_path)
    with pytest.raises(NotARun, match="is not a run"):
        list(by_rank(PROFILE, run, asked))


def test_answers_are_of_one_state_of_the_run(run, monkeypatch, tmp_path):
    """A newer window may take the older one's place while somebody asks."""
    monkeypatch.setattr(subject, "WORTH", 0)
    monkeypatch.setenv("LOSTFLOPS_WORKERS", "2")
    shutil.copytree(run.path, tmp_path / "run")
    with Run.open(tmp_path / "run") as older:
        asked = scope(older, None)
        traces = SyntheticCluster(ranks=5, steps=2).generate().traces.write(tmp_path / "traces")
        ingest(traces, tmp_path / "run", workers=1, replace=True)
        with pytest.raises(RunError, match=r"changed while it was read\. Run the command again"):
            list(by_rank(PROFILE, older, asked))


@pytest.mark.parametrize(
    "variable", [{"LOSTFLOPS_ENGINE": "slurm"}, {"LOSTFLOPS_WORKERS": "0"}, {"LOSTFLOPS_WORKERS": "-1"}]
)
def test_variables_that_mean_nothing_are_refused(variable):
    with pytest.raises(UsageError, match=next(iter(variable))):
        ChosenEngine.from_environment(variable)


def test_only_whole_numbers_travel():
    with pytest.raises(AssertionError, match="does not travel"):
        told([np.zeros(2)])

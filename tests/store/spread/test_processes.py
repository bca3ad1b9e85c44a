"""Workers on this machine."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.collect.test_reduction import TRACE

import lostflops
from lostflops.core.errors import UsageError
from lostflops.ingest import ingest
from lostflops.store.spread import deaths, work
from lostflops.store.spread.work import Work


def test_workers_import_nothing_from_where_somebody_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of training scripts has modules called as those of others are."""
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_bytes(TRACE.replace(b'"rank": 3', f'"rank": {rank}'.encode()))
    (tmp_path / "queue.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert ingest(["rank0.json", "rank1.json"], "run", workers=2).ranks_added == (0, 1)


def test_what_a_worker_prints_is_not_taken_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_bytes(TRACE.replace(b'"rank": 3', f'"rank": {rank}'.encode()))
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("print('welcome to the cluster')")
    monkeypatch.setenv("PYTHONPATH", f"{site}:{Path(lostflops.__file__).parents[1]}")
    assert ingest([tmp_path / "rank0.json", tmp_path / "rank1.json"], tmp_path / "run", workers=2).ranks_added == (0, 1)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.count("welcome to the cluster") == 2


def test_an_error_of_another_room_is_raised_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class NotRound(UsageError):
        pass

    def fail(_item: int, _on_read: object) -> int:
        raise NotRound("the wheel is not round")

    failing = Work("failing", int, int, fail, str)
    monkeypatch.setitem(work._MODULES, "failing", "made_work")
    monkeypatch.setitem(sys.modules, "made_work", SimpleNamespace(WORK=failing))
    answer = work.carried_out(work.encode_order(failing, 1), lambda _: None)
    with pytest.raises(UsageError, match="the wheel is not round"):
        work.result_of(failing, answer)


@pytest.mark.parametrize(
    ("peak", "kills_after", "described"),
    [
        (10, 0, "killed by SIGKILL"),
        (10, 1, "killed by SIGKILL when the kernel was out of memory, after using 10 B"),
        (950, 0, "killed by SIGKILL, after using 950 B of 1.00 kB: out of memory"),
    ],
)
def test_out_of_memory_is_said_only_if_the_kernel_or_the_peak_shows_it(
    monkeypatch: pytest.MonkeyPatch, peak: int, kills_after: int, described: str
) -> None:
    monkeypatch.setattr(deaths, "total_memory", lambda: 1000)
    assert deaths.describe_death(-9, peak, 0, kills_after) == described

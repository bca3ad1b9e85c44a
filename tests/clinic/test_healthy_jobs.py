"""Healthy jobs, recorded on a quiet and on a busy machine: no verb names a cause, a late rank or anything to change."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator

import pytest
from clinic.healthy import HEALTHY, RECORDINGS

from lostflops import api
from lostflops.core.results import Findings, Result
from lostflops.ingest import ingest
from lostflops.live.board import Board, StepLine
from lostflops.live.follow import Follower
from lostflops.live.summary import summary
from lostflops.live.watching import WatchInterval, watch

FILES = sorted(RECORDINGS.glob("*.tar.xz"))
MUST_NOT = re.compile(
    r"rank \d+ (?:is|causes|was|enqueues) |most often it is rank|suspected|fixing|to confirm|(?<!no )causes? found",
    re.IGNORECASE,
)
"""What a text says if it names a late rank or something to change."""
LARGEST = 6_000_000
"""All recordings together, in bytes: everybody who clones the repository downloads them."""


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[api.TrainingRun]:
    folder = tmp_path_factory.mktemp("healthy")
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    ingest([folder / "capture"], folder / "run")
    with api.open(folder / "run") as opened:
        yield opened


def test_twelve_jobs_are_recorded_on_quiet_and_busy_machines() -> None:
    jobs = {path.name.split(".")[0] for path in FILES}
    busy = sum(".busy." in path.name for path in FILES)
    assert jobs == {patient.name.removeprefix("healthy_recorded_") for patient in HEALTHY}
    assert len(jobs) >= 12
    assert min(busy, len(FILES) - busy) >= 6
    assert sum(path.stat().st_size for path in FILES) <= LARGEST


def test_no_cause_is_found_or_suspected(run: api.TrainingRun) -> None:
    findings = run.diagnose().to_json()["findings"]
    assert [(one["level"], one["what"], one["fix"]) for one in findings] == []


@pytest.mark.parametrize("verb", ["report", "ranks"])
def test_no_verb_names_a_late_rank_or_an_action(run: api.TrainingRun, verb: str) -> None:
    answer: Result = getattr(run, verb)()
    assert not MUST_NOT.search(answer.verdict), answer.verdict
    assert not any(isinstance(block, Findings) for block in answer.blocks)


def test_watch_ends_without_a_late_rank(run: api.TrainingRun) -> None:
    board, follower = Board(), Follower(folder=run.stored.path.with_name("capture"))
    lines = [line for look in watch(follower, board, WatchInterval(is_once=True)) for line in look]
    notices = [line.text for line in lines if not isinstance(line, StepLine)]
    for said in (summary(board, follower).verdict, *notices):
        assert not MUST_NOT.search(said), said

"""Real DDP ranks over gloo, of which one is late, or whose hosts' clocks differ: who is late, why, and by which clock.

`ranks_job.py` knows the truth: which rank it delayed, by how much and by what. Two hosts are two network namespaces
with names of their own; the clock of the second is wrong because its recordings were rewritten (`shifted_clock.py`).
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import lostflops
from lostflops.ingest import ingest
from lostflops.store.run import Run
from tests.integration.rank_processes import one_host, run_jobs, two_hosts
from tests.integration.ranks_job import BUCKETS, DELAY, LATE_BUCKETS, RANKS, SLOW, STEPS
from tests.integration.shifted_clock import WrongClock, middle, rewrite_dump, rewrite_trace

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

DELAYS = STEPS * round(DELAY * 1e9)
"""Nanoseconds by which the slow rank is late in all steps together."""
CAUSES = {"backward_sleep": "idle.python", "backward_matmul": "compute"}
HOSTS = ("alpha", "beta")
BETA = (2, 3)
AHEAD, PPM = 731_000_000, 20
"""How wrong the clock of the second host is."""
MOST_PPM = 100
CLOSEST = 5_000_000
"""Nanoseconds to which collectives of some milliseconds must tell an offset."""

OTHERS = [rank for rank in range(RANKS) if rank != SLOW]
EACH_DELAY = pytest.mark.parametrize("job", CAUSES)
WITH_OR_WITHOUT_DUMP = pytest.mark.parametrize("flight", [False, True], ids=["traces", "traces and dumps"])


@dataclass(frozen=True)
class Jobs:
    """Recordings of some jobs, by name."""

    folder: Path
    clock: WrongClock | None = None

    def measured(self, job: str, rank: int, phase: str) -> int:
        steps = json.loads((self.folder / job / f"measured{rank}.json").read_text())
        return sum(step[phase] for step in steps)

    @cache  # noqa: B019 - as many as there are tests
    def run(self, job: str, *, flight: bool = False) -> Path:
        sources = [self.folder / job / kind for kind in ("traces", "flight")[: 1 + flight]]
        run = self.folder / f"{job}-run{'-flight' * flight}"
        return _once(run, lambda: ingest(sources, run, workers=1))

    @cache  # noqa: B019 - as many as there are tests
    def ranks(self, job: str, *, flight: bool = False) -> dict[str, Any]:
        from lostflops.analyze.ranks import ranks

        with Run.open(self.run(job, flight=flight)) as run:
            told: dict[str, Any] = ranks(run).to_json()
        return told

    def collectives(self, job: str) -> list[list[tuple[int, int]]]:
        """Start and end of each collective on every rank, by the stamps of its host, in the order of the job."""
        with Run.open(self.run(job)) as run:
            rows = run.sql("select rank, start, start + dur from events where kind = 'host_comm' order by rank, start")
            found = rows.fetchall()
        ranks = [[row[1:] for row in found if row[0] == rank] for rank in range(RANKS)]
        assert [len(row) for row in ranks] == [BUCKETS * STEPS] * RANKS
        return [list(meeting) for meeting in zip(*ranks, strict=True)]


def _once(made: Path, make: Callable[[], object]) -> Path:
    """Workers of a session share what one of them made."""
    with made.with_name(f"{made.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (done := made.with_name(f"{made.name}.done")).exists():
            make()
            done.touch()
    return made


def _session(factory: pytest.TempPathFactory) -> Path:
    folder = factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """On one host."""
    folder = _session(tmp_path_factory) / "ranks"

    def make() -> None:
        folder.mkdir()
        run_jobs(folder, ("healthy", *CAUSES), one_host(folder))

    return Jobs(_once(folder, make))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """On two hosts, before their clocks differ."""
    folder = _session(tmp_path_factory) / "hosts"

    def make() -> None:
        folder.mkdir()
        with two_hosts(HOSTS) as places:
            run_jobs(folder, ("healthy", "backward_sleep", "narrow"), places)

    return Jobs(_once(folder, make))


@EACH_DELAY
def test_the_delay_is_in_the_arrivals(jobs: Jobs, job: str) -> None:
    """What the other tests rest on: buckets after the delay are late on one rank, those before it on none."""
    meetings = jobs.collectives(job)
    for number in range(BUCKETS):
        late = [
            median(meeting[rank][0] - median(start for start, _ in meeting) for meeting in meetings[number::BUCKETS])
            for rank in range(RANKS)
        ]
        assert all(abs(late[rank]) < DELAY * 1e9 / 3 for rank in OTHERS)
        assert (late[SLOW] > DELAY * 1e9 / 2) is (number >= BUCKETS - LATE_BUCKETS), f"bucket {number}: {late}"


@EACH_DELAY
def test_phases_look_alike(jobs: Jobs, job: str) -> None:
    """All wait for the slow rank inside their backward pass: by its wall time nobody is slow."""
    backward = [jobs.measured(job, rank, "backward") for rank in range(RANKS)]
    assert backward[SLOW] / median(backward[rank] for rank in OTHERS) == pytest.approx(1, abs=0.1)
    for rank in range(RANKS):
        assert backward[rank] > jobs.measured("healthy", rank, "backward") + DELAYS / 3


@WITH_OR_WITHOUT_DUMP
@EACH_DELAY
def test_the_slow_rank_and_its_cause(jobs: Jobs, job: str, flight: bool) -> None:
    _assert_slow(jobs.ranks(job, flight=flight), CAUSES[job])


def _assert_slow(told: dict[str, Any], line: str) -> None:
    """Each of the others waits as long as the delay: two late buckets at a time do not count twice."""
    first, *rest = told["stragglers"]
    assert first["rank"] == SLOW
    assert first["cause"]["line"] == line
    assert first["cause"]["excess_ns"] > 0
    assert first["p_value"] < 0.05
    assert 0.6 < first["charged_ns"] / (len(OTHERS) * DELAYS) < 1.4
    assert all(straggler["charged_ns"] < 0.3 * first["charged_ns"] for straggler in rest)


@WITH_OR_WITHOUT_DUMP
def test_nobody_is_slow(jobs: Jobs, flight: bool) -> None:
    assert jobs.ranks("healthy", flight=flight)["stragglers"] == []


def test_the_verb_tells_the_same(jobs: Jobs) -> None:
    command = [sys.executable, "-m", "lostflops", "ranks", str(jobs.run("backward_sleep")), "--json"]
    environment = os.environ | {"PYTHONPATH": str(Path(lostflops.__file__).parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    known = jobs.ranks("backward_sleep")
    assert {key: told[key] for key in ("clock", "stragglers")} == {key: known[key] for key in ("clock", "stragglers")}


def test_ranks_of_one_host_share_a_clock(jobs: Jobs) -> None:
    clocks = jobs.ranks("healthy")["clock"]["ranks"]
    assert [clock["rank"] for clock in clocks] == list(range(RANKS))
    assert all(clock["offset_ns"] == 0 == clock["uncertainty_ns"] for clock in clocks)


@pytest.fixture(scope="module")
def shifted(hosts: Jobs, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Jobs]:
    """A job on two hosts whose clocks differ."""

    def shift(job: str) -> Jobs:
        source, folder = hosts.folder / job, _session(tmp_path_factory) / f"shifted-{job}"
        clock = WrongClock(AHEAD, PPM, origin=middle(sorted((source / "traces").iterdir())))
        return Jobs(_once(folder, lambda: shift_beta(source, folder / job, clock)), clock)

    return cache(shift)


def shift_beta(source: Path, target: Path, clock: WrongClock) -> None:
    for kind in ("traces", "flight"):
        (target / kind).mkdir(parents=True)
        for path in (source / kind).iterdir():
            copy = target / kind / path.name
            copy.write_bytes(path.read_bytes())
            if kind == "traces" and path.name.startswith(HOSTS[1]):
                rewrite_trace(copy, clock)
            if kind == "flight" and path.name in {f"rank{rank}_fr.pkl" for rank in BETA}:
                rewrite_dump(copy, clock)


@WITH_OR_WITHOUT_DUMP
@pytest.mark.parametrize("job", ["healthy", "backward_sleep"])
def test_the_offset_of_the_other_host(shifted: Callable[[str], Jobs], job: str, flight: bool) -> None:
    told = shifted(job).ranks(job, flight=flight)["clock"]
    clocks = {clock["rank"]: clock for clock in told["ranks"]}
    assert sorted(clocks) == list(range(RANKS))
    ahead_of_true = {rank: AHEAD * (rank in BETA) for rank in clocks}
    for rank, clock in clocks.items():
        truth = ahead_of_true[told["reference"]] - ahead_of_true[rank]
        assert abs(clock["offset_ns"] - truth) <= clock["uncertainty_ns"] < CLOSEST
        assert abs(clock["drift_ppm"]) <= MOST_PPM
        assert (clock["uncertainty_ns"] == 0) is ((rank in BETA) == (told["reference"] in BETA))


@WITH_OR_WITHOUT_DUMP
def test_the_slow_rank_by_another_clock(shifted: Callable[[str], Jobs], flight: bool) -> None:
    _assert_slow(shifted("backward_sleep").ranks("backward_sleep", flight=flight), CAUSES["backward_sleep"])


@WITH_OR_WITHOUT_DUMP
def test_nobody_is_slow_by_another_clock(shifted: Callable[[str], Jobs], flight: bool) -> None:
    assert shifted("healthy").ranks("healthy", flight=flight)["stragglers"] == []


def test_a_narrow_link_is_no_wait(hosts: Jobs) -> None:
    """Ends of one collective are far apart on it, so that ranks start their next step at different times."""
    taken = sum(stop - start for meeting in hosts.collectives("narrow") for start, stop in meeting)
    taken_before = sum(stop - start for meeting in hosts.collectives("healthy") for start, stop in meeting)
    assert taken > 3 * taken_before
    assert sum(straggler["charged_ns"] for straggler in hosts.ranks("narrow")["stragglers"]) < 0.15 * taken

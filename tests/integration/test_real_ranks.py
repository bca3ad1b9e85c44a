"""Real DDP ranks over gloo, of which one is late, or whose hosts' clocks differ: who is late, why, and by which clock.

`ranks_job.py` knows the truth: which rank it delayed, by how much and by what. Two hosts are two network namespaces
with names of their own; the clock of the second is wrong because its recordings were rewritten (`shifted_clock.py`).
"""

import fcntl
import json
import os
import shutil
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

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")]

DELAYS = STEPS * round(DELAY * 1e9)
"""Nanoseconds by which the slow rank is late in all steps together."""
CAUSES = {"backward_sleep": "idle.host", "backward_matmul": "compute"}
"""A hook that sleeps does so inside its autograd node, which is an op of the host."""
HOSTS = ("alpha", "beta")
BETA = (2, 3)
AHEAD, PPM = 731_000_000, 20
"""How wrong the clock of the second host is."""
MOST_PPM = 100
CLOSEST = 5_000_000
"""Nanoseconds to which collectives of some milliseconds must tell an offset."""

ATTEMPTS = 3
"""Healthy runs, until one was not disturbed."""

OTHERS = [rank for rank in range(RANKS) if rank != SLOW]
EACH_DELAY = pytest.mark.parametrize("job", CAUSES)
WITH_OR_WITHOUT_DUMP = pytest.mark.parametrize("flight", [False, True], ids=["traces", "traces and dumps"])


@dataclass(frozen=True)
class Jobs:
    """Recordings of some jobs, by name."""

    folder: Path

    def measured(self, job: str, rank: int, name: str) -> list[int]:
        """Step by step, by the clocks of the job."""
        steps = json.loads((self.folder / job / f"measured{rank}.json").read_text())
        return [step[name] for step in steps]

    def even(self, job: str) -> bool:
        """Whether no rank was late, by one clock for all: other programs can stop one at any time."""
        steps = zip(*(self.measured(job, rank, "arrived") for rank in range(RANKS)), strict=True)
        return all(max(arrived) - median(arrived) < DELAY * 1e9 / 2 for arrived in steps)

    def latest(self, job: str) -> int:
        """The rank that was later than the others, steps taken together, by one clock for all."""
        steps = list(zip(*(self.measured(job, rank, "arrived") for rank in range(RANKS)), strict=True))
        return max(range(RANKS), key=lambda rank: sum(arrived[rank] - median(arrived) for arrived in steps))

    @cache  # noqa: B019 - as many as there are tests
    def run(self, job: str, *, flight: bool = False) -> Path:
        sources = [self.folder / job / kind for kind in ("traces", "flight")[: 1 + flight]]
        run = self.folder.with_name(f"{self.folder.name}-{job}-run{'-flight' * flight}")
        return _once(run, lambda: ingest(sources, run, workers=1))

    @cache  # noqa: B019 - as many as there are tests
    def ranks(self, job: str, *, flight: bool = False) -> dict[str, Any]:
        from lostflops.explain.analyze.ranks import ranks

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
    """Workers of a session share what one of them made, and make nothing at the same time."""
    with (made.parent / "real-ranks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (done := made.with_name(f"{made.name}.done")).exists():
            shutil.rmtree(made, ignore_errors=True)
            make()
            done.touch()
    return made


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="module")
def train(session: Path) -> Callable[[int], Jobs]:
    """All jobs on one host, and once more the healthy one."""

    def make(folder: Path, again: bool) -> None:
        folder.mkdir()
        run_jobs(folder, ("healthy",) if again else ("healthy", *CAUSES), one_host(folder))

    return lambda number: Jobs(_once(folder := session / f"ranks{number}", lambda: make(folder, number > 0)))


@pytest.fixture(scope="module")
def jobs(train: Callable[[int], Jobs]) -> Jobs:
    return train(0)


@pytest.fixture(scope="module")
def train_on_hosts(session: Path) -> Callable[[int], Jobs]:
    """All jobs on two hosts whose clocks agree, and once more the healthy one."""

    def make(folder: Path, again: bool) -> None:
        with two_hosts(HOSTS) as places:
            folder.mkdir()
            run_jobs(folder, ("healthy",) if again else ("healthy", "backward_sleep", "narrow"), places)

    return lambda number: Jobs(_once(folder := session / f"hosts{number}", lambda: make(folder, number > 0)))


@pytest.fixture(scope="module")
def hosts(train_on_hosts: Callable[[int], Jobs]) -> Jobs:
    return train_on_hosts(0)


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
    """All wait for the slow rank inside their backward pass: by its wall time nobody is slow. Medians of steps, because
    other programs can stop a rank in one of them."""
    backward, healthy = (
        [median(jobs.measured(name, rank, "backward")) for rank in range(RANKS)] for name in (job, "healthy")
    )
    assert backward[SLOW] / median(backward[rank] for rank in OTHERS) == pytest.approx(1, abs=0.1)
    assert all(slow > fast + DELAY * 1e9 / 3 for slow, fast in zip(backward, healthy, strict=True))


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
    assert first["late_by"]["share"] > 0.05
    assert 0.6 < first["charged_ns"] / (len(OTHERS) * DELAYS) < 1.4
    assert all(straggler["charged_ns"] < 0.3 * first["charged_ns"] for straggler in rest)


@WITH_OR_WITHOUT_DUMP
def test_nobody_is_slow(train: Callable[[int], Jobs], flight: bool) -> None:
    _assert_nobody_slow(train, flight)


def _assert_nobody_slow(train: Callable[[int], Jobs], flight: bool) -> None:
    """Other programs may slow one rank a little all along: then it is that one, and little is charged to it."""
    for number in range(ATTEMPTS):
        if (jobs := train(number)).even("healthy"):
            for named in jobs.ranks("healthy", flight=flight)["stragglers"]:
                assert named["rank"] == jobs.latest("healthy")
                assert named["charged_ns"] < 0.3 * len(OTHERS) * DELAYS
            return
    pytest.skip(f"other programs delayed a rank in each of {ATTEMPTS} healthy runs")


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
def shift(train_on_hosts: Callable[[int], Jobs]) -> Callable[..., Jobs]:
    """A job on two hosts whose clocks differ."""

    def shift(job: str, number: int = 0) -> Jobs:
        folder = train_on_hosts(number).folder
        clock = WrongClock(AHEAD, PPM, origin=middle(sorted((folder / job / "traces").iterdir())))
        target = folder.with_name(f"{folder.name}-{job}-shifted")
        return Jobs(_once(target, lambda: _shift_beta(folder / job, target / job, clock)))

    return shift


def _shift_beta(source: Path, target: Path, clock: WrongClock) -> None:
    shutil.copytree(source, target)
    traces = list((target / "traces").glob(f"{HOSTS[1]}_*"))
    assert len(traces) == len(BETA)
    for trace in traces:
        rewrite_trace(trace, clock)
    for rank in BETA:
        rewrite_dump(target / "flight" / f"rank{rank}_fr.pkl", clock)


@WITH_OR_WITHOUT_DUMP
@pytest.mark.parametrize("job", ["healthy", "backward_sleep"])
def test_the_offset_of_the_other_host(shift: Callable[..., Jobs], job: str, flight: bool) -> None:
    told = shift(job).ranks(job, flight=flight)["clock"]
    clocks = {clock["rank"]: clock for clock in told["ranks"]}
    assert sorted(clocks) == list(range(RANKS))
    ahead_of_true = {rank: AHEAD * (rank in BETA) for rank in clocks}
    for rank, clock in clocks.items():
        truth = ahead_of_true[told["reference"]] - ahead_of_true[rank]
        assert abs(clock["offset_ns"] - truth) <= clock["uncertainty_ns"] < CLOSEST
        assert abs(clock["drift_ppm"]) <= MOST_PPM
        assert (clock["uncertainty_ns"] == 0) is ((rank in BETA) == (told["reference"] in BETA))


@WITH_OR_WITHOUT_DUMP
def test_the_slow_rank_by_another_clock(shift: Callable[..., Jobs], flight: bool) -> None:
    _assert_slow(shift("backward_sleep").ranks("backward_sleep", flight=flight), CAUSES["backward_sleep"])


@WITH_OR_WITHOUT_DUMP
def test_nobody_is_slow_by_another_clock(shift: Callable[..., Jobs], flight: bool) -> None:
    _assert_nobody_slow(lambda number: shift("healthy", number), flight)


def test_a_narrow_link_is_no_wait(hosts: Jobs) -> None:
    """Ends of one collective are far apart on it, so that ranks start their next step at different times."""
    taken = sum(stop - start for meeting in hosts.collectives("narrow") for start, stop in meeting)
    taken_before = sum(stop - start for meeting in hosts.collectives("healthy") for start, stop in meeting)
    assert taken > 3 * taken_before
    assert sum(straggler["charged_ns"] for straggler in hosts.ranks("narrow")["stragglers"]) < 0.15 * taken

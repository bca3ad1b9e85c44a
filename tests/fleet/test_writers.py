"""Several processes add runs to one fleet, and some of them are killed: no run is lost, and none is there twice."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lostflops.fleet.catalogs import load_table
from lostflops.fleet.data_files import list_tasks
from lostflops.fleet.kinds import LocalTable
from lostflops.fleet.place import open_fleet

pytest.importorskip("pyiceberg", reason="the extra fleet is not installed")
WRITER = Path(__file__).parent / "fleet_writer.py"
TESTS = Path(__file__).parent.parent


def start_writer(place, name: str, first: int, last: int) -> subprocess.Popen:
    path = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
    command = [sys.executable, str(WRITER), str(place), name, str(first), str(last)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)


class Job:
    """A writer that is killed now and then, and then goes on after the last run that it knows to be added."""

    def __init__(self, place: Path, name: str, runs: int, kills: int, chance: random.Random) -> None:
        self.place, self.name, self.runs = place, name, runs
        self.kills = sorted(chance.sample(range(runs), kills))
        self.chance = chance
        self.done: list[str] = []

    def run(self) -> None:
        while len(self.done) < self.runs:
            self._run_once()

    def _run_once(self) -> None:
        with start_writer(self.place, self.name, len(self.done), self.runs) as process:
            for line in process.stdout:
                self.done.append(line.strip())
                if self.kills and len(self.done) > self.kills[0]:
                    self.kills.pop(0)
                    time.sleep(self.chance.uniform(0, 0.3))
                    process.kill()
                    break
            self.done += process.stdout.read().split()
        assert process.returncode in (0, -9), f"{self.name} failed"


def check_writers(place: Path, writers: int, runs: int, kills: int) -> None:
    chance = random.Random(0)
    jobs = [Job(place, f"writer{number}", runs, kills, chance) for number in range(writers)]
    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(Job.run, jobs))
    with open_fleet(place, None).table(["run"]) as fleet:
        found = Counter(run for (run,) in fleet.execute("SELECT run FROM runs").fetchall())
    assert found == Counter(f"writer{writer}-{number}" for writer in range(writers) for number in range(runs))


def test_concurrent_writers_lose_nothing(tmp_path):
    check_writers(tmp_path / "fleet", writers=2, runs=6, kills=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_eight_writers_with_125_commits_each(tmp_path):
    place = tmp_path / "fleet"
    check_writers(place, writers=8, runs=125, kills=4)
    table = load_table(LocalTable(place))
    assert len(list_tasks(table)) < 150
    assert len(table.metadata.snapshots) <= 20

"""A real DDP job on two ranks, held against what it measured itself: pytest -m slow tests/integration/test_real_ddp.py

`ddp_job.py` trains a small decoder over gloo, one thread per rank. The same few quantities are known twice, from the
trace and from clocks in the script, and must agree within 10% on each rank. Other programs disturb both alike while
they are taken from one run, but not always: a run that does not agree is repeated once.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import lostflops
from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.windows import WindowKind
from lostflops.store.run import Run
from tests.integration import ddp_job
from tests.integration.ddp_job import BATCH, JOBS, LAYERS, LENGTH, RANKS, VOCABULARY, WARM_UP, WIDTH

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")]

BOUND = 0.10
LONGEST = 240
"""Seconds that the jobs may take; on two free cores it is a tenth."""
PEAK_TFLOPS = 5.0
"""More than any core reaches: from a lower one MFU could not be told."""

COMPUTING = ("forward", "backward", "optimizer")
"""What the script times in every step. Where DDP synchronises it waits inside `backward`."""
EACH_JOB = pytest.mark.parametrize("job", JOBS)


@dataclass(frozen=True)
class Training:
    """One start of the script: traces ingested, one run per job."""

    folder: Path

    def measured(self, job: str, rank: int) -> list[dict[str, int]]:
        steps: list[dict[str, int]] = json.loads((self.folder / f"measured{rank}.json").read_text())[job]
        return steps

    def sum(self, job: str, rank: int, *names: str) -> int:
        return sum(step[name] for step in self.measured(job, rank) for name in names)

    def run(self, job: str) -> Path:
        return self.folder / f"{job}-run"

    @cache  # noqa: B019 - as many as there are tests
    def report(self, job: str, *options: str) -> dict[str, Any]:
        return _lostflops("report", str(self.run(job)), "--window", "steps", *options)

    def lines(self, job: str, rank: int, *options: str) -> dict[str, int]:
        [row] = [row for row in self.report(job, *options)["ranks"] if row["rank"] == rank]
        lines: dict[str, int] = row["lines"]
        return lines


class Pair(NamedTuple):
    """A quantity in ns as both know it; `whole` is what 10% are taken of where it is not the quantity itself."""

    what: str
    ledger: int
    script: int
    whole: int | None = None

    @property
    def holds(self) -> bool:
        return abs(self.ledger - self.script) <= BOUND * (self.whole or self.script)

    def __str__(self) -> str:
        return f"{self.what}: ledger {self.ledger / 1e6:.1f} ms, script {self.script / 1e6:.1f} ms"


@dataclass(frozen=True)
class Trainings:
    """The first training, and a second for those who need it."""

    train: Callable[[int], Training]

    @property
    def first(self) -> Training:
        return self.train(0)

    def agree(self, compare: Callable[[Training], Iterator[Pair]]) -> None:
        told = []
        for number in range(2):
            pairs = list(compare(self.train(number)))
            assert pairs
            if all(pair.holds for pair in pairs):
                return
            told.append(f"run {number}: " + "; ".join(map(str, pairs)))
        pytest.fail(f"outside {BOUND:.0%} in a first run and again in a fresh one.\n" + "\n".join(told))


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    @cache
    def train(number: int) -> Training:
        folder = tmp_path_factory.mktemp(f"ddp{number}")
        _torchrun(folder)
        training = Training(folder)
        for job in JOBS:
            _lostflops("ingest", str(folder / job), "-o", str(training.run(job)), "--workers", "1")
        return training

    train(0)
    return Trainings(train)


def test_exposed_communication_is_what_the_thread_waited(trainings: Trainings) -> None:
    """Blocked in the hook of DDP or in a call of its own: from the call of the collective to the end of the wait.

    Before a worker of gloo has taken the collective up, and after it has finished until the thread is awake again, the
    script waits and the ledger knows of no communication: that is why it shows a little less.
    """

    def compare(training: Training) -> Iterator[Pair]:
        for job in ("blocking", "exposed"):
            for rank in range(RANKS):
                exposed = training.lines(job, rank)["comm.transfer"]
                yield Pair(f"{job}, rank {rank}", exposed, training.sum(job, rank, "blocked"))

    trainings.agree(compare)


def test_exposed_communication_of_plain_ddp(trainings: Trainings) -> None:
    """Blocked from the last gradient to the end of the backward pass.

    Between two ops of the backward pass no op computes: where a collective runs meanwhile the ledger counts it as
    exposed, and the script does not. That is why it shows a little more.
    """

    def compare(training: Training) -> Iterator[Pair]:
        for rank in range(RANKS):
            exposed = training.lines("overlapping", rank)["comm.transfer"]
            yield Pair(f"rank {rank}", exposed, training.sum("overlapping", rank, "blocked"))

    trainings.agree(compare)
    overlap = trainings.first.report("overlapping")["overlap"]
    assert overlap["hidden_ns"] > 0.05 * overlap["comm_ns"]


def test_a_collective_that_is_waited_for_is_not_hidden(trainings: Trainings) -> None:
    for job in ("blocking", "exposed"):
        overlap = trainings.first.report(job)["overlap"]
        assert overlap["comm_ns"] > 0
        assert overlap["hidden_ns"] == 0


def test_a_collective_under_compute_is_hidden(trainings: Trainings) -> None:
    """What is exposed is the barrier of each step, and the moments between ops while the collective runs."""

    def compare(training: Training) -> Iterator[Pair]:
        for rank in range(RANKS):
            overlap = training.report("hidden", "--rank", str(rank))["overlap"]
            hidden, blocked = (training.sum("hidden", rank, name) for name in ("hidden", "blocked"))
            yield Pair(f"hidden, rank {rank}", overlap["hidden_ns"], hidden)
            yield Pair(f"exposed, rank {rank}", overlap["exposed_ns"], blocked, whole=hidden)

    trainings.agree(compare)


def test_compute_is_what_the_script_took_without_ddp(trainings: Trainings) -> None:
    """Forward and backward under `no_sync()` plus the optimizer, with the profiler on.

    Every other step is such a step, and its communication is outside the clocks. They are held against the ledger of
    the same steps, and against that of the others, in which DDP synchronised. Where the clocks say that the machine was
    shared so unevenly that even the script took different times for both, less its wait, the others are held against
    these times instead.

    The clocks hold what Python and autograd's engine do between ops, which is no compute to the ledger: that is why it
    shows a little less.
    """

    def compare(training: Training) -> Iterator[Pair]:
        for rank in range(RANKS):
            alone, with_ddp = (_took(training, rank, synchronised=kind) for kind in (False, True))
            yield Pair(f"rank {rank}", _compute(training, rank, synchronised=False), alone)
            even = abs(with_ddp - alone) <= BOUND / 2 * alone
            name = f"with DDP, rank {rank}" + ("" if even else ", against itself")
            yield Pair(name, _compute(training, rank, synchronised=True), alone if even else with_ddp)

    trainings.agree(compare)


def _took(training: Training, rank: int, *, synchronised: bool) -> int:
    """What the script computed in steps of one kind; DDP's wait is inside the backward pass."""
    steps = [step for step in training.measured("blocking", rank) if step["synchronised"] is synchronised]
    waited = sum(step["blocked"] for step in steps) if synchronised else 0
    return sum(step[name] for step in steps for name in COMPUTING) - waited


def _compute(training: Training, rank: int, *, synchronised: bool) -> int:
    """The same from the ledger."""
    steps = training.measured("blocking", rank)
    chosen = [WARM_UP + i for i, step in enumerate(steps) if step["synchronised"] is synchronised]
    assert 2 * len(chosen) == len(steps)
    options = [option for number in chosen for option in ("--step", str(number))]
    return training.lines("blocking", rank, *options)["compute"]


@EACH_JOB
def test_lines_sum_to_the_wall(trainings: Trainings, job: str) -> None:
    report = trainings.first.report(job)
    assert report["window"]["steps"] == list(range(WARM_UP, WARM_UP + JOBS[job].steps))
    assert [row["rank"] for row in report["ranks"]] == list(range(RANKS))
    for row in report["ranks"]:
        assert sum(row["lines"].values()) == row["wall_ns"] > 0
        assert min(row["lines"].values()) == 0 == row["lines"]["unexplained"]
    for line in report["ledger"]["lines"]:
        assert line["ns"] == sum(row["lines"][line["line"]] for row in report["ranks"])
    assert report["ledger"]["total_ns"] == sum(row["wall_ns"] for row in report["ranks"])
    assert report["quality"]["records_dropped"] == 0


@EACH_JOB
def test_the_wall_is_that_of_the_script(trainings: Trainings, job: str) -> None:
    def compare(training: Training) -> Iterator[Pair]:
        for rank in range(RANKS):
            steps = training.measured(job, rank)
            script = training.sum(job, rank, *COMPUTING)
            script += sum(step["blocked"] for step in steps if not step["synchronised"])
            yield Pair(f"rank {rank}", sum(training.lines(job, rank).values()), script)

    trainings.agree(compare)


def _step_flops() -> int:
    """FLOPs of the model in one step of one rank, by hand.

    The backward pass does two products for each of the forward pass, the gradients of its two factors. None can be left
    out: the first layer's input is the embedding, which is trained. What flash attention does again is not counted.
    """
    tokens = BATCH * LENGTH
    qkv = 2 * tokens * WIDTH * 3 * WIDTH
    attention = 2 * BATCH * LENGTH * LENGTH * WIDTH + 2 * BATCH * LENGTH * LENGTH * WIDTH
    out = 2 * tokens * WIDTH * WIDTH
    mlp = 2 * tokens * WIDTH * 4 * WIDTH + 2 * tokens * 4 * WIDTH * WIDTH
    head = 2 * tokens * WIDTH * VOCABULARY
    return 3 * (LAYERS * (qkv + attention + out + mlp) + head)


@EACH_JOB
def test_flops_are_those_of_the_model(trainings: Trainings, job: str) -> None:
    """Of each rank, exactly, in all steps together and in single ones."""
    last = WARM_UP + JOBS[job].steps - 1
    with Run.open(trainings.first.run(job)) as run:
        for steps in ([], [WARM_UP], [last]):
            for ledger in ledgers(run, scope(run, WindowKind.STEPS, steps=steps)):
                found = sum(effort.model_flops * count for effort, (count, _) in ledger.work.efforts.items())
                assert found == _step_flops() * (len(steps) or JOBS[job].steps), f"rank {ledger.rank}, steps {steps}"


def test_phases(trainings: Trainings) -> None:
    """Compute of the backward pass is twice that of the forward pass, plus what accumulates gradients."""
    phases = {row["name"]: row for row in trainings.first.report("blocking")["phases"]}
    assert {"forward", "backward", "optimizer"} <= phases.keys()
    forward, backward = (phases[name]["ns"] * phases[name]["compute"] for name in ("forward", "backward"))
    assert 1.5 < backward / forward < 3


def test_mfu(trainings: Trainings) -> None:
    unknown = trainings.first.report("blocking")["mfu"]
    assert unknown["value"] is None
    assert "names no accelerator" in unknown["reason"]
    assert "--peak-tflops" in unknown["reason"]

    report = trainings.first.report("blocking", "--peak-tflops", str(PEAK_TFLOPS))
    known = report["mfu"]
    assert known["reason"] == ""
    flops = _step_flops() * JOBS["blocking"].steps * RANKS
    assert known["value"] == pytest.approx(flops / (report["ledger"]["total_ns"] * PEAK_TFLOPS * 1e3))
    assert known["waterfall"][-1] == {"line": "mfu", "points": pytest.approx(100 * known["value"])}
    for bars in (unknown["waterfall"], known["waterfall"]):
        assert sum(bar["points"] for bar in bars) == pytest.approx(100, abs=1e-9)


def _lostflops(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "lostflops", *arguments, "--json"]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=LONGEST, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _environment() -> dict[str, str]:
    loopback = "lo" if sys.platform == "linux" else "lo0"
    return os.environ | {
        "PYTHONPATH": str(Path(lostflops.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": loopback,
    }


def _torchrun(folder: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    command += [str(ddp_job.__file__), str(folder)]
    with subprocess.Popen(
        command,
        start_new_session=True,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as launcher:
        try:
            said, _ = launcher.communicate(timeout=LONGEST)
        finally:
            if launcher.poll() is None:
                _end(launcher, folder)
    if launcher.returncode != 0:
        if not any(folder.glob("started*")):
            pytest.skip(f"torchrun cannot start: {said[-500:]}")
        if unconnected := list(folder.glob("unconnected*")):
            pytest.skip(f"no process group: {unconnected[0].read_text()[-500:]}")
        pytest.fail(f"the jobs failed:\n{said[-5000:]}")


def _end(launcher: subprocess.Popen[str], folder: Path) -> None:
    """torchrun starts ranks in sessions of their own: they end with it when it is asked to, not when it is killed."""
    launcher.terminate()
    with suppress(subprocess.TimeoutExpired):
        launcher.wait(10)
        return
    for group in (launcher.pid, *(int(path.read_text()) for path in folder.glob("started*"))):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)

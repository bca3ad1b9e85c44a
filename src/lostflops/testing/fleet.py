"""Generated summaries of thousands of runs, with known truth: slow hosts, regressions, restarts.

Hosts of a run are synchronous: the slowest sets the step, and the others wait for it. A host's own time differs by what
it always adds, what it adds in this job and in this run, all with Student's t of 4 degrees of freedom; what the summary
reports of it has an error too. Step times of a job also differ from run to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.fleet.summary import FindingSummary, HostSummary, PaceSummary, RunSummary

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RANKS_PER_HOST: Final = 8
DEVICES: Final = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "AMD Instinct MI300X")
_START: Final = 1_760_000_000 * 10**9
_DAYS: Final = 180
_DAY_NS: Final = 86_400 * 10**9
_RANKS: Final = np.array([64, 128, 256, 512, 1024])
_RANKS_SHARES: Final = (0.35, 0.25, 0.2, 0.12, 0.08)
_TEAMS: Final = ("language", "vision", "speech", "search", "robotics", "biology")
_MODELS: Final = ("llama-7b", "llama-70b", "mixtral-8x7b", "vit-g", "whisper-l", "diffusion-xl", "esm-15b", "bert-l")
_OWN: Final = {
    "compute": 0.70,
    "copy": 0.01,
    "idle.data": 0.02,
    "idle.sync": 0.01,
    "idle.host": 0.03,
    "idle.python": 0.015,
    "idle.dependency": 0.02,
    "unexplained": 0.005,
}
"""Shares of a step without waits, by line."""
_TRANSFER: Final = 0.19
_LIFE: Final = {
    "starting": 0.03,
    "checkpointing": 0.02,
    "evaluating": 0.015,
    "profiling": 0.004,
    "stalled": 0.01,
    "ending": 0.002,
    "unknown": 0.005,
}
_FINDINGS: Final = (
    ("data-loading", "Ranks wait for batches.", "Use more loader workers.", 0.06),
    ("host-bound", "The host launches kernels too slowly.", "Use CUDA graphs or larger batches.", 0.09),
    ("exposed-communication", "Communication is not hidden.", "Overlap it with the backward pass.", 0.12),
    ("straggler", "One host is slow.", "Replace the host.", 0.05),
)
_FREEDOM: Final = 4
_WINDOW_STEPS: Final = 10
_PACES: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """A fleet to generate; spreads are standard deviations, as parts of the step."""

    runs: int = 1000
    seed: int = 0
    hosts: int = 1024
    jobs: int | None = None
    """One for 40 runs by default."""
    slow_hosts: float = 0.02
    """Share of slow hosts."""
    slower: tuple[float, float] = (0.03, 0.15)
    """How much slower they are: uniform between these."""
    changed: float = 0.3
    """Share of slow hosts that became slow, or were repaired, on some day."""
    regressions: float = 0.3
    """Share of jobs that become slower at a commit."""
    regression: float = 0.03
    run_noise: float = 0.005
    """Of step times, from run to run."""
    host_spread: float = 0.004
    job_spread: float = 0.003
    host_noise: float = 0.003
    host_error: float = 0.003
    """Of what summaries report of a host; they state it."""
    unknown: float = 0.01
    """Share of hosts whose `slower` is unknown."""
    restarts: float = 0.15
    """Share of runs with more than one attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowHostTruth:
    """A planted slow host."""

    host: str
    slower: float
    """With what it would add if it were healthy."""
    since: int
    """Unix time in ns."""
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionTruth:
    """A planted regression."""

    job: str
    run: str
    """The first run after it."""
    index: int
    """Runs of the job before it."""
    commit: str
    commit_before: str
    slower: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTruth:
    """What was planted."""

    slow_hosts: tuple[SlowHostTruth, ...]
    regressions: tuple[RegressionTruth, ...]
    hosts: tuple[str, ...]
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _FleetJob:
    """A job of the plan."""

    name: str
    labels: dict[str, str]
    ranks: int
    device: int
    step_ns: float
    mfu: float
    tokens: int
    role: int
    """Seed of what hosts add in this job."""


class GeneratedFleet:
    """Summaries of many runs, and what was planted in them. The same plan gives the same fleet."""

    def __init__(self, plan: FleetPlan) -> None:
        self.plan = plan
        random = np.random.default_rng([plan.seed, 1])
        self._pools = _divide_hosts(plan.hosts)
        self._effects = random.standard_normal(plan.hosts).clip(-3, 3) * plan.host_spread
        self._extra, self._since, self._until = _plant_slow_hosts(plan, random)
        self._jobs = _make_jobs(plan, random, [len(pool) for pool in self._pools])
        self._job_of_run = random.permutation(np.arange(plan.runs) % len(self._jobs))
        self._index = _count_before(self._job_of_run)
        self._starts = np.sort(_START + (random.random(plan.runs) * _DAYS * _DAY_NS).astype(np.int64))
        self._commits, self._regressed = _plant_regressions(plan, random, self._job_of_run, self._index)
        self.truth = self._describe()

    def summaries(self) -> Iterator[RunSummary]:
        """Generate the summaries in the order of their starts."""
        for number in range(self.plan.runs):
            yield self._make_run(number)

    def _describe(self) -> FleetTruth:
        """Describe what was planted."""
        slow = [
            SlowHostTruth(
                host=_name_host(host),
                slower=float(self._extra[host] + self._effects[host]),
                since=int(self._since[host]),
                until=int(self._until[host]),
            )
            for host in np.flatnonzero(self._extra).tolist()
        ]
        firsts = [self._describe_regression(job, first) for job, first in sorted(self._regressed.items())]
        return FleetTruth(
            slow_hosts=tuple(slow),
            regressions=tuple(firsts),
            hosts=tuple(_name_host(host) for host in range(self.plan.hosts)),
            jobs=tuple(job.name for job in self._jobs),
        )

    def _describe_regression(self, job: int, first: int) -> RegressionTruth:
        """Describe the regression of a job, from its run of this index on."""
        before, run = np.flatnonzero(self._job_of_run == job)[first - 1 : first + 1].tolist()
        return RegressionTruth(
            job=self._jobs[job].name,
            run=_name_run(run),
            index=first,
            commit=self._commits[run],
            commit_before=self._commits[before],
            slower=self.plan.regression,
        )

    def _make_run(self, number: int) -> RunSummary:
        """Make one summary."""
        plan, code = self.plan, int(self._job_of_run[number])
        job, random = self._jobs[code], np.random.default_rng([plan.seed, 2, number])
        start = int(self._starts[number])
        hosts = random.choice(self._pools[job.device], job.ranks // RANKS_PER_HOST, replace=False)
        own = self._draw_own_time(hosts, job, start, random)
        is_regressed = bool(self._index[number] >= self._regressed.get(code, plan.runs))
        noise = float(np.exp(plan.run_noise * _draw(random, 1)[0]))
        normal = job.step_ns * (1 + plan.regression * is_regressed) * noise
        step_ns = normal * (1 + (1 - _TRANSFER) * max(float(own.max()), 0.0))
        made = _make_hosts(hosts, own, (normal, step_ns), job.device, plan=plan, random=random)
        times = _make_times(job, start, step_ns, plan, random)
        lines = {line: sum(host.lines[line] for host in made) for line in made[0].lines}
        return RunSummary(
            run=_name_run(number),
            name=job.name,
            labels={**job.labels, "slurm_job_id": str(400_000 + number)},
            address=f"s3://fleet/runs/{_name_run(number)}",
            start=start,
            ranks=job.ranks,
            device=DEVICES[job.device],
            backend="nccl",
            torch="2.9.1",
            lostflops="1.0",
            commit=self._commits[number],
            step_ns=step_ns,
            step_error=float(random.uniform(2e-4, 1e-3)),
            tokens_per_second=job.tokens / step_ns * 1e9,
            samples_per_second=job.tokens / 4096 / step_ns * 1e9,
            mfu=job.mfu * job.step_ns / step_ns,
            window_ns=sum(lines.values()),
            lines=lines,
            hosts=made,
            findings=_make_findings(random),
            **times,
        )

    def _draw_own_time(self, hosts: Ints, job: _FleetJob, start: int, random: np.random.Generator) -> Floats:
        """Draw by which part each host's own time is longer than that of the median host."""
        plan = self.plan
        is_slow = (self._since[hosts] <= start) & (start <= self._until[hosts])
        roles = _draw(np.random.default_rng([plan.seed, 3, job.role]), plan.hosts)[hosts] * plan.job_spread
        added = self._effects[hosts] + roles + _draw(random, len(hosts)) * plan.host_noise
        own = np.maximum(1 + added + np.where(is_slow, self._extra[hosts], 0), 0.5)
        return np.asarray(own / np.median(own) - 1)


def _draw(random: np.random.Generator, count: int) -> Floats:
    """Draw from Student's t with standard deviation 1."""
    return np.asarray(random.standard_t(_FREEDOM, count) * np.sqrt((_FREEDOM - 2) / _FREEDOM))


def _name_run(number: int) -> str:
    """Name a run."""
    return f"run-{number:06d}"


def _name_host(number: int) -> str:
    """Name a host."""
    return f"node-{number:05d}"


def _divide_hosts(count: int) -> list[Ints]:
    """Divide hosts by device: half of them have the first, if there are enough."""
    edges = [0, count // 2, count * 3 // 4, count]
    return [np.arange(low, high) for low, high in pairwise(edges)]


def _plant_slow_hosts(plan: FleetPlan, random: np.random.Generator) -> tuple[Floats, Ints, Ints]:
    """Choose slow hosts; return what each host adds, since when and until when."""
    extra = np.zeros(plan.hosts)
    since, until = np.zeros(plan.hosts, np.int64), np.full(plan.hosts, 2**62)
    slow = random.choice(plan.hosts, round(plan.slow_hosts * plan.hosts), replace=False)
    extra[slow] = random.uniform(*plan.slower, len(slow))
    changed = slow[random.random(len(slow)) < plan.changed]
    days = _START + (random.uniform(0.25, 0.75, len(changed)) * _DAYS * _DAY_NS).astype(np.int64)
    is_repaired = random.random(len(changed)) < 0.5
    since[changed] = np.where(is_repaired, 0, days)
    until[changed] = np.where(is_repaired, days, 2**62)
    return extra, since, until


def _make_jobs(plan: FleetPlan, random: np.random.Generator, pools: list[int]) -> list[_FleetJob]:
    """Make the jobs of a plan; none needs more hosts than have its device."""
    jobs = []
    for number in range(plan.jobs or max(1, plan.runs // 40)):
        device = int(random.choice(len(DEVICES), p=(0.5, 0.25, 0.25)))
        most = max(int(_RANKS[0]), pools[device] * RANKS_PER_HOST)
        ranks = min(int(random.choice(_RANKS, p=_RANKS_SHARES)), int(_RANKS[most >= _RANKS].max()))
        team, model = (str(random.choice(names)) for names in (_TEAMS, _MODELS))
        name = f"{team}-{model}-{number:04d}"
        labels = {"team": team, "user": f"user{random.integers(60):02d}", "job": name, "model": model}
        step = float(np.exp(random.uniform(np.log(0.2e9), np.log(8e9))))
        jobs.append(
            _FleetJob(name, labels, ranks, device, step, float(random.uniform(0.25, 0.55)), ranks * 8192, number)
        )
    return jobs


def _count_before(codes: Ints) -> Ints:
    """Count earlier rows with the same code."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    counts = np.empty(len(codes), np.int64)
    counts[order] = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
    return counts


def _plant_regressions(
    plan: FleetPlan, random: np.random.Generator, jobs: Ints, index: Ints
) -> tuple[list[str], dict[int, int]]:
    """Choose the commit of each run, and from which of its runs on a job is slower: a new commit begins there."""
    counts = np.bincount(jobs)
    regressed = {
        job: int(random.integers(8, count - 6))
        for job, count in enumerate(counts.tolist())
        if random.random() < plan.regressions and count >= 15
    }
    commits: list[str] = []
    newest: dict[int, str] = {}
    is_new = random.random(len(jobs)) < 0.35
    numbers = random.integers(2**60, size=len(jobs)).tolist()
    for row, (job, place) in enumerate(zip(jobs.tolist(), index.tolist(), strict=True)):
        if place == 0 or is_new[row] or place == regressed.get(job):
            newest[job] = f"{numbers[row]:016x}"[:12]
        commits.append(newest[job])
    return commits, regressed


def _make_hosts(
    hosts: Ints, own: Floats, steps: tuple[float, float], device: int, *, plan: FleetPlan, random: np.random.Generator
) -> list[HostSummary]:
    """Make the hosts of a run, whose steps take so long without waits, and with them."""
    normal, step_ns = (_WINDOW_STEPS * RANKS_PER_HOST * step for step in steps)
    shares = np.array(list(_OWN.values())) * np.exp(random.normal(0, 0.05, (len(hosts), len(_OWN))))
    shares *= (1 - _TRANSFER) / shares.sum(1, keepdims=True)
    lines = np.floor(shares * (1 + own)[:, None] * normal).astype(np.int64)
    transfer = np.full((len(hosts), 1), int(_TRANSFER * normal), np.int64)
    wait = np.maximum(int(step_ns) - lines.sum(1, keepdims=True) - transfer, 0)
    table = np.concatenate([lines, transfer, wait], axis=1)
    names = (*_OWN, "comm.transfer", "comm.wait")
    errors = plan.host_error * np.exp(random.normal(0, 0.3, len(hosts)))
    slower = own + errors * _draw(random, len(hosts))
    is_known = random.random(len(hosts)) >= plan.unknown
    columns = (hosts, table.sum(1), table, slower.round(6), errors.round(6), is_known)
    return [
        HostSummary(
            host=_name_host(host),
            device=DEVICES[device],
            ranks=RANKS_PER_HOST,
            window_ns=window,
            lines=dict(zip(names, row, strict=True)),
            slower=value if known else None,
            slower_error=error if known else None,
        )
        for host, window, row, value, error, known in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _make_times(
    job: _FleetJob, start: int, step_ns: float, plan: FleetPlan, random: np.random.Generator
) -> dict[str, Any]:
    """Make the times of the life of a run: its attempts, its steps, and what its ranks did."""
    attempts = 1 + int(random.random() < plan.restarts) * int(random.integers(1, 4))
    steps = int(random.uniform(0.5, 24) * 3600e9 / step_ns)
    shares = {line: share * float(random.exponential()) for line, share in _LIFE.items()}
    shares["restarting"] = 0.01 * (attempts - 1) * float(random.exponential())
    training = int(steps * step_ns * job.ranks)
    life = {line: int(share * training) for line, share in shares.items()}
    total = training + sum(life.values())
    return {
        "stop": start + max(1, total // job.ranks),
        "attempts": attempts,
        "steps": steps,
        "total_ns": total,
        "life": {"training": training, **life},
        "pace": _make_pace(start, steps, step_ns, attempts, random),
    }


def _make_pace(start: int, steps: int, step_ns: float, attempts: int, random: np.random.Generator) -> list[PaceSummary]:
    """Make the pace of a run."""
    length = max(1, steps // _PACES)
    starts = start + (np.arange(_PACES) * (length * step_ns)).astype(np.int64)
    medians = step_ns * np.exp(random.normal(0, 0.003, _PACES))
    slow = medians * (1 + random.exponential(0.03, _PACES))
    columns = (np.arange(_PACES) * attempts // _PACES, starts, medians.round(), slow.round())
    return [
        PaceSummary(attempt=attempt, start=at, steps=length, step_ns=median, slow_ns=slowest)
        for attempt, at, median, slowest in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _make_findings(random: np.random.Generator) -> list[FindingSummary]:
    """Make a few findings."""
    chosen = random.choice(len(_FINDINGS), int(random.integers(0, 4)), replace=False)
    made = []
    for name, what, fix, gain in (_FINDINGS[number] for number in chosen.tolist()):
        saved = gain * float(random.uniform(0.5, 1.5))
        finding = FindingSummary(
            id=name,
            level="found" if random.random() < 0.7 else "suspected",
            cause=name,
            what=what,
            fix=fix,
            gain=saved,
            gain_low=saved * 0.6,
            gain_high=saved * 1.4,
        )
        made.append(finding)
    return made

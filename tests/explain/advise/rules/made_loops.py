"""Training loops on CPUs with known truth: timings of all steps, and a window with ops, Python between and stacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lostflops.core.results import Finding
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.diagnose import diagnosis
from lostflops.explain.advise.rule import Rule
from lostflops.ingest import ingest
from lostflops.store.run import Run
from made_captures import BASE, MS, end, frames, session, step, write, write_window

Events = list[dict[str, Any]]


@dataclass
class Loop:
    """Each step computes for `compute` ms, then runs Python for `python` ms, in these `stacks` in turn, and has so
    `more` in its timing. Steps from `profiled` on are in the window, all of `steps` are timed."""

    ranks: int = 2
    steps: int = 30
    profiled: int = 24
    compute: Callable[[int, int], int] = lambda rank, number: 60
    python: Callable[[int, int], int] = lambda rank, number: 40
    stacks: Sequence[str] = ()
    more: Callable[[int, int], dict[str, Any]] = field(default=lambda rank, number: {})
    ops: Sequence[str] = ("aten::mm",) * 4
    """Names of those that compute, of equal duration."""
    facts: Callable[[int], dict[str, Any]] = field(default=lambda rank: {})
    """What the collector recorded of the job on a rank."""

    def write(self, folder: Path) -> Path:
        for rank in range(self.ranks):
            records, events, now = [], [], 0
            for number in range(self.steps):
                busy, idle = self.compute(rank, number) * MS, self.python(rank, number) * MS
                phases = (0, busy // 2, busy // 2, 0, idle)
                records.append(step(number, now, phases, profiled=number >= self.profiled, **self.more(rank, number)))
                if number >= self.profiled:
                    events += self._step(number, now, busy, idle)
                    records += self._samples(now + busy, idle)
                now += busy + idle
            facts = [{"kind": "job", "key": key, "value": value} for key, value in self.facts(rank).items()]
            told = [session(rank, self.ranks), *facts, *records, end(now + 1)]
            write(folder / "capture", rank, frames(rank, f"s{rank}", told))
            write_window(folder / "capture", rank, 0, events, self.ranks)
        ingest([folder / "capture"], folder / "run", workers=1)
        return folder / "run"

    def _step(self, number: int, start: int, busy: int, idle: int) -> Events:
        whole = [("user_annotation", f"ProfilerStep#{number}", start, busy + idle)]
        each = busy // len(self.ops)
        ops = [("cpu_op", name, start + at * each, each) for at, name in enumerate(self.ops)]
        return [
            {
                "ph": "X",
                "cat": kind,
                "name": name,
                "pid": 1,
                "tid": 1,
                "ts": (BASE + begin) / 1000,
                "dur": ns / 1000,
                "args": {},
            }
            for kind, name, begin, ns in whole + ops
        ]

    def _samples(self, start: int, idle: int) -> list[dict[str, Any]]:
        """One of each stack, at the end of its part: a sample stands for the time before it."""
        if not self.stacks or not idle:
            return []
        names = {str(number): stack for number, stack in enumerate(self.stacks)}
        times = [start + (at + 1) * idle // len(self.stacks) - 1 for at in range(len(self.stacks))]
        return [{"kind": "stacks", "names": names, "samples": [[BASE + time, at] for at, time in enumerate(times)]}]


@contextmanager
def case_of(path: Path) -> Iterator[Case]:
    with Run.open(path) as run:
        yield Case(run)


def claims(case: Case, rule: Rule) -> list[Claim]:
    return list(rule.find(case))


def findings(case: Case, *rules: Rule) -> list[Finding]:
    return list(diagnosis(case, rules=rules).findings)

"""The ledger of a run: the sum of its ranks, each over its own wall time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from lostflops.account.ledger.accounts import Lines, RankLedger
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.work import RankWork


@dataclass(frozen=True, slots=True)
class RankLines:
    rank: int
    wall: int
    lines: Lines
    steps: int


@dataclass(slots=True, kw_only=True)
class RunLedger:
    """Sum of the ledgers of ranks, added one by one, so that thousands are never in memory at once."""

    ranks: list[RankLines] = field(default_factory=list)
    steps: set[int] = field(default_factory=set)
    lines: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(LINES, 0)))
    parts: dict[str, Counter[str]] = field(default_factory=dict)
    phases: dict[str, Counter[str]] = field(default_factory=dict)
    job_phases: dict[str, Counter[str]] = field(default_factory=dict)
    annotations: dict[str, Counter[str]] = field(default_factory=dict)
    modules: dict[str, Counter[str]] = field(default_factory=dict)
    samples: dict[str, Counter[str]] = field(default_factory=dict)
    """Stacks of the training threads by line, and how often each was read."""
    sampled_ns: dict[str, Counter[str]] = field(default_factory=dict)
    """Time that these samples represent."""
    compute: int = 0
    comm: int = 0
    hidden: int = 0
    could_hide: int = 0
    longest: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Per line the longest single stretch: its length, rank and event."""
    blocker: tuple[int, int] = (-1, -1)
    """Rank and event that had blocked before the longest stretch of `idle.sync`."""
    work: RankWork = field(default_factory=RankWork)
    unlaunched: int = 0
    kernels: int = 0
    on_thread: list[int] = field(default_factory=list)
    """Ranks without device events, accounted for by their training thread."""
    notes: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, ledgers: Iterable[RankLedger]) -> RunLedger:
        total = cls()
        for ledger in ledgers:
            total.add(ledger)
        return total

    @property
    def total_ns(self) -> int:
        return sum(rank.wall for rank in self.ranks)

    @property
    def step_count(self) -> int:
        """Steps of all ranks together."""
        return sum(rank.steps for rank in self.ranks)

    @property
    def efficiency(self) -> float | None:
        """Hidden part of the communication that could have been hidden under compute; None if none could."""
        return self.hidden / self.could_hide if self.could_hide else None

    def share(self, line: str) -> float:
        return self.lines[line] / self.total_ns if self.total_ns else 0.0

    def add(self, ledger: RankLedger) -> None:
        window = ledger.window
        self.ranks.append(RankLines(ledger.rank, window.wall, ledger.lines, len(window.number)))
        self.steps.update(window.number)
        self.lines.update(ledger.lines)
        for mine, theirs in (
            (self.parts, ledger.parts),
            (self.phases, ledger.phases),
            (self.job_phases, ledger.job_phases),
            (self.annotations, ledger.annotations),
            (self.modules, ledger.modules),
            (self.samples, ledger.samples),
            (self.sampled_ns, ledger.sampled_ns),
        ):
            for name, sums in theirs.items():
                mine.setdefault(name, Counter()).update(sums)
        self.compute += ledger.overlap.compute
        self.comm += ledger.overlap.comm
        self.hidden += ledger.overlap.hidden
        self.could_hide += ledger.overlap.most
        for line, longest in ledger.longest.items():
            if longest.ns > self.longest.get(line, (0, 0, 0))[0]:
                self.longest[line] = (longest.ns, ledger.rank, longest.event)
                if line == "idle.sync":
                    self.blocker = ledger.rank, ledger.blocker
        self.work.add(ledger.work)
        self.unlaunched += ledger.unlaunched
        self.kernels += ledger.kernels
        if not ledger.on_device:
            self.on_thread.append(ledger.rank)
        self.notes.update(window.notes)

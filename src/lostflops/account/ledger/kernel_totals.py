"""The kernels of all chosen ranks, with their work and their time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lostflops.account.ledger.accounts import Lines
from lostflops.account.ledger.by_rank import Question
from lostflops.account.ledger.kernel_sums import KernelSums, kernel_sums
from lostflops.account.ledger.lines import BUSY_LINES
from lostflops.account.ledger.partition import partition
from lostflops.account.ledger.parts import kernel_classes
from lostflops.account.ledger.record import Record
from lostflops.account.ledger.windows import LedgerWindow
from lostflops.account.ledger.work import RankWork, rank_work


@dataclass(slots=True)
class KernelTotals:
    """Kernels of all ranks, with their work and time."""

    sums: KernelSums = field(default_factory=dict)
    work: RankWork = field(default_factory=RankWork)
    wall: int = 0
    """Time of the windows of all ranks, in ns."""
    busy: int = 0
    """Part of `wall` in which the device did anything."""
    computed: int = 0
    """Part of `wall` in which the device computed."""

    def add(self, work: RankWork, wall: int, lines: Lines) -> None:
        self.work.add(work)
        self.wall += wall
        self.busy += sum(lines[line] for line in BUSY_LINES)
        self.computed += lines["compute"]


class RankKernels(NamedTuple):
    sums: KernelSums
    work: RankWork
    wall: int
    lines: Lines


def kernels_of(record: Record, chosen: LedgerWindow) -> RankKernels:
    parted, classes = partition(record, chosen), kernel_classes(record)
    work = rank_work(record, parted, classes)
    return RankKernels(kernel_sums(record, parted, classes), work, parted.window.wall, parted.ns())


KERNELS: Final = Question("kernels", RankKernels, kernels_of)
QUESTIONS: Final = {KERNELS.name: KERNELS}

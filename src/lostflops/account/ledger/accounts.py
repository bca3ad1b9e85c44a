"""The ledger of one rank: small, plain values that answer every question about its time.

It is computed where the rank's data is; the ledger of a run is the sum of its ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from lostflops.account.ledger.by_rank import Question
from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.job_phases import by_job_phase
from lostflops.account.ledger.kernel_sums import KernelSums, add_kernels, kernel_sums
from lostflops.account.ledger.lines import BUSY_LINES, IDLE_LINES, LINES
from lostflops.account.ledger.modules import by_module
from lostflops.account.ledger.partition import Partition, partition
from lostflops.account.ledger.parts import (
    NO_ANNOTATION,
    Parts,
    communication_shares,
    kernel_classes,
    ops_around,
    parts,
    python_by_annotation,
)
from lostflops.account.ledger.phases import PHASES, annotations_on, by_stretch, phases_at, thread_phases
from lostflops.account.ledger.profile import StepProfile, profile
from lostflops.account.ledger.record import COMM, KERNEL, Codes, Ns, Record
from lostflops.account.ledger.samples import LineStacks, samples_by_line
from lostflops.account.ledger.shares import by_event
from lostflops.account.ledger.together import Together, together
from lostflops.account.ledger.windows import LedgerWindow, WindowKind
from lostflops.account.ledger.work import RankWork, rank_work
from lostflops.store.intervals import Intervals
from lostflops.store.row_groups import group_rows

Lines = dict[str, int]
Shares = list[tuple[str, Codes, Ns]]
"""Line, device rows and the time that each accounts for; a row of -1 means no row."""
Stretches = Iterator[tuple[str, Codes, Ns]]
"""Line, events and the time that each accounts for; an event of -1 means no event."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Time of compute and of communication, and how much they overlap, in ns."""

    compute: int
    """All compute."""
    comm: int
    """All communication."""
    hidden: int
    """Communication that ran under compute."""

    @property
    def exposed(self) -> int:
        return self.comm - self.hidden

    def __add__(self, other: Overlap) -> Overlap:
        return Overlap(self.compute + other.compute, self.comm + other.comm, self.hidden + other.hidden)

    @property
    def most(self) -> int:
        """Communication that could have been hidden at best."""
        return min(self.compute, self.comm)


@dataclass(frozen=True, slots=True)
class LongestStretch:
    """The longest single stretch of a line on a rank, and the event it belongs to."""

    ns: int
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLedger:
    """The ledger of one rank."""

    rank: int
    on_device: bool
    window: LedgerWindow
    lines: Lines
    """Time by line, in ns; sums to the window's wall time."""
    parts: Parts
    steps: tuple[Lines, ...]
    """Lines of each step."""
    phases: dict[str, Lines]
    """Lines by phase."""
    job_phases: dict[str, Lines]
    """Lines by phase of the job, such as rollout or decode."""
    annotations: dict[str, Lines]
    """Lines by annotation."""
    modules: dict[str, Lines]
    """Lines by module."""
    samples: LineStacks
    """Stacks by the line that they were read on, and how often."""
    sampled_ns: LineStacks
    """Time that the samples represent, by line and stack."""
    overlap: Overlap
    groups: dict[str, Overlap]
    """Communication of each process group; groups may overlap, so these do not add up."""
    together: Together
    longest: dict[str, LongestStretch]
    blocker: int
    """Event that had blocked before the longest stretch of `idle.sync`; -1 for none."""
    work: RankWork
    unlaunched: int
    kernels: int
    profile: StepProfile

    def __post_init__(self) -> None:
        assert sum(self.lines.values()) == self.window.wall
        assert all(ns >= 0 for ns in self.lines.values())


def account_with_kernels(record: Record, chosen: LedgerWindow) -> tuple[RankLedger, KernelSums]:
    """Return the ledger, and how often each kernel ran."""
    sums = KernelSums()
    return account(record, chosen, sums), sums


def account(record: Record, chosen: LedgerWindow, sums: KernelSums | None = None) -> RankLedger:
    made = partition(record, chosen)
    counts, times = samples_by_line(record.samples, made.lines)
    classes = kernel_classes(record)
    shares = list(_device_shares(record, made)) if record.on_device else []
    labelled = _by_device(record, made, shares) if record.on_device else _by_thread(record, made)
    kernels = np.isin(record.device.kind, (KERNEL, COMM))
    if sums is not None:
        add_kernels(sums, kernel_sums(record, made, classes))
    return RankLedger(
        rank=record.rank,
        on_device=record.on_device,
        window=chosen,
        lines=made.ns(),
        parts=parts(record, made, classes),
        steps=_steps(made),
        phases=labelled[0],
        job_phases=by_job_phase(record, made, shares),
        annotations=labelled[1],
        modules=by_module(record, made, shares),
        samples=counts,
        sampled_ns=times,
        overlap=_overlap(made.compute, made.comm),
        groups=_groups(record, made),
        together=together(record, made),
        longest=_longest(_device_stretches(record, shares) if record.on_device else _thread_stretches(record, made)),
        blocker=_blocker(record, made),
        work=rank_work(record, made, classes),
        unlaunched=int((kernels & (record.device.launch < 0)).sum()),
        kernels=int(kernels.sum()),
        profile=profile(record, made),
    )


def _overlap(compute: Intervals, comm: Intervals) -> Overlap:
    return Overlap(compute.total, comm.total, (compute & comm).total)


def _groups(record: Record, made: Partition) -> dict[str, Overlap]:
    calls, inside = record.communication, made.window.inside
    return {
        record.collectives.name(code): _overlap(made.compute, Intervals.of(calls.start[own], calls.stop[own]) & inside)
        for code, own in group_rows(calls.group)
    }


def _steps(made: Partition) -> tuple[Lines, ...]:
    if made.window.kind is WindowKind.TRACE:
        return ()
    columns = [made.lines[line].within(made.window.start, made.window.stop).tolist() for line in LINES]
    return tuple(dict(zip(LINES, row, strict=True)) for row in zip(*columns, strict=True))


def _by_device(record: Record, made: Partition, shares: Shares) -> tuple[dict[str, Lines], dict[str, Lines]]:
    """Return lines by phase and by annotation.

    Busy time belongs to its event, idle time to the event that ends it, and Python to the annotation that it ran in.
    """
    device, host = record.device, record.host
    known = device.launch >= 0
    times = np.where(known, host.start[device.launch], 0) if host.start.size else np.zeros(known.size, np.int64)
    lanes = np.where(known, host.lane[device.launch], -1) if host.start.size else np.full(known.size, -1)
    phase = phases_at(record, times, lanes)
    phases = _table([share for share in shares if share[0] != "idle.data"], phase, PHASES, PHASES[-1])
    if waited := made.lines["idle.data"].total:
        phases.setdefault("data", dict.fromkeys(LINES, 0))["idle.data"] = waited
    names = tuple(name or NO_ANNOTATION for name in record.annotations)
    annotations = _table(
        [share for share in shares if share[0] != "idle.python"], device.annotation, names, NO_ANNOTATION
    )
    for name, ns in python_by_annotation(record, made).items():
        annotations.setdefault(name, dict.fromkeys(LINES, 0))["idle.python"] = ns
    return phases, annotations


def _device_shares(record: Record, made: Partition) -> Iterator[tuple[str, Codes, Ns]]:
    assert made.gaps is not None
    device, gaps = record.device, made.gaps
    for line, chosen in (("compute", device.kind == KERNEL), ("copy", device.kind > COMM)):
        rows = np.flatnonzero(chosen)
        yield line, rows, by_event(device.start[rows], device.stop[rows], made.lines[line])
    for line, ns in communication_shares(record, made.lines):
        yield line, record.communication.row, ns
    for line in LINES:
        if line not in BUSY_LINES:
            yield line, gaps.ender, made.lines[line].within(gaps.start, gaps.stop)


def _table(shares: list[tuple[str, Codes, Ns]], label: Codes, names: tuple[str, ...], unknown: str) -> dict[str, Lines]:
    found: dict[str, Lines] = {}
    for line, rows, ns in shares:
        codes = np.where(rows >= 0, label[rows], len(names)) if label.size else np.full(rows.size, len(names))
        sums = np.zeros(len(names) + 1, np.int64)
        np.add.at(sums, codes, ns)
        for name, total in zip((*names, unknown), sums.tolist(), strict=True):
            if total:
                lines = found.setdefault(name, dict.fromkeys(LINES, 0))
                lines[line] += total
    return found


def _by_thread(record: Record, made: Partition) -> tuple[dict[str, Lines], dict[str, Lines]]:
    phases, notes = thread_phases(record), annotations_on(record, record.training_lane)
    return (
        _stretches(made, *phases, PHASES[-1]),
        _stretches(made, notes[0], [name or NO_ANNOTATION for name in notes[1]], NO_ANNOTATION),
    )


def _stretches(made: Partition, until: Ns, names: list[str], after: str) -> dict[str, Lines]:
    found: dict[str, Lines] = {}
    for line in LINES:
        for name, ns in by_stretch(made.lines[line], until, names, after).items():
            if ns:
                found.setdefault(name, dict.fromkeys(LINES, 0))[line] = ns
    return found


def _longest(stretches: Stretches) -> dict[str, LongestStretch]:
    return {
        line: LongestStretch(int(ns.max()), int(events[int(ns.argmax())]))
        for line, events, ns in stretches
        if ns.size and int(ns.max()) > 0
    }


def _blocker(record: Record, made: Partition) -> int:
    gaps, span = made.gaps, made.lines["idle.sync"]
    if gaps is None or not len(span):
        return -1
    call = gaps.blocker[np.argmax(span.within(gaps.start, gaps.stop))]
    op = int(ops_around(record, np.array([call]))[0])
    return int(record.host.event[op if op >= 0 else call])


def _device_stretches(record: Record, shares: Shares) -> Stretches:
    for line, rows, ns in shares:
        yield line, np.where(rows >= 0, record.device.event[rows], -1), ns


def _thread_stretches(record: Record, made: Partition) -> Stretches:
    """Yield the stretches of a CPU rank: its idle time belongs to the op that follows it."""
    host = record.host
    ops = host.having(Trait.OP, [record.training_lane])
    ops = ops[np.argsort(host.start[ops], kind="stable")]
    events = np.concatenate((host.event[ops], [-1]))
    for line, ns in communication_shares(record, made.lines):
        yield line, record.communication.event, ns
    for line in IDLE_LINES:
        span = made.lines[line]
        yield line, events[np.searchsorted(host.start[ops], span.stop)], span.stop - span.start


LEDGER: Final = Question("ledger", RankLedger, account)
LEDGER_WITH_KERNELS: Final = Question("ledger_with_kernels", tuple[RankLedger, KernelSums], account_with_kernels)
QUESTIONS: Final = {question.name: question for question in (LEDGER, LEDGER_WITH_KERNELS)}

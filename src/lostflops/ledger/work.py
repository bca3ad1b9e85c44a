"""Which FLOPs a rank did in its window, and how long their kernels took.

An op whose FLOPs its recorded shapes tell is tied to the kernels launched inside it. Where such ops nest
(`aten::linear` calls `aten::addmm`), the inner one counts. What an optimizer multiplies is no work of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from lostflops.facts.flops import Work
from lostflops.facts.kernel_classes import CLASSES, uses_tensor_cores
from lostflops.ledger.nesting import Nest
from lostflops.ledger.partition import Partition
from lostflops.ledger.parts import in_optimizer
from lostflops.ledger.recompute import recomputed
from lostflops.ledger.record import Codes, Flags, Record, distinct
from lostflops.ledger.shares import by_event
from lostflops.ledger.windows import WindowKind

MATMUL_CLASSES: Final = ("matmul", "attention", "convolution")
_MATMUL_CODES: Final = tuple(CLASSES.index(name) for name in MATMUL_CLASSES)


@dataclass(frozen=True, slots=True)
class Effort:
    """One shape of one op; `again` when activation checkpointing did a forward op a second time."""

    op: str
    work: Work
    again: bool

    @property
    def model_flops(self) -> int:
        return 0 if self.again else self.work.model

    @property
    def flops(self) -> int:
        return self.work.model + self.work.recompute


@dataclass(slots=True)
class RankWork:
    """Count and time by effort. `matmul_ns` is all time of matmul-class kernels, `counted_ns` what of it has FLOPs,
    `tensor_ns` what of it ran on tensor cores and `plain_ns` what did not; of the rest names do not tell."""

    efforts: dict[Effort, tuple[int, int]] = field(default_factory=dict)
    matmul_ns: int = 0
    counted_ns: int = 0
    tensor_ns: int = 0
    plain_ns: int = 0

    def add(self, other: RankWork) -> None:
        for effort, (count, ns) in other.efforts.items():
            known, spent = self.efforts.get(effort, (0, 0))
            self.efforts[effort] = known + count, spent + ns
        self.matmul_ns += other.matmul_ns
        self.counted_ns += other.counted_ns
        self.tensor_ns += other.tensor_ns
        self.plain_ns += other.plain_ns


def rank_work(record: Record, made: Partition, classes: Codes) -> RankWork:
    return _on_device(record, made, classes) if record.on_device else _on_thread(record, made)


def _on_device(record: Record, made: Partition, classes: Codes) -> RankWork:
    device = record.device
    chosen = np.isin(classes, _MATMUL_CODES) & ~in_optimizer(record, np.arange(device.start.size))
    if made.window.kind is WindowKind.STEPS:
        launched_inside = np.isin(device.step, made.window.number)
    else:
        launched_inside = np.ones(device.start.size, np.bool_)
    rows = np.flatnonzero(chosen)
    ns = by_event(device.start[rows], device.stop[rows], made.lines["compute"])
    op = _ops_of(record, device.launch[rows])
    counted = (op >= 0) & launched_inside[rows]
    cores = _cores(record, device.name[rows])
    done = RankWork(
        matmul_ns=int(ns.sum()),
        counted_ns=int(ns[counted].sum()),
        tensor_ns=int(ns[cores == 1].sum()),
        plain_ns=int(ns[cores == 0].sum()),
    )
    on_cores = np.zeros(record.formulas.start.size, np.bool_)
    on_cores[op[counted & (cores == 1)]] = True
    spent = np.zeros(record.formulas.start.size, np.int64)
    np.add.at(spent, op[counted], ns[counted])
    _collect(record, done, np.unique(op[counted]), spent, on_cores)
    return done


def _on_thread(record: Record, made: Partition) -> RankWork:
    """On a CPU rank an op is its own kernel."""
    formulas = record.formulas
    rows = np.flatnonzero(_leaves(record) & (formulas.lane == record.training_lane))
    inside = made.window.inside.within(formulas.start[rows], formulas.start[rows] + 1) > 0
    rows = rows[inside]
    ns = by_event(formulas.start[rows], formulas.stop[rows], made.lines["compute"])
    spent = np.zeros(formulas.start.size, np.int64)
    spent[rows] = ns
    done = RankWork(matmul_ns=int(ns.sum()), counted_ns=int(ns.sum()))
    _collect(record, done, rows, spent, np.zeros(formulas.start.size, np.bool_))
    return done


def _collect(record: Record, done: RankWork, rows: Codes, spent: Codes, on_cores: Flags) -> None:
    formulas, again = record.formulas, recomputed(record)
    for row in rows.tolist():
        op, work = formulas.efforts[formulas.effort[row]]
        assert work is not None
        if work.dtype == "fp32" and on_cores[row]:
            work = Work(work.model, work.recompute, work.bytes, "tf32")
        effort = Effort(op, work, bool(again[row]))
        count, ns = done.efforts.get(effort, (0, 0))
        done.efforts[effort] = count + 1, ns + int(spent[row])


def _leaves(record: Record) -> Flags:
    """Ops with known FLOPs that call no other such op."""
    formulas = record.formulas
    known = np.array([work is not None for _, work in formulas.efforts], np.bool_)
    leaves = known[formulas.effort] if known.size else np.zeros(formulas.start.size, np.bool_)
    for lane in distinct(formulas.lane):
        rows = np.flatnonzero(leaves & (formulas.lane == lane))
        around = Nest(formulas.start[rows], formulas.stop[rows]).parents()
        leaves[rows[around[around >= 0]]] = False
    return leaves


def _ops_of(record: Record, calls: Codes) -> Codes:
    """Row of the op with known FLOPs around each call, -1 where there is none."""
    formulas, host, leaves = record.formulas, record.host, _leaves(record)
    found = np.full(calls.size, -1, np.int64)
    if not host.lane.size:
        return found
    lanes = np.where(calls >= 0, host.lane[calls], -1)
    for lane in distinct(formulas.lane):
        rows = np.flatnonzero(leaves & (formulas.lane == lane))
        own = np.flatnonzero(lanes == lane)
        inner = Nest(formulas.start[rows], formulas.stop[rows]).innermost(host.start[calls[own]])
        found[own[inner >= 0]] = rows[inner[inner >= 0]]
    return found


def _cores(record: Record, names: Codes) -> Codes:
    """1 on tensor cores, 0 not, -1 where the kernel's name does not tell."""
    found, which = np.unique(names, return_inverse=True)
    told = [_told(uses_tensor_cores(record.names[code])) for code in found.tolist()]
    return np.array(told, np.int64)[which] if told else names


def _told(answer: bool | None) -> int:
    return -1 if answer is None else int(answer)

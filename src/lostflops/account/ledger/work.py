"""FLOPs that a rank did in its window, and the time of their kernels.

An op with FLOPs known from its recorded shapes is tied to the kernels launched inside it. If such ops nest
(`aten::linear` calls `aten::addmm`), the inner one counts. Products in an optimizer are not work of the model. A device
may still run a step when work launched ahead begins the next: an op counts by the part that ran in the window,
whichever step launched it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.facts.flops import CallWork
from lostflops.account.facts.kernel_classes import CLASSES, op_class, rounds_to_tf32, uses_tensor_cores
from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.nesting import Nest
from lostflops.account.ledger.partition import Partition
from lostflops.account.ledger.parts import in_optimizer
from lostflops.account.ledger.recompute import flag_recomputed_ops
from lostflops.account.ledger.record import Codes, Flags, Record
from lostflops.account.ledger.shares import by_event
from lostflops.account.ledger.windows import LedgerWindow, WindowKind
from lostflops.store.intervals import Intervals
from lostflops.store.row_groups import group_rows

MATMUL_CLASSES: Final = ("matmul", "attention", "convolution")
_MATMUL_CODES: Final = tuple(CLASSES.index(name) for name in MATMUL_CLASSES)


@dataclass(frozen=True, slots=True)
class Effort:
    """One shape of one op."""

    op: str
    work: CallWork
    again: bool
    """Whether activation checkpointing did a forward op a second time."""

    @property
    def model_flops(self) -> int:
        return 0 if self.again else self.work.model

    @property
    def flops(self) -> int:
        return self.work.model + self.work.recompute


@dataclass(slots=True, kw_only=True)
class RankWork:
    """Work of a rank in its window."""

    efforts: dict[Effort, tuple[float, int]] = field(default_factory=dict)
    """Count and time by effort; an op that the window cuts counts in part."""
    launched_flops: int = 0
    """FLOPs of whole ops that the steps of the window launched."""
    matmul_ns: int = 0
    """Time of all matmul-class kernels."""
    counted_ns: int = 0
    """Part of `matmul_ns` with known FLOPs."""
    tensor_ns: int = 0
    """Part of `matmul_ns` on tensor cores."""
    plain_ns: int = 0
    """Part of `matmul_ns` not on tensor cores; for the rest, names of kernels do not show it."""

    def add(self, other: RankWork) -> None:
        for effort, (count, ns) in other.efforts.items():
            known, spent = self.efforts.get(effort, (0.0, 0))
            self.efforts[effort] = known + count, spent + ns
        self.launched_flops += other.launched_flops
        self.matmul_ns += other.matmul_ns
        self.counted_ns += other.counted_ns
        self.tensor_ns += other.tensor_ns
        self.plain_ns += other.plain_ns


def rank_work(record: Record, made: Partition, classes: Codes) -> RankWork:
    return _on_device(record, made, classes) if record.on_device else _on_thread(record, made)


def _on_device(record: Record, made: Partition, classes: Codes) -> RankWork:
    device = record.device
    rows = np.flatnonzero(np.isin(classes, _MATMUL_CODES) & ~in_optimizer(record, np.arange(device.start.size)))
    ns = by_event(device.start[rows], device.stop[rows], made.lines["compute"])
    op = _ops_of(record, device.launch[rows])
    counted = op >= 0
    cores, tf32 = _by_kernel(record, device.name[rows])
    done = RankWork(
        launched_flops=_flops(record, np.unique(op[counted & _is_launched(made.window, device.step[rows])])),
        matmul_ns=int(ns.sum()),
        counted_ns=int(ns[counted].sum()),
        tensor_ns=int(ns[cores == 1].sum()),
        plain_ns=int(ns[cores == 0].sum()),
    )
    rounded = np.zeros(record.formulas.start.size, np.bool_)
    rounded[op[counted & tf32]] = True
    spent = np.zeros(record.formulas.start.size, np.int64)
    np.add.at(spent, op[counted], ns[counted])
    part = _part_inside(record, made.window.inside, op[counted], rows[counted])
    _collect(record, done, part, spent, rounded)
    return done


def _is_launched(window: LedgerWindow, step: Codes) -> Flags:
    return np.isin(step, window.number) if window.kind is WindowKind.STEPS else np.ones(step.size, np.bool_)


def _flops(record: Record, rows: Codes) -> int:
    formulas = record.formulas
    counts = np.bincount(formulas.effort[rows], minlength=len(formulas.efforts)).tolist()
    works = zip(formulas.efforts, counts, strict=True)
    return sum(Effort(op, work, again=False).flops * count for (op, work), count in works if work is not None)


def _part_inside(record: Record, inside: Intervals, op: Codes, rows: Codes) -> npt.NDArray[np.float64]:
    """Return for each op the part of its kernels' time that is in the window."""
    start, size = record.device.start[rows], record.formulas.start.size
    stop = np.maximum(record.device.stop[rows], start + 1)
    ran = np.bincount(op, inside.within(start, stop), size)
    whole = np.bincount(op, stop - start, size)
    return np.divide(ran, whole, out=np.zeros(size), where=whole > 0)


def _on_thread(record: Record, made: Partition) -> RankWork:
    """Return the work of a CPU rank, on which an op is its own kernel.

    Matmul-class time is that of all ops of these classes, and has FLOPs if an op with known FLOPs starts in it.
    """
    host, formulas, compute = record.host, record.formulas, made.lines["compute"]
    model = compute - host.spans(Trait.OPTIMIZER)
    leaves = np.flatnonzero(_leaves(record) & (formulas.lane == record.training_lane))
    leaves = leaves[model.within(formulas.start[leaves], formulas.start[leaves] + 1) > 0]
    ops = host.computing(record.training_lane)
    matmul = np.array([op_class(name) in MATMUL_CLASSES for name in record.names], np.bool_)
    ops = ops[matmul[host.name[ops]]]
    first, last = (np.searchsorted(np.sort(formulas.start[leaves]), edge[ops]) for edge in (host.start, host.stop))
    told = ops[first < last]
    spent = np.zeros(formulas.start.size, np.int64)
    spent[leaves] = by_event(formulas.start[leaves], formulas.stop[leaves], model)
    done = RankWork(
        launched_flops=_flops(record, leaves),
        matmul_ns=(Intervals.of(host.start[ops], host.stop[ops]) & model).total,
        counted_ns=(Intervals.of(host.start[told], host.stop[told]) & model).total,
    )
    part = np.zeros(formulas.start.size)
    part[leaves] = 1
    _collect(record, done, part, spent, np.zeros(formulas.start.size, np.bool_))
    return done


def _collect(record: Record, done: RankWork, part: npt.NDArray[np.float64], spent: Codes, rounded: Flags) -> None:
    """Add up efforts of the same op, shape and kind of pass; `part` of each op counts."""
    formulas, rows = record.formulas, np.flatnonzero(part)
    key = formulas.effort[rows] * 4 + flag_recomputed_ops(record)[rows] * 2 + rounded[rows]
    found, which = np.unique(key, return_inverse=True)
    counts = np.bincount(which, part[rows], found.size)
    times = np.zeros(found.size, np.int64)
    np.add.at(times, which, spent[rows])
    for code, count, ns in zip(found.tolist(), counts.tolist(), times.tolist(), strict=True):
        op, work = formulas.efforts[code // 4]
        assert work is not None
        if work.dtype == "fp32" and code % 2:
            work = replace(work, dtype="tf32")
        effort = Effort(op, work, bool(code // 2 % 2))
        known, before = done.efforts.get(effort, (0.0, 0))
        done.efforts[effort] = known + count, before + ns


def _leaves(record: Record) -> Flags:
    """Return which ops have known FLOPs and call no other such op."""
    formulas = record.formulas
    known = np.array([work is not None for _, work in formulas.efforts], np.bool_)
    leaves = known[formulas.effort] if known.size else np.zeros(formulas.start.size, np.bool_)
    for _, own in group_rows(formulas.lane):
        rows = own[leaves[own]]
        around = Nest(formulas.start[rows], formulas.stop[rows]).parents()
        leaves[rows[around[around >= 0]]] = False
    return leaves


def _ops_of(record: Record, calls: Codes) -> Codes:
    """Return the row of the op with known FLOPs around each call, or -1."""
    formulas, host, leaves = record.formulas, record.host, _leaves(record)
    found = np.full(calls.size, -1, np.int64)
    if not host.lane.size:
        return found
    lanes = np.where(calls >= 0, host.lane[calls], -1)
    by_lane = dict(group_rows(formulas.lane))
    for lane, own in group_rows(lanes):
        if lane not in by_lane:
            continue
        rows = by_lane[lane][leaves[by_lane[lane]]]
        inner = Nest(formulas.start[rows], formulas.stop[rows]).innermost(host.start[calls[own]])
        found[own[inner >= 0]] = rows[inner[inner >= 0]]
    return found


def _by_kernel(record: Record, names: Codes) -> tuple[Codes, Flags]:
    """Return 1 on tensor cores, 0 if not, -1 if the kernel's name does not show it; and if it rounds fp32 to tf32."""
    found, which = np.unique(names, return_inverse=True)
    kernels = [record.names[code] for code in found.tolist()]
    cores = np.array([_encode_answer(uses_tensor_cores(kernel)) for kernel in kernels], np.int64)
    tf32 = np.array([rounds_to_tf32(kernel) for kernel in kernels], np.bool_)
    return cores[which], tf32[which]


def _encode_answer(answer: bool | None) -> int:
    return -1 if answer is None else int(answer)

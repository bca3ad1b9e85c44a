"""What one recorded step of a rank without an accelerator would launch on one.

Ops nest: the innermost ones that compute are kernels, but a product with a formula counts as a whole, whatever a CPU
library does inside it. Optimizers work on lists of tensors on an accelerator, so their ops of one name become one
kernel. Ops of a data loader stay on the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lostflops.account.facts.flops import FORMULAS
from lostflops.account.ledger.work import MATMUL_CLASSES
from lostflops.predict.costs.kernels.model import KernelWork
from lostflops.predict.elsewhere.op_kernels import kernel_of_op

if TYPE_CHECKING:
    from lostflops.predict.graph.tasks import StepEdges
    from lostflops.store.run import Run

_OPS: Final = """
    select lane, name, start, dur, shapes, dtypes, inputs, coalesce(annotation, '') from events
    where rank = {rank} and kind = 'op' and {within} order by lane, start, dur desc, event"""
_OPTIMIZER: Final = "Optimizer.step"
_LOADER: Final = "enumerate(DataLoader)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOps:
    """Kernels of one step of a rank."""

    rank: int
    step: int
    kernels: Counter[KernelWork]
    launches: int
    known_ns: int
    """Time on the CPU of ops that became kernels."""
    unknown_ns: int
    """Time on the CPU of other ops: it is not known what they would do on an accelerator."""

    @property
    def unknown_share(self) -> float:
        whole = self.known_ns + self.unknown_ns
        return self.unknown_ns / whole if whole else 1.0


@dataclass(slots=True)
class _Op:
    name: str
    stop: int
    ns: int
    work: KernelWork | None
    in_optimizer: bool
    inner: list[_Op]


def median_step(steps: StepEdges) -> int:
    """Return the number of the replayed step whose time is in the middle."""
    numbers, place = np.unique(steps.number, return_inverse=True)
    times = np.bincount(place, steps.measured) / np.bincount(place)
    return int(numbers[np.argsort(times)[(times.size - 1) // 2]])


def read_step_ops(run: Run, rank: int, step: int) -> StepOps:
    """Read the ops of a step, or all of a rank if the run has no steps."""
    has_steps = run.rows(f"select 1 from steps where rank = {rank} limit 1")
    within = f"step = {step}" if has_steps else "true"
    kernels, merged = Counter[KernelWork](), dict[tuple[str, str], KernelWork]()
    launches = known = unknown = 0
    for root in _roots(run.rows(_OPS.format(rank=rank, within=within))):
        for op in _innermost(root):
            if op.work is None:
                unknown += op.ns
                continue
            known += op.ns
            if op.in_optimizer and op.work.kind not in MATMUL_CLASSES:
                key = op.name, op.work.dtype
                before = merged.get(key)
                merged[key] = op.work if before is None else _join(before, op.work)
            else:
                kernels[op.work] += 1
                launches += 1
    kernels.update(merged.values())
    launches += len(merged)
    return StepOps(rank=rank, step=step, kernels=kernels, launches=launches, known_ns=known, unknown_ns=unknown)


def _join(one: KernelWork, other: KernelWork) -> KernelWork:
    return replace(one, flops=one.flops + other.flops, bytes=one.bytes + other.bytes)


def _roots(rows: Sequence[tuple[Any, ...]]) -> Iterator[_Op]:
    """Yield the outermost ops of each lane with those inside them, except those of a data loader."""
    open_ops: list[_Op] = []
    lane_before: int | None = None
    root: _Op | None = None
    for lane, name, start, ns, shapes, dtypes, inputs, annotation in rows:
        if annotation.startswith(_LOADER):
            continue
        if lane != lane_before:
            open_ops, lane_before = [], lane
        while open_ops and open_ops[-1].stop <= start:
            open_ops.pop()
        op = _Op(
            name, start + ns, ns, kernel_of_op(name, shapes, dtypes, inputs), annotation.startswith(_OPTIMIZER), []
        )
        if open_ops:
            open_ops[-1].inner.append(op)
        else:
            if root is not None:
                yield root
            root = op
        open_ops.append(op)
    if root is not None:
        yield root


def _innermost(op: _Op) -> list[_Op]:
    """Return the innermost ops of an op that are kernels, or those of which it is not known whether they are."""
    inner = [found for one in op.inner for found in _innermost(one)]
    kernels = [one for one in inner if one.work is not None]
    if op.name in FORMULAS and op.work is not None and not any(one.name in FORMULAS for one in kernels):
        return [op]
    if kernels or op.work is None:
        return inner or [op]
    return [op]

"""The optimizer updates parameters one by one, in many small kernels or ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.work import MATMUL_CLASSES
from lostflops.collect.capture import OPTIMIZER
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.computed_ranks import Computed, read_computed_ranks
from lostflops.explain.advise.signs.job_facts import job_facts

if TYPE_CHECKING:
    from lostflops.account.ledger.pieces import ComputePiece
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Place

_LEAST: Final = 0.05
"""The update matters if it takes at least this share of the wall time."""
_MANY: Final = 40
"""An update of at least this many kernels or ops per step has many: a fused optimizer has one per few hundred
tensors."""
_SMALL: Final = {True: 20_000, False: 60_000}
"""A kernel (True) or op (False) with a shorter mean time, in ns, is mostly launch or call overhead."""
_LARGE: Final = 0.2
"""From this share of the wall time on, the update is reported even if its kernels are long."""
_SOME: Final = 0.1
_CHANGE: Final = "optimizer=fused"
_FUSED: Final = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
"""Classes of optimizers in torch that have a fused form."""
_LINES: Final = ("compute", "idle.host", "idle.python", "idle.dependency")
_BYTES_KEPT: Final = 7 / 20
"""Fused Adam moves this part of the bytes that are moved op by op; see the what-if."""


def _find(case: Case) -> Iterator[Claim]:
    kinds = {one.get("type") for ones in job_facts(case, OPTIMIZER).values() for one in ones if isinstance(one, dict)}
    if kinds and not kinds & _FUSED:
        return  # no other optimizer of torch has a fused form
    ranks = [one for one in read_computed_ranks(case) if _is_unfused(one)]
    phase = case.total.phases.get("optimizer", Counter())
    spent = sum(phase[line] for line in _LINES)
    if not ranks or not case.wall or spent < _LEAST * case.wall:
        return
    first = ranks[0]
    updates = _updates(first)
    count, ns = sum(one.count for one in updates), sum(one.ns for one in updates)
    mean, share = ns / count, spent / case.wall
    is_small = mean < _SMALL[first.record.on_device]
    if not is_small and share < _LARGE:
        return
    kind = "kernels" if first.record.on_device else "ops"
    largest = sorted(updates, key=lambda one: -one.ns)[:3]
    names = ", ".join(one.op or one.name for one in largest)
    each = count / first.steps
    taken = _attribute_optimizer_time(case, {line: phase[line] for line in _LINES}, first.record.on_device)
    yield Claim(
        cause="optimizer",
        what=(
            f"The optimizer takes {format_share(share)} of the time of all ranks, in {each:,.0f} {kind} per step of "
            f"{format_ns(round(mean))} each."
        ),
        taken=taken,
        evidence=(
            Evidence(
                f"rank {first.rank} runs {each:,.0f} {kind} per step inside Optimizer.step, mostly {names}",
                events=tuple((first.rank, one.event) for one in largest),
                ranks=tuple(one.rank for one in ranks),
                steps=first.made.window.number,
            ),
        ),
        strength=Strength.STRONG if is_small else Strength.FAIR,
        certain_if="record a few steps with fused=True: Optimizer.step must run only a few kernels or ops.",
        fix=_fix(first.record.on_device),
        changes=(_CHANGE,),
    )


def _updates(one: Computed) -> list[ComputePiece]:
    return [piece for piece in one.pieces if piece.phase == "optimizer"]


def _is_unfused(one: Computed) -> bool:
    """Return whether the update has many pieces that are not fused; optimizers with matrix products have no fused
    form."""
    updates = _updates(one)
    whole = sum(piece.ns for piece in updates)
    fused = sum(piece.ns for piece in updates if "fused" in f"{piece.name} {piece.op}".casefold())
    products = sum(piece.ns for piece in updates if piece.kernel_class in MATMUL_CLASSES)
    many = sum(piece.count for piece in updates) >= _MANY * one.steps
    return many and fused < whole / 2 and products < _SOME * whole


def _attribute_optimizer_time(case: Case, spent: dict[str, int], on_device: bool) -> dict[Place, int]:
    """Attribute all time except that of one pass over the parameters, on each rank by its share of the line."""
    needed = _BYTES_KEPT if on_device else 0.0
    excess = {line: ns * (1 - needed) if line == "compute" else ns for line, ns in spent.items()}
    return {
        (rank, line): round(lines[line] * excess[line] / case.total.lines[line])
        for rank, lines in case.lines.items()
        for line in _LINES
        if lines[line] and excess[line]
    }


def _fix(on_device: bool) -> str:
    other = "use foreach=True" if on_device else "accumulate gradients over several batches"
    since = "" if on_device else " (on CPUs since PyTorch 2.4)"
    return (
        f"Use torch.optim.AdamW(model.parameters(), ..., fused=True){since}; Adam, SGD and Adagrad have it too. If the "
        f"optimizer has no fused form, {other}. Replace loops over parameters with torch._foreach_mul_, "
        "torch._foreach_add_ etc. on lists of tensors."
    )


RULE: Final = Rule(
    cause="optimizer",
    about=(
        "After each backward pass the optimizer updates every parameter. Tensor by tensor and op by op, that is "
        "thousands of small ops per step, and each costs a call or launch and reads its tensors again. A fused "
        "optimizer updates all parameters in a few kernels."
    ),
    find=_find,
)

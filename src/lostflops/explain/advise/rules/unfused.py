"""Chains of elementwise kernels read and write their tensors again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.facts.kernel_classes import CLASSES
from lostflops.account.facts.kernel_names import short
from lostflops.account.ledger.lines import HOST_LINES
from lostflops.account.ledger.parts import in_optimizer, kernel_classes, launching_ops
from lostflops.account.ledger.shares import by_event
from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.compiled import advise_compiling
from lostflops.explain.advise.signs.computed_ranks import (
    attribute_line_share,
    on_device,
    read_computed_ranks,
    shapes_of,
)

if TYPE_CHECKING:
    from lostflops.account.ledger.record import Codes, Flags, Ns, Record
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.computed_ranks import Computed

_POINTWISE: Final = tuple(CLASSES.index(name) for name in ("elementwise", "normalisation", "copy-cast"))
_LEAST: Final = 0.15
"""Chains must take at least this share of compute."""
_SHORTEST: Final = 3
"""A chain has at least this many kernels."""
_LONGEST: Final = 12
"""A chain of more kernels counts as several: longer ones are rarely one expression."""
_BUSY: Final = 0.8
"""More than this part of the wall time must be free of idle time due to the host: otherwise kernels do not limit the
step."""
_MOST_OPS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chains:
    """Chains of one rank; a row is a chain."""

    one: Computed
    rows: Codes
    first: Codes
    """Its first place in `rows`."""
    last: Codes
    """The place after its last one in `rows`."""
    ns: Ns
    """Its time."""
    longest: Ns
    """Time of its longest kernel."""

    @property
    def usually_saved(self) -> int:
        """Time that fusing saves if a fused kernel takes as long as the longest: it reads and writes tensors once."""
        return int((self.ns - self.longest).sum())


def _find(case: Case) -> Iterator[Claim]:
    found = [_chains(one) for one in read_computed_ranks(case) if one.record.on_device]
    compute = sum(own.one.compute for own in found)
    if not compute or sum(int(own.ns.sum()) for own in found) < _LEAST * compute:
        return
    ranks = on_device(case)
    part = _compute_share(case, ranks)
    saved = sum(own.usually_saved for own in found) / compute
    idle = sum(case.total.lines[line] for line in HOST_LINES) / case.wall
    worst = max(found, key=lambda own: own.ns.sum())
    spent = sum(int(own.ns.sum()) for own in found) / compute * part
    count = sum(int((own.last - own.first).sum()) for own in found) / sum(own.one.steps for own in found)
    yield Claim(
        cause="unfused",
        what=(
            f"Unfused elementwise kernels take {format_share(spent)} of the time of all ranks ({count:,.0f} kernels"
            f"{' per step' if case.total.steps else ' per rank'})."
        ),
        taken=attribute_line_share(case, "compute", saved, ranks),
        evidence=tuple(_evidence(worst)),
        strength=Strength.STRONG if idle < 1 - _BUSY else Strength.FAIR,
        certain_if="record with these kernels compiled, after the first steps: they must be fused.",
        fix=_fix(case),
        saving=Estimate.bound(spent, "the time of these kernels"),
    )


def _fix(case: Case) -> str:
    compiling = advise_compiling(case, "Use torch.compile(model), or compile only the modules with these kernels.")
    return (
        f"{compiling} Or call F.gelu, F.layer_norm, F.rms_norm, F.scaled_dot_product_attention and F.cross_entropy "
        "instead of writing out their formulas."
    )


def _compute_share(case: Case, ranks: list[int]) -> float:
    return sum(case.lines[rank]["compute"] for rank in ranks) / case.wall


def _chains(one: Computed) -> _Chains:
    """Find kernels that follow each other on a stream, without another kind of kernel between them. Inductor's kernels
    are fused already."""
    record = one.record
    device, classes = record.device, kernel_classes(record)
    rows = np.flatnonzero((classes >= 0) & (one.made.window.inside.within(device.start, device.start + 1) > 0))
    rows = rows[np.lexsort((device.start[rows], device.lane[rows]))]
    is_open = np.isin(classes[rows], _POINTWISE) & ~in_optimizer(record, rows) & ~_is_compiled(record, rows)
    ns = np.where(is_open, by_event(device.start[rows], device.stop[rows], one.made.lines["compute"]), 0)
    begins = _split_long_chains(is_open & ~_follows(is_open, device.lane[rows], device.step[rows]), is_open)
    number = np.cumsum(begins) - 1
    chosen = np.flatnonzero(is_open)
    count = int(begins.sum())
    total, longest = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(total, number[chosen], ns[chosen])
    np.maximum.at(longest, number[chosen], ns[chosen])
    length = np.bincount(number[chosen], minlength=count)
    first = np.flatnonzero(begins)
    kept = length >= _SHORTEST
    return _Chains(
        one=one, rows=rows, first=first[kept], last=(first + length)[kept], ns=total[kept], longest=longest[kept]
    )


def _follows(is_open: Flags, lane: Codes, step: Codes) -> Flags:
    """Return for each kernel whether the one before it is in the same chain."""
    found = np.zeros(is_open.size, np.bool_)
    found[1:] = is_open[:-1] & (lane[1:] == lane[:-1]) & (step[1:] == step[:-1])
    return found


def _split_long_chains(begins: Flags, is_open: Flags) -> Flags:
    """Return where chains begin if none may have more than `_LONGEST` kernels."""
    place = np.arange(begins.size)
    since = place - np.maximum.accumulate(np.where(begins, place, 0))
    found: Flags = begins | (is_open & (since % _LONGEST == 0) & (np.cumsum(begins) > 0))
    return found


def _is_compiled(record: Record, rows: Codes) -> Flags:
    fused = np.array([name.startswith(("triton_", "CompiledFunction")) for name in (*record.names, "")], np.bool_)
    found: Flags = fused[record.device.name[rows]] | fused[launching_ops(record, rows)]
    return found


def _evidence(own: _Chains) -> Iterator[Evidence]:
    """Yield the chains that take the most time, grouped by their ops."""
    record = own.one.record
    device = record.device
    alike: dict[tuple[str, ...], list[int]] = {}
    for chain in np.argsort(-own.ns)[:200].tolist():
        rows = own.rows[own.first[chain] : own.last[chain]]
        codes = zip(launching_ops(record, rows).tolist(), device.name[rows].tolist(), strict=True)
        ops = tuple(record.names[op] if op >= 0 else short(record.names[kernel]) for op, kernel in codes)
        alike.setdefault(ops, []).append(chain)
    largest = sorted(alike.items(), key=lambda item: -sum(int(own.ns[chain]) for chain in item[1]))[:2]
    shown = {piece.event: piece for piece in own.one.pieces}
    for ops, chains in largest:
        rows = own.rows[own.first[chains[0]] : own.last[chains[0]]]
        spent = sum(int(own.ns[chain]) for chain in chains)
        more = f" and {len(ops) - _MOST_OPS} more" if len(ops) > _MOST_OPS else ""
        shape = next((shapes_of(shown[event]) for event in device.event[rows].tolist() if event in shown), "")
        yield Evidence(
            f"{', '.join(op.removeprefix('aten::') for op in ops[:_MOST_OPS])}{more} in a row take {format_ns(spent)} "
            f"on rank {own.one.rank}" + (f" (for example {shape})" if shape else ""),
            events=tuple((own.one.rank, event) for event in device.event[rows].tolist()[:_MOST_OPS]),
            ranks=(own.one.rank,),
            steps=tuple(sorted(set(device.step[rows].tolist()) - {-1})),
        )


RULE: Final = Rule(
    cause="unfused",
    about=(
        "An elementwise op (add, multiply, parts of a norm, an activation) does almost no arithmetic: it spends its "
        "time reading and writing tensors. A chain of such ops reads and writes memory in every op; fused into one "
        "kernel, it does so once."
    ),
    find=_find,
)

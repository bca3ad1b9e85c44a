"""Devices idle because hosts dispatch ops and launch kernels too slowly (launch overhead)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs import spread
from lostflops.explain.advise.signs.compiled import advise_compiling
from lostflops.explain.advise.signs.python_share import LINE, in_long_stretches

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_LINE: Final = "idle.host"
_SMALLEST: Final = 0.05
_SHORT: Final = 20_000
"""The host cannot run ahead of kernels that take at most this time, in ns: launching a kernel takes about as long."""
_COMPILE: Final = 'Use torch.compile(model, mode="reduce-overhead"), which replays the step as a CUDA graph.'
_CHANGE: Final = "launch=free"
_OWN_COMMUNICATION: Final = "host communication"
_KERNELS: Final = "select coalesce(median(dur), 0)::bigint, count(*) from events where kind = 'kernel' and rank in ({})"


def _find(case: Case) -> Iterator[Claim]:
    ranks = [rank for rank in case.lines if rank not in case.total.on_thread]
    share = spread.share(case, _LINE)
    parts = case.total.parts.get(_LINE, Counter())
    dispatch = 1 - parts.get(_OWN_COMMUNICATION, 0) / (case.total.lines[_LINE] or 1)
    if len(ranks) < len(case.lines) or share * dispatch < _SMALLEST:
        return
    ((typical, kernels),) = case.run.rows(_KERNELS.format(", ".join(map(str, ranks))))
    taken = spread.attribute_line(case, _LINE, dispatch) | spread.attribute_line(
        case, LINE, 1 - in_long_stretches(case)
    )
    is_short = typical <= _SHORT
    yield Claim(
        cause="host_bound",
        what=f"Devices idle for {format_share(share * dispatch)} of the time while hosts dispatch ops (host-bound).",
        taken=taken,
        evidence=tuple(_evidence(case, typical, kernels)),
        strength=Strength.STRONG if is_short else Strength.FAIR,
        certain_if="double the batch per device: the step must hardly get longer.",
        fix=_fix(case),
        changes=(_CHANGE,),
    )


def _fix(case: Case) -> str:
    compiling = advise_compiling(case, _COMPILE, graphs=True)
    return f"{compiling} Or use fewer, larger ops (fused or foreach optimizer) or a larger batch per device."


def _evidence(case: Case, typical: int, kernels: int) -> Iterator[Evidence]:
    total = case.total
    ns, rank, event = total.longest.get(_LINE, (0, -1, -1))
    made_of = ", ".join(
        f"{name} {format_share(part / total.lines[_LINE])}"
        for name, part in total.parts.get(_LINE, Counter()).items()
        if part / total.lines[_LINE] >= 0.01
    )
    shares = [one.lines[_LINE] / (one.wall or 1) for one in total.ranks]
    yield Evidence(
        f"idle.host is {format_share(min(shares))} to {format_share(max(shares))} of a rank's time ({made_of}); the "
        f"longest gap is {format_ns(ns)} on rank {rank}",
        events=((rank, event),) if event >= 0 else (),
        ranks=tuple(case.lines),
        steps=tuple(sorted(total.steps)),
    )
    per_step = f" ({total.kernels / total.step_count:,.0f} per step)" if total.step_count else ""
    yield Evidence(f"the median of {pluralise(kernels, 'kernel')}{per_step} takes {format_ns(typical)}")


RULE: Final = Rule(
    cause="host_bound",
    about=(
        "A device runs the kernels that its host launches. If kernels are so short that the host needs longer to "
        "dispatch the next op than the device needs to run it, the device waits for the host. Many small ops cause "
        "this: small batches, small layers, optimizers that loop over parameters."
    ),
    find=_find,
)

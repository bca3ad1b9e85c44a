"""All ranks get slower over time, in all parts of the step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share
from lostflops.explain.advise.claim import Claim, Place
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.extra_time import saving_of_first_steps
from lostflops.explain.advise.signs.series import (
    MORE,
    SAME_WORK,
    STEADY,
    Values,
    does_more,
    growing_phase,
    measure_growth,
    series,
)
from lostflops.explain.advise.signs.step_lines import collect_traced_steps

if TYPE_CHECKING:
    import numpy.typing as npt

    from lostflops.explain.advise.case import Case

_FEWEST: Final = 20
"""At least this many normal steps are needed."""
_FEWEST_TRACED: Final = 6
"""At least this many steps are needed if there is only a trace."""
_STEADY_TRACED: Final = 0.8
"""In a trace, Kendall's tau must be at least this: few steps may rise by chance."""
_NEARLY_ALL: Final = 0.9
_SHARED: Final = "Other work on the hosts would slow steps down in the same way; host load was not recorded."


_CONFIRM: Final = (
    "watch the clocks during a run (nvidia-smi -q -d PERFORMANCE,CLOCK): they must fall as steps get longer."
)
_FIX: Final = (
    "Find the reason (power or temperature) with nvidia-smi -q -d PERFORMANCE. Improve cooling, raise the power cap "
    "(nvidia-smi -pl WATTS), or lock clocks that the machine can hold (nvidia-smi -lgc MIN,MAX)."
)
_CONFIRM_ON_HOSTS: Final = (
    "watch load and clocks during a run (top, turbostat). If load rises, other work is the cause; if clocks fall, "
    "heat or power."
)
_FIX_ON_HOSTS: Final = "Stop other work on the hosts, or give the job its own cores. Cool hosts with falling clocks."


@dataclass(frozen=True, slots=True, kw_only=True)
class _KernelSteps:
    """Steps in order, with their work."""

    ranks: tuple[int, ...]
    step: npt.NDArray[np.int64]
    ns: Values
    """Time of each step."""
    work: Values
    """Time by step and rank of work in which no rank waits for others."""
    what: str
    """Name of this work."""
    steady: float
    """Smallest Kendall's tau of a rise."""
    taken: Mapping[Place, int]


def _find(case: Case) -> Iterator[Claim]:
    steps = _select_timed_steps(case) if case.timed_steps is not None else _select_traced_steps(case)
    if steps is None:
        return
    by_rank = [measure_growth(steps.work[:, at]) for at in range(len(steps.ranks))]
    slower = [ratio >= MORE and steady >= steps.steady for ratio, steady in by_rank]
    whole, steady = measure_growth(steps.ns)
    if np.mean(slower) < _NEARLY_ALL or whole < MORE or steady < steps.steady:
        return
    third = steps.ns.size // 3
    first, last = (round(float(np.median(part))) for part in (steps.ns[:third], steps.ns[-third:]))
    least = min(ratio for (ratio, _), is_slower in zip(by_rank, slower, strict=True) if is_slower)
    on_hosts = bool(case.total.on_thread) or not case.run.rows("select 1 from ranks where device is not null")
    yield Claim(
        cause="throttling",
        what=f"All ranks get slower: steps in the last third take {format_share(whole - 1)} longer than in the first.",
        taken=steps.taken,
        evidence=(
            Evidence(
                f"The median step rises from {format_ns(first)} to {format_ns(last)} over {steps.step.size:,} steps "
                f"(Kendall's tau {steady:.2f}), and {steps.what} gets at least {least:.2f}x as long on "
                f"{sum(slower):,} of {len(slower):,} ranks.",
                ranks=steps.ranks,
                steps=(int(steps.step[0]), int(steps.step[-1])),
            ),
        ),
        strength=Strength.WEAK if on_hosts else Strength.FAIR,
        certain_if=_CONFIRM_ON_HOSTS if on_hosts else _CONFIRM,
        fix=_FIX_ON_HOSTS if on_hosts else _FIX,
        saving=saving_of_first_steps(steps.ns),
        suspected=_SHARED if on_hosts else "",
    )


def _select_timed_steps(case: Case) -> _KernelSteps | None:
    timed = series(case)
    rows = np.flatnonzero(timed.settled)
    work = timed.column("coalesce(device_forward, forward)")[rows]
    if rows.size < _FEWEST or not np.isfinite(work).all() or does_more(timed, rows) or growing_phase(timed, rows):
        return None
    return _KernelSteps(
        ranks=timed.ranks,
        step=timed.step[rows],
        ns=timed.ns[rows],
        work=work,
        what="the forward pass",
        steady=STEADY,
        taken={},
    )


def _select_traced_steps(case: Case) -> _KernelSteps | None:
    """Return the steps of the trace; None unless all steps run about as many kernels, or ops: otherwise the work
    grows."""
    shown = collect_traced_steps(case)
    if shown is None or shown.step.size < _FEWEST_TRACED:
        return None
    for one in case.profiles:
        if np.ptp(one.pieces) > SAME_WORK * max(float(one.pieces.mean()), 1.0):
            return None
    third = shown.step.size // 3
    usual = np.median(shown.lines[:, :third], axis=1)
    taken = shown.beyond(usual, lambda line: line == "compute")
    return _KernelSteps(
        ranks=shown.ranks,
        step=shown.step,
        ns=shown.ns,
        work=shown.line("compute").T,
        what="computing",
        steady=_STEADY_TRACED,
        taken=taken,
    )


RULE: Final = Rule(
    cause="throttling",
    about=(
        "Devices that get hot or exceed their power limit lower their clocks: the same work takes longer and longer, "
        "on all ranks and in all parts of the step. A host that is increasingly used by other jobs looks the same, so "
        "on CPUs this is only suspected."
    ),
    find=_find,
)

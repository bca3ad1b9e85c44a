"""torch.compile compiles or recompiles inside steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs import spread
from lostflops.explain.advise.signs.extra_time import saving_of_extra_time
from lostflops.explain.advise.signs.series import series
from lostflops.explain.advise.signs.where import match_samples

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_LINE: Final = "idle.compile"
_FEW: Final = 0.03
_EXPECTED: Final = 3
"""Compiling is expected in this many first steps."""
_AGAIN: Final = 2
"""At least this many later steps must compile."""
_FIX: Final = (
    "Run with TORCH_LOGS=recompiles to see what changes. For shapes, use torch.compile(model, dynamic=True) or "
    "torch._dynamo.mark_dynamic(batch, 1), or pad batches to a few lengths. Keep Python numbers that change every step "
    "out of the compiled function."
)


def _find(case: Case) -> Iterator[Claim]:
    again = _again(case) if case.timed_steps is not None else None
    share = spread.share(case, _LINE)
    evidence = [*_cite_compile_gaps(case, share), *([again[1]] if again is not None else [])]
    measured = again[0] if again is not None and again[0].value >= _FEW else None
    if measured is None and share < _FEW:
        return
    taken = share if measured is None else measured.value
    yield Claim(
        cause="compile",
        what=f"torch.compile compiles inside steps, which takes {format_share(taken)} of the time.",
        taken=spread.attribute_line(case, _LINE),
        evidence=tuple(evidence),
        strength=Strength.STRONG if again is not None else Strength.FAIR,
        certain_if="run with TORCH_LOGS=recompiles: it names the guard that fails in these steps.",
        fix=_FIX,
        saving=measured,
    )


def _cite_compile_gaps(case: Case, share: float) -> Iterator[Evidence]:
    if share < _FEW:
        return
    ns, rank, event = case.total.longest.get(_LINE, (0, -1, -1))
    where = match_samples(case.total, _LINE, lambda _: True)
    yield Evidence(
        f"idle.compile is {format_share(share)} of a typical rank's time; the longest gap is {format_ns(ns)} on rank "
        f"{rank}",
        events=((rank, event),) if event >= 0 else (),
        ranks=tuple(case.lines),
        steps=tuple(sorted(case.total.steps)),
        sources=where.sources if where is not None else (),
    )


def _again(case: Case) -> tuple[Estimate, Evidence] | None:
    """Return what compiling takes after the first steps, with the evidence; None if it does
    not go on."""
    timed = series(case)
    late = timed.compiled & (timed.step >= timed.step.min(initial=0) + _EXPECTED)
    if late.sum() < _AGAIN or not timed.settled.any():
        return None
    usual = float(np.median(timed.ns[timed.settled]))
    beyond = np.maximum(timed.ns[late] - usual, 0.0)
    steps = timed.step[late]
    whole = float(timed.ns[~timed.first].sum())
    return saving_of_extra_time(beyond, whole, "the extra time of steps that compile"), Evidence(
        f"{pluralise(int(late.sum()), 'step')} after the first {_EXPECTED} compiled again and took "
        f"{format_ns(round(float(np.median(timed.ns[late]))))} instead of {format_ns(round(usual))}",
        ranks=timed.ranks,
        steps=tuple(steps[:10].tolist()),
    )


RULE: Final = Rule(
    cause="compile",
    about=(
        "torch.compile generates code for the shapes and values that it has seen. For new ones it compiles again, for "
        "seconds, while the job waits. After the first few steps nothing should be compiled."
    ),
    find=_find,
)

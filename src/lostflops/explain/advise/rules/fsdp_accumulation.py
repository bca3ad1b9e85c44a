"""FSDP gathers parameters and reduces gradients in every microbatch of an accumulated step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.sharding import Sharding, host_share, sharding

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.predict.graph.tasks import Flags

_NEARLY: Final = 0.9
_PASSES: Final = "select mode(microbatches) from timings where microbatches is not null"


def _find(case: Case) -> Iterator[Claim]:
    ((passes,),) = case.run.rows(_PASSES)
    found = sharding(case) if passes is not None and passes > 1 else None
    if found is None:
        return
    units = len(found.units)
    reduced = found.calls(found.reductions) >= _NEARLY * passes * units
    gathered = _is_gathered_again(found.calls(found.gathers) / units, passes)
    if reduced or gathered:
        yield _claim(case, found, passes, reduced=reduced, gathered=gathered)


def _is_gathered_again(times: float, passes: int) -> bool:
    """Return whether parameters that are gathered this many times per step are freed after each backward pass. They are
    then gathered twice per microbatch, or once if forward passes do not free them; otherwise one time more than there
    are microbatches, or only once.

    >>> [_is_gathered_again(times, 4) for times in (8, 4, 5, 1)]
    [True, True, False, False]
    """
    return times >= _NEARLY * 2 * passes or _NEARLY * passes <= times < passes + 0.5


def _calls_share(found: Sharding, rows: Flags) -> float:
    """Return which part of FSDP's collectives these are: FSDP's Python time is divided accordingly."""
    return int(rows.sum()) / max(int((found.gathers | found.reductions).sum()), 1)


def _claim(case: Case, found: Sharding, passes: int, *, reduced: bool, gathered: bool) -> Claim:
    rows = (found.reductions & reduced) | (found.gathers & gathered)
    on_host = host_share(case)
    kinds = [name for name, is_so in (("reduces gradients", reduced), ("gathers parameters", gathered)) if is_so]
    share = (found.share(rows) + on_host * _calls_share(found, rows)) * (1 - 1 / passes)
    return Claim(
        cause="fsdp_accumulation",
        what=(
            f"FSDP {' and '.join(kinds)} in each of {passes} microbatches: {format_share(share)} of the time of all "
            "ranks is wasted."
        ),
        taken={place: round(ns * (1 - 1 / passes)) for place, ns in found.attribute(rows).items()},
        evidence=(
            Evidence(
                f"per step: {passes} backward passes, {found.calls(found.reductions):.3g} reductions and "
                f"{found.calls(found.gathers):.3g} all-gathers for {len(found.units)} units; FSDP's Python code takes "
                f"{format_share(on_host)} of the time",
                events=found.traffic.examples(rows),
                steps=found.traffic.steps(rows),
            ),
        ),
        strength=Strength.STRONG,
        certain_if="run some steps with the fix: the loss must stay the same, and steps must get shorter.",
        fix=_fix(passes, reduced=reduced, gathered=gathered),
        saving=Estimate.bound(
            share,
            f"the exposed time of these collectives and of their Python code in {passes - 1} of {passes} microbatches",
        ),
        instead_of=("missing_no_sync", "exposed_comm", "small_messages", "sync", "fsdp_units"),
    )


def _fix(passes: int, *, reduced: bool, gathered: bool) -> str:
    parts = []
    if reduced:
        parts.append(
            "Call model.set_requires_gradient_sync(is_last) in each microbatch; this keeps all gradients unsharded in "
            "memory between microbatches."
        )
    if gathered:
        parts.append(
            "Call model.set_reshard_after_backward(is_last) in each microbatch; this keeps all parameters unsharded in "
            "memory between microbatches."
        )
    parts.append(f"Set is_last to True only for the last of the {passes} microbatches.")
    return " ".join(parts)


RULE: Final = Rule(
    cause="fsdp_accumulation",
    about=(
        "A step accumulates the gradients of several microbatches. By default FSDP reduces gradients after each "
        "microbatch and frees the gathered parameters, so the next microbatch gathers them again. If memory allows, "
        "both can wait until the last microbatch."
    ),
    find=_find,
)

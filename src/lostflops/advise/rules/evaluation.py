"""Evaluation on some ranks while the others wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.advise.claim import Claim, Rule
from lostflops.advise.signs.interludes import in_window, interlude
from lostflops.results import Evidence
from lostflops.units import counted, format_ns, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case

_MOST_STEPS: Final = 10
_RARE: Final = 0.5
"""Part of steps below which a forward pass without gradients is an evaluation, and not part of the training."""


def _find(case: Case) -> Iterator[Claim]:
    found = interlude(case, "evaluating", "evaluation")
    if found is None or len(found.steps) > _RARE * found.of:
        return
    who = "rank" if len(found.ranks) == 1 else "ranks"
    listed = ", ".join(map(str, found.ranks[:8]))
    where = f"on {who} {listed} alone, while the others wait" if found.alone else "on all ranks"
    yield Claim(
        cause="evaluation",
        what=f"Evaluation runs {found.often} {where}: {format_share(found.gain.share)} of the time of steps.",
        taken=in_window(case, "evaluating"),
        evidence=(
            Evidence(
                f"forward passes without gradients take {format_ns(round(found.each))} in "
                f"{counted(len(found.steps), 'step')} of {found.of:,}",
                ranks=found.ranks,
                steps=found.steps[:_MOST_STEPS],
            ),
        ),
        confidence=0.95 if found.alone else 0.85,
        certain_if="run some steps without the evaluation: they must be as fast as the other steps of this run.",
        fix=(
            "Evaluate on all ranks, each on its part of the data (DistributedSampler(eval_set, shuffle=False)), and "
            "reduce the metrics once at the end. Or evaluate less often, or in a separate job from checkpoints."
            if found.alone
            else "Evaluate less often or on fewer batches, or in a separate job from checkpoints."
        ),
        gain=found.gain,
        ranks=found.ranks if found.alone else (),
        instead_of=("straggler", "warmup", "host_python", "work_imbalance"),
    )


RULE: Final = Rule(
    cause="evaluation",
    about=(
        "Every so many steps the model is evaluated. Where one rank does that alone, all others stop at their next "
        "collective and wait until it is done, so that a job on N ranks pays N times for it."
    ),
    find=_find,
)

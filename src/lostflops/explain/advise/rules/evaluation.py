"""Evaluation runs on some ranks while the others wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.interludes import in_window, interlude

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_MOST_STEPS: Final = 10
_RARE: Final = 0.5
"""At most this part of the steps may have a forward pass without gradients: in more steps, it belongs to training."""


def _find(case: Case) -> Iterator[Claim]:
    found = interlude(case, "evaluating", "evaluation")
    if found is None or len(found.steps) > _RARE * found.of:
        return
    who = "rank" if len(found.ranks) == 1 else "ranks"
    listed = ", ".join(map(str, found.ranks[:8]))
    where = f"on {who} {listed} while the others wait" if found.alone else "on all ranks"
    yield Claim(
        cause="evaluation",
        what=f"Evaluation {found.often} {where} takes {format_share(found.saving.value)} of step time.",
        taken=in_window(case, "evaluating"),
        evidence=(
            Evidence(
                f"{len(found.steps):,} of {pluralise(found.of, 'step')} have forward passes without gradients, of "
                f"{format_ns(round(found.each))} each time",
                ranks=found.ranks,
                steps=found.steps[:_MOST_STEPS],
            ),
        ),
        strength=Strength.STRONG,
        certain_if="run some steps without evaluation: they must be as fast as the other steps of this run.",
        fix=(
            "Evaluate in a separate job from checkpoints, or less often. Or split the evaluation over all ranks with "
            f"DistributedSampler(eval_set, shuffle=False), which saves {_split_share(case, len(found.ranks))} of this."
            if found.alone
            else "If only logs need it, evaluate less often or on fewer batches, or in a separate job from checkpoints."
        ),
        saving=found.saving,
        ranks=found.ranks if found.alone else (),
        instead_of=("straggler", "warmup", "host_python", "work_imbalance"),
    )


def _split_share(case: Case, evaluating: int) -> str:
    """Return which part of the time of an evaluation is saved if all ranks of the job share it."""
    world = case.run.world_size
    return f"{world - 1}/{world}" if evaluating == 1 and world > 1 else "most"


RULE: Final = Rule(
    cause="evaluation",
    about=(
        "Many jobs evaluate the model every n steps. If only one rank evaluates, all others wait for it in their next "
        "collective, so a job with N ranks pays N times for it."
    ),
    find=_find,
)

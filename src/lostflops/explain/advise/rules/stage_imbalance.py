"""Pipeline stages take unequal time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.lines import WAIT_LINES
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.explain.advise.claim import Claim, Place
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.machine import machine
from lostflops.explain.advise.signs.stages import Stages, stages

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

ABOUT: Final = (
    "Every microbatch passes through all pipeline stages, so the slowest stage sets the pace, and the others wait for "
    "it in their sends and receives. Stages are uneven if layers do not divide evenly, or if the first stage also has "
    "the embedding or the last stage the output layer and the loss."
)
_LONG: Final = 1.15
"""The longest stage must take at least this many times the mean stage: below that, transfers and chance matter more."""
_CLEARLY: Final = 1.2
_MOST_OF: Final = 0.8
"""The same stage must be the longest in at least this part of the steps."""
_ENOUGH: Final = 8
"""This many steps are needed to be sure; with fewer, a stage that is the longest in more than half is suspected."""
_CLEARLY_ON_CPUS: Final = 1.3
"""In fewer steps on CPUs, where ranks share cores, the longest stage must take at least this many times the mean stage
to be certain."""
_HALF: Final = 0.5
_CHANGE: Final = "stages=even"


def find(case: Case) -> Iterator[Claim]:
    found = stages(case)
    if found is None:
        return
    usual = found.usual
    longest = int(usual.argmax())
    ratio = float(usual[longest] / max(usual.mean(), 1.0))
    always = float((found.own.argmax(axis=0) == longest).mean())
    is_few = found.steps.size < _ENOUGH
    is_noisy = is_few and machine(case).is_cpu and ratio < _CLEARLY_ON_CPUS
    is_sure = always >= _MOST_OF and not is_noisy
    if ratio >= _LONG and (is_sure or (is_few and always > _HALF)):
        yield _claim(case, found, longest, ratio, is_sure=is_sure)


def _claim(case: Case, found: Stages, longest: int, ratio: float, *, is_sure: bool) -> Claim:
    usual, ranks = found.usual, found.ranks[longest]
    lost = _waits(case, found)
    times = ", ".join(f"stage {at} {format_ns(round(ns))}" for at, ns in enumerate(usual.tolist()))
    shortest = int(usual.argmin())
    return Claim(
        cause="stage_imbalance",
        what=(
            f"Pipeline stage {longest} takes {ratio:.2f}x the mean stage: waits for it take "
            f"{format_share(sum(lost.values()) / (case.wall or 1))} of the time of all ranks."
        ),
        taken=lost,
        evidence=(
            Evidence(
                f"time outside communication per step: {times}; stage {longest} is the longest in "
                f"{int((found.own.argmax(axis=0) == longest).sum())} of {pluralise(found.steps.size, 'step')}",
                ranks=ranks,
                steps=tuple(found.steps.tolist()),
            ),
        ),
        strength=Strength.STRONG if ratio >= _CLEARLY else Strength.FAIR,
        certain_if="move one layer to another stage: the waits must change accordingly.",
        fix=(
            f"Move layers from stage {longest} to stage {shortest}. torch.distributed.pipelining: change the split "
            "points in pipeline(..., split_spec=...). Megatron: use --decoder-first-pipeline-num-layers and "
            "--decoder-last-pipeline-num-layers."
        ),
        changes=(_CHANGE,),
        ranks=ranks,
        suspected="" if is_sure else f"The window has only {pluralise(found.steps.size, 'step')}: too few to be sure.",
        record="" if is_sure else case.more_steps,
    )


def _waits(case: Case, found: Stages) -> dict[Place, int]:
    """Attribute on each rank as much of its waits as its stage is shorter than the longest."""
    longer = (found.own.max(axis=0) - found.own).sum(axis=1)
    lost: dict[Place, int] = {}
    for ranks, ns in zip(found.ranks, longer.tolist(), strict=True):
        for rank in ranks:
            room = ns
            for line in reversed(WAIT_LINES):
                taken = min(case.lines[rank][line], round(room))
                lost[rank, line] = taken
                room -= taken
    return {place: ns for place, ns in lost.items() if ns}


RULE: Final = Rule("stage_imbalance", ABOUT, find)

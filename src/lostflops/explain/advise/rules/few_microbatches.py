"""The pipeline bubble is large because a step has few microbatches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.lines import WAIT_LINES
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_share
from lostflops.explain.advise.claim import Claim, NotChecked, Place
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.stages import Stages, is_shaped, stages

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

ABOUT: Final = (
    "Pipeline stages idle until the first microbatch reaches the last stage, and after the last microbatch has left "
    "the first stage. With p equal stages and m microbatches, this bubble is (p - 1) / (m + p - 1) of the step, "
    "however fast everything else is. Splitting the batch into more, smaller microbatches shrinks it, as long as each "
    "still fills the device."
)
_LARGE: Final = 0.2
"""An inherent bubble of at least this share of the step is large: the usual four microbatches per stage leave less."""
_WAITED: Final = 1 / 3
"""Ranks must really have waited at least this part of the inherent bubble."""
_MOST_TIMES: Final = 8


def find(case: Case) -> Iterator[Claim]:
    found = stages(case)
    if found is None or found.microbatches is None or found.inherent(found.microbatches) < _LARGE:
        return
    if not is_shaped(case):
        raise NotChecked(
            f"the bubble with {found.microbatches} microbatches is "
            f"{format_share(found.inherent(found.microbatches))} of the step, but their size was not recorded, so "
            "Lostflops does not know whether they can be split",
            record="--with shapes,modules,samples",
        )
    inherent = found.inherent(found.microbatches)
    lost = _waits(case, inherent)
    if sum(lost.values()) >= _WAITED * inherent * case.wall:
        yield _claim(case, found, found.microbatches, lost)


def _claim(case: Case, found: Stages, now: int, lost: dict[Place, int]) -> Claim:
    more = now
    while found.inherent(more) > _LARGE and more < _MOST_TIMES * now:
        more *= 2
    change = f"microbatches={more}"
    inherent = found.inherent(now)
    return Claim(
        cause="few_microbatches",
        what=(
            f"{now} microbatches are too few for {found.count} stages: the bubble is {format_share(inherent)} of the "
            f"step, with {more} only {format_share(found.inherent(more))}."
        ),
        taken=lost,
        evidence=(
            Evidence(
                f"{found.count} stages and {now} microbatches per step; waits for neighbour stages take "
                f"{format_share(sum(lost.values()) / (case.wall or 1))} of the time of all ranks",
                ranks=tuple(rank for stage in found.ranks for rank in stage),
                steps=tuple(found.steps.tolist()),
            ),
        ),
        strength=Strength.STRONG,
        certain_if=(
            f"record the same batch split into {more} microbatches (possible if each now has {more // now} samples or "
            "more)."
        ),
        fix=(
            f"torch.distributed.pipelining: use Schedule1F1B(stage, n_microbatches={more}). Megatron: divide "
            f"--micro-batch-size by {more // now}. If microbatches cannot be smaller, use ScheduleInterleaved1F1B "
            "(Megatron: --num-virtual-stages-per-pipeline-rank 2)."
        ),
        changes=(change,),
    )


def _waits(case: Case, inherent: float) -> dict[Place, int]:
    """Attribute on each rank as much of its waits as the schedule causes."""
    lost: dict[Place, int] = {}
    for rank, lines in case.lines.items():
        room = inherent * sum(lines.values())
        for line in reversed(WAIT_LINES):
            taken = min(lines[line], round(room))
            lost[rank, line] = taken
            room -= taken
    return {place: ns for place, ns in lost.items() if ns}


RULE: Final = Rule("few_microbatches", ABOUT, find)

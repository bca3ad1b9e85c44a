"""The schedule of a pipeline by the names of its passes, as torch.distributed.pipelining annotates them.

`PP:2F0` is the forward of microbatch 0 on stage 2, `PP:2B0` its backward, `PP:2I0` gradients of inputs only, `PP:2W0`
gradients of weights only, and `PP:(1F3;2B0)OVERLAP_F_B` two passes that overlap. Schedules with such names run several
stages on a rank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from lostflops.store.run import Run

CUT: Final = {
    "zero_bubble": "zero bubble",
    "zbv": "ZBV (zero bubble, two chunks in a V)",
    "dualpipe": "DualPipe",
    "dualpipev": "DualPipeV",
}
"""Schedules that cut backward passes in two or send microbatches in both directions, with their names for people."""

_NAMED: Final = """
    select rank, name from events where kind = 'annotation' and starts_with(name, 'PP:')
    and step is not distinct from (select min(step) from events where kind = 'annotation' and starts_with(name, 'PP:'))
    order by rank, start"""
_ACTION: Final = re.compile(r"(\d{1,6})([FBIW])(\d{1,6})(?![A-Za-z_])")
_TOGETHER: Final = "OVERLAP_F_B"
_OF_V: Final = 2


class PipelineAction(NamedTuple):
    """A pass as its annotation names it."""

    stage: int
    kind: str
    """`F`, `B`, `I` or `W`."""
    microbatch: int
    overlaps: bool = False
    """Whether a forward and a backward pass run together."""


def parse_actions(name: str) -> list[PipelineAction]:
    """Return the passes that an annotation names; none for transfers and other actions.

    >>> parse_actions("PP:3W12"), parse_actions("PP:3SEND_F1"), len(parse_actions("PP:(0F1;3B0)OVERLAP_F_B"))
    ([PipelineAction(stage=3, kind='W', microbatch=12, overlaps=False)], [], 2)
    """
    overlaps = name.endswith(_TOGETHER)
    return [
        PipelineAction(int(stage), kind, int(microbatch), overlaps)
        for stage, kind, microbatch in _ACTION.findall(name.removeprefix("PP:"))
    ]


def annotated_schedule(run: Run) -> str | None:
    """Return the schedule that the annotations of the first recorded step show; None if passes are not annotated."""
    orders: dict[int, list[PipelineAction]] = {}
    for rank, name in run.rows(_NAMED):
        orders.setdefault(rank, []).extend(parse_actions(name))
    orders = {rank: own for rank, own in orders.items() if own}
    return name_schedule(orders) if orders else None


def name_schedule(orders: Mapping[int, Sequence[PipelineAction]]) -> str:
    """Return the schedule of these passes, which are by rank in the order in which they ran; `other` if it is unknown.

    >>> ran = "0F0 0F1 0I0 0W0 0I1 0W1"
    >>> name_schedule({0: [action for word in ran.split() for action in parse_actions(word)]})
    'zero_bubble'
    """
    every = [action for own in orders.values() for action in own]
    held = [sorted({action.stage for action in own}) for own in orders.values()]
    is_cut = any(action.kind in "IW" for action in every)
    overlaps = any(action.overlaps for action in every)
    if _are_mirrored(orders):
        return "dualpipe"
    if all(len(stages) == _OF_V for stages in held) and len({sum(stages) for stages in held}) == 1 and len(held) > 1:
        return "dualpipev" if overlaps else "zbv" if is_cut else "other"
    if is_cut:
        return "zero_bubble"
    if any(len(stages) > 1 for stages in held):
        return "interleaved"
    kinds = ["".join(action.kind for action in own) for own in orders.values()]
    if all("BF" not in own and "FF" in own for own in kinds):
        return "gpipe"
    # In 1F1B the last stage alternates, and no other stage runs two backward passes before its last forward.
    alternates = any(all(kind != next_kind for kind, next_kind in pairwise(own)) for own in kinds)
    return "1f1b" if alternates and all("BB" not in own[: own.rfind("F")] for own in kinds) else "other"


def _are_mirrored(orders: Mapping[int, Sequence[PipelineAction]]) -> bool:
    """Return whether two ranks each hold a stage, for different microbatches: they travel in both directions."""
    held: dict[int, dict[int, set[int]]] = {}
    for rank, own in orders.items():
        for action in own:
            held.setdefault(action.stage, {}).setdefault(rank, set()).add(action.microbatch)
    both = [list(by_rank.values()) for by_rank in held.values()]
    return all(len(sets) == _OF_V and not sets[0] & sets[1] for sets in both) and len(orders) > 1

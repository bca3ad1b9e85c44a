"""What if all ranks got equally many tokens for their experts?"""

from __future__ import annotations

from typing import Final

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.even_experts import even_experts, expert_times
from lostflops.predict.whatif.graph_edits.values import one_of

_LEAST_DOUBT: Final = 0.15
"""A router is never quite even, and exchanges take less time as well."""


def _how(_value: str) -> str:
    return (
        "balance the router: a larger auxiliary loss (Megatron: --moe-router-load-balancing-type aux_loss "
        "--moe-aux-loss-coeff 0.01), a bias per expert (--moe-router-enable-expert-bias), or a limit of tokens per "
        "expert (--moe-expert-capacity-factor)"
    )


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    one_of(value, ("even",), "experts")
    loads = facts.experts() if facts.experts is not None else None
    times = None if loads is None else expert_times(graph, loads)
    if times is None:
        raise NotApplicable(
            "no pair of all-to-alls with recorded sizes brings tokens to experts and back (DeepEP records no sizes)"
        )
    if not times.rate.any():
        raise NotApplicable("the compute time of ranks does not follow the tokens that they get: nothing to balance")
    return Edited(
        graph=even_experts(graph, times),
        doubt=max(_LEAST_DOUBT, 1.64 * times.doubt),
        notes=("Every rank gets the mean number of tokens; exchanges keep their duration.",),
    )


CHANGE: Final = Change(
    name="experts",
    form="experts=even",
    about="every rank gets the same number of tokens for its experts",
    cost="tokens may go to experts that fit less well, or be dropped",
    how=_how,
    apply=_apply,
    tried=("even",),
)

"""Some ranks get more tokens for their experts than others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.align.expert_capacity import even_exchanges, token_limits
from lostflops.account.align.expert_loads import ExpertLoads, expert_loads
from lostflops.core.errors import UnknownCost
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, pluralise
from lostflops.explain.advise.claim import Claim, Place
from lostflops.explain.advise.rule import Rule
from lostflops.predict.whatif.graph_edits.even_experts import ExpertTimes, expert_times

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

ABOUT: Final = (
    "In a mixture of experts, a router chooses where each token goes. The rank whose experts are chosen most computes "
    "longest, and all others wait for it when tokens return, in every uneven layer. The sizes of the all-to-alls show "
    "how many tokens each rank gets, and the compute time until they return shows what that costs."
)
_FOR_GOOD: Final = 1.15
"""A rank that gets at least this many times the mean load, averaged over steps, has popular experts."""
_BY_TURNS: Final = 1.25
"""The same for the fullest rank of each step: by chance alone, few tokens are never quite even."""
_MOST_LAYERS: Final = 3
_BALANCE: Final = (
    "Balance the router: raise the auxiliary loss (Megatron: --moe-router-load-balancing-type aux_loss "
    "--moe-aux-loss-coeff 0.01), or add a bias per expert (--moe-router-enable-expert-bias)."
)
_COPIES: Final = "If an expert must stay popular, place copies of it on several ranks."
_FIX: Final = f"{_BALANCE} Or limit the tokens per expert (--moe-expert-capacity-factor), which drops tokens. {_COPIES}"
_FIX_LIMITED: Final = (
    f"{_BALANCE} Experts have a capacity already: a smaller one would save time too, but drop more tokens. {_COPIES}"
)
_WITHOUT_SIZES: Final = "select count(*) from collectives where op = 'all_to_all' and metadata = 'name'"
"""All-to-alls that only the name of their kernel shows: libraries of experts write their own."""
_NUMBERED: Final = re.compile(r"^(.*?)\.?\b(?:\w*_)?experts?\.(\d+)\.")
_NAMES: Final = "select name from parameters where rank = {rank} order by position"


@dataclass(frozen=True, slots=True)
class _UnevenLayer:
    layer: int
    most: float
    """Times the mean load on the fullest rank of a step, on average."""
    rank: int
    """The rank that is fullest most often."""
    often: float
    """Share of steps in which it is."""
    always: float
    """Times the mean load on that rank, on average over steps."""


def find(case: Case) -> Iterator[Claim]:
    loads = expert_loads(case.run)
    if loads is None and (even := [one.text for one in even_exchanges(case.run)]):
        raise UnknownCost(" ".join(even))
    if loads is None and case.run.rows(_WITHOUT_SIZES) != [(0,)]:
        raise UnknownCost("kernels that exchange tokens, such as those of DeepEP, record no sizes")
    if loads is None or case.baseline is None:
        return
    uneven = [one for layer in range(loads.layers) if _is_uneven(one := _look_at(loads, layer))]
    times = expert_times(case.baseline.graph, loads) if uneven else None
    if times is not None and times.rate.any():
        yield _claim(case, loads, sorted(uneven, key=lambda one: -one.most), times)


def _look_at(loads: ExpertLoads, layer: int) -> _UnevenLayer:
    shares = loads.shares(layer)
    fullest = shares.argmax(axis=1)
    counts = np.bincount(fullest, minlength=len(loads.ranks))
    place = int(counts.argmax())
    return _UnevenLayer(
        layer=layer,
        most=float(shares.max(axis=1).mean()),
        rank=loads.ranks[place],
        often=float(counts[place] / len(shares)),
        always=float(shares[:, place].mean()),
    )


def _is_uneven(one: _UnevenLayer) -> bool:
    return one.always >= _FOR_GOOD or one.most >= _BY_TURNS


def _claim(case: Case, loads: ExpertLoads, uneven: Sequence[_UnevenLayer], times: ExpertTimes) -> Claim:
    first, limits = uneven[0], list(token_limits(loads))
    named_layers = uneven if len(uneven) == loads.layers else uneven[:1]
    ranks = tuple(sorted({one.rank for one in named_layers if one.always >= _FOR_GOOD and one.often >= 0.5}))
    layers = ", in every MoE layer" if len(uneven) == loads.layers else f", in {_layer(case, loads, first.layer)}"
    layers = layers if loads.layers > 1 else ""
    if ranks:
        named = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
        most = max(one.always for one in named_layers)
        what = f"The experts of {named} get {most:.2g} times the mean number of tokens{layers}: the other ranks wait."
    else:
        what = (
            f"In each step another rank gets {first.most:.2g} times the mean number of tokens{layers}: the other ranks "
            "wait."
        )
    return Claim(
        cause="expert_imbalance",
        what=what,
        taken=_taken(case, loads, times),
        evidence=(
            *(_cite_layer(case, loads, one) for one in uneven[:_MOST_LAYERS]),
            _cite_time(loads, times),
            *(Evidence(one.text, ranks=one.ranks) for one in limits[:_MOST_LAYERS]),
        ),
        strength=Strength.STRONG,
        certain_if="log the tokens of each expert in the router: experts of these ranks must get the most.",
        fix=_FIX if not limits else _FIX_LIMITED,
        changes=("experts=even",),
        ranks=ranks,
        instead_of=("work_imbalance", "straggler"),
    )


def _layer(case: Case, loads: ExpertLoads, layer: int) -> str:
    """Return a layer's name in the model if parameters name as many layers with experts, else its number."""
    names = [name for (name,) in case.run.rows(_NAMES.format(rank=loads.ranks[0]))]
    found = list(dict.fromkeys(match[1] for name in names if (match := _NUMBERED.match(name))))
    named = f" (module {found[layer]})" if len(found) == loads.layers and found[layer] else ""
    return f"MoE layer {layer + 1} of {loads.layers}{named}"


def _expert(case: Case, loads: ExpertLoads, rank: int) -> str:
    """Return which expert of the rank is meant, if it has only one."""
    names = [name for (name,) in case.run.rows(_NAMES.format(rank=rank))]
    experts = {match[2] for name in names if (match := _NUMBERED.match(name))}
    if len(experts) == 1:
        # Experts are numbered over all ranks, or from 0 on each.
        return f"; its only expert is {max(int(min(experts)), loads.ranks.index(rank))}"
    return f"; the rank has {len(experts)} experts" if experts else ""


def _cite_layer(case: Case, loads: ExpertLoads, one: _UnevenLayer) -> Evidence:
    steps = len(loads.shares(one.layer))
    where = f"in {_layer(case, loads, one.layer)} " if loads.layers > 1 else ""
    return Evidence(
        f"Rank {one.rank} gets the most tokens {where}in {round(one.often * steps):,} of {pluralise(steps, 'step')}"
        f"{_expert(case, loads, one.rank)}; the rank with most tokens gets {one.most:.3g} times the mean.",
        ranks=(one.rank,),
    )


def _cite_time(loads: ExpertLoads, times: ExpertTimes) -> Evidence:
    steps = {loads.trips[at].step for at in times.trips}
    extra = float(times.excess.max(axis=1).sum()) / len(steps)
    return Evidence(
        f"Compute time grows with tokens: ranks with most tokens compute {format_ns(round(extra))} per step longer "
        "than they would with the mean number.",
        steps=tuple(sorted(steps)),
    )


def _taken(case: Case, loads: ExpertLoads, times: ExpertTimes) -> dict[Place, int]:
    """Attribute to the load the compute time beyond the mean, and the waits of other ranks for the fullest."""
    excess = times.excess
    waits = (excess.max(axis=1, keepdims=True) - excess).sum(axis=0)
    found: dict[Place, int] = {}
    for place, rank in enumerate(loads.ranks):
        lines = case.lines.get(rank, {})
        for line, ns in (("comm.wait", waits[place]), ("compute", np.maximum(excess[:, place], 0).sum())):
            found[rank, line] = min(round(float(ns)), lines.get(line, 0))
    return found


RULE: Final = Rule("expert_imbalance", ABOUT, find)

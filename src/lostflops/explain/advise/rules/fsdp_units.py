"""FSDP shards units that are too small, so each step sends many small messages."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_ns, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.sharding import Sharding, host_share, sharding

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_MANY: Final = 8
"""The number of units matters if there are at least this many."""
_SMALL: Final = 4 << 20
"""A unit of fewer bytes is small: its collectives take mostly latency and host time."""
_ENOUGH: Final = 25 << 20
"""A unit of this many bytes is large enough: it is the size of DDP's buckets."""


def _find(case: Case) -> Iterator[Claim]:
    found = sharding(case)
    if found is None or len(found.units) < _MANY or float(np.median(found.units)) >= _SMALL:
        return
    rows = found.gathers | found.reductions
    if not rows.any():
        return
    count, total = len(found.units), sum(found.units)
    fewer = min(max(ceil(total / _ENOUGH), 1), count)
    on_host = host_share(case)
    share = (found.share(rows) + on_host) * (1 - fewer / count)
    calls = found.calls(rows)
    yield Claim(
        cause="fsdp_units",
        what=(
            f"FSDP shards {count} small units (median {format_bytes(int(np.median(found.units)))}), so each step runs "
            f"{calls:.0f} small collectives."
        ),
        taken=found.attribute(rows),
        evidence=(_evidence(found, calls, on_host),),
        strength=Strength.STRONG,
        certain_if="run some steps with one unit per block: the loss must stay the same, and steps must get shorter.",
        fix=(
            "Call fully_shard(block) on each transformer block and then fully_shard(model), not on each layer "
            f"({fewer} {'unit is' if fewer == 1 else 'units are'} enough for {format_bytes(total)}). FSDP1: use "
            "auto_wrap_policy=ModuleWrapPolicy({Block}), or size_based_auto_wrap_policy with min_num_params."
        ),
        saving=Estimate.bound(
            share,
            f"the exposed time of FSDP's collectives and its Python code, with {fewer} instead of {count} units",
        ),
        instead_of=("sync", "small_messages", "exposed_comm", "host_bound", "host_python"),
    )


def _evidence(found: Sharding, calls: float, on_host: float) -> Evidence:
    made, rows = found.traffic, found.gathers | found.reductions
    took = int(np.median(made.took[rows]))
    return Evidence(
        f"{calls:.0f} collectives per step and rank of {format_ns(took)} each (median) take "
        f"{format_share(found.share(rows))} of the time of all ranks; compute hides "
        f"{format_share(made.share_hidden(rows))}; FSDP's Python code takes {format_share(on_host)} of the time",
        events=made.examples(rows),
        steps=made.steps(rows),
    )


RULE: Final = Rule(
    cause="fsdp_units",
    about=(
        "FSDP gathers the parameters of each unit before use and reduces its gradients afterwards. Each of these "
        "collectives costs latency and host time, however small it is. With fully_shard on every layer, a step pays "
        "this hundreds of times; a unit should be a whole block."
    ),
    find=_find,
)

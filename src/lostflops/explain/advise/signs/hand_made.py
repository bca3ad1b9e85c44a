"""Gradient reductions written by hand: in many small messages or in few large buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lostflops.core.errors import NotApplicable
from lostflops.explain.advise.signs.traffic import traffic_of
from lostflops.predict.whatif.graph_edits.rebucket import MIB
from lostflops.predict.whatif.graph_edits.reductions import select_collectives
from lostflops.predict.whatif.graph_edits.transfers import TimedTransfers, latencies

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.predict.graph.tasks import Flags

MANY: Final = 8
"""If a step has at least this many reductions, they are pieces of a model and not a few flat buffers."""
MOSTLY: Final = 0.5
_EACH: Final = 16
"""Hooks of parameters reduce gradients if at least this many reductions per step run during the backward pass."""
_LARGE: Final = 4 * MIB
"""Each reduction of a hook has fewer bytes than this."""
_SIZES: Final = ("25", "5")
"""Bucket sizes of DDP in MiB: its default, and the size that small models need to overlap anything."""
_SAME: Final = 0.1
"""Two bucket sizes are the same if their relative difference is smaller than this."""
_BETTER: Final = 0.03
"""The smaller bucket size is advised only if it gains this share of a step more."""


def latency_share(case: Case, meetings: Flags) -> float | None:
    """Return which part of these transfers is latency; None if unknown."""
    made = traffic_of(case)
    if case.facts is None or not meetings.any():
        return None
    known = meetings & (made.graph.meetings.size > 0)
    try:
        shares = latencies(made.graph, known, TimedTransfers.of(made.graph, case.facts)).share[known]
    except NotApplicable:
        return None
    weight = made.graph.meetings.transfer[known]
    return float((shares * weight).sum() / max(int(weight.sum()), 1)) if known.any() else None


def are_small(case: Case, meetings: Flags) -> bool:
    """Return whether these meetings are many, and latency is most of their time."""
    made = traffic_of(case)
    share = latency_share(case, meetings)
    return made.a_step(made.of(meetings)) >= MANY and share is not None and share >= MOSTLY


def in_hooks(case: Case) -> Flags:
    """Return the meetings that reduce gradients one by one during backward, without DDP or FSDP: hooks of parameters do
    so."""
    made = traffic_of(case)
    found = made.in_backward & select_collectives(made.graph, "all_reduce")
    rows = made.of(found)
    is_wrapped = made.is_ddp or made.is_sharded
    is_hooked = not is_wrapped and made.a_step(rows) >= _EACH and int(made.size[rows].max(initial=0)) < _LARGE
    return found & np.bool_(is_hooked)


def has_buckets_of(case: Case, size: float) -> bool:
    """Return whether DDP already has buckets of this size, in MiB."""
    caps = [one.get("bucket_cap_bytes") for one in case.job.get("ddp") or () if isinstance(one, dict)]
    return any(cap and abs(cap / MIB / size - 1) < _SAME for cap in caps)


class Cure(NamedTuple):
    bucket: str
    change: str


def best_buckets(case: Case) -> Cure:
    """Return DDP's default bucket size, unless a smaller one gains clearly more."""
    gains = [found.value if (found := case.price(f"ddp={size}")) is not None else -np.inf for size in _SIZES]
    size = _SIZES[1] if gains[1] > gains[0] + _BETTER else _SIZES[0]
    return Cure(size, f"ddp={size}")

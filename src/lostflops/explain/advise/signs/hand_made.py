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
"""Reductions of a step from which on they are pieces of a model, and not a few flat buffers."""
MOSTLY: Final = 0.5
_EACH: Final = 16
"""The same while the backward pass goes on,"""
_LARGE: Final = 4 * MIB
"""and how large each is at most."""
_SIZES: Final = ("25", "5")
"""MiB of DDP's buckets: what it takes by itself, and what small models need so that anything overlaps."""
_SAME: Final = 0.1
"""Relative difference below which a bucket size is the one that the job has."""
_BETTER: Final = 0.03
"""By which the smaller one must gain more to be advised."""


def latency_share(case: Case, meetings: Flags) -> float | None:
    """Which part of these transfers is latency; None where nothing tells."""
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
    """Whether these are many, and latency is most of their time."""
    made = traffic_of(case)
    share = latency_share(case, meetings)
    return made.a_step(made.of(meetings)) >= MANY and share is not None and share >= MOSTLY


def in_hooks(case: Case) -> Flags:
    """Meetings that reduce gradients one by one during backward, without DDP or FSDP: hooks of parameters do so."""
    made = traffic_of(case)
    found = made.in_backward & select_collectives(made.graph, "all_reduce")
    rows = made.of(found)
    is_wrapped = made.is_ddp or made.is_sharded
    is_hooked = not is_wrapped and made.a_step(rows) >= _EACH and int(made.size[rows].max(initial=0)) < _LARGE
    return found & np.bool_(is_hooked)


def has_buckets_of(case: Case, size: float) -> bool:
    """Return whether DDP has buckets of this size, in MiB, already."""
    caps = [one.get("bucket_cap_bytes") for one in case.job.get("ddp") or () if isinstance(one, dict)]
    return any(cap and abs(cap / MIB / size - 1) < _SAME for cap in caps)


class Cure(NamedTuple):
    bucket: str
    change: str


def best_buckets(case: Case) -> Cure:
    """DDP's own size, unless a smaller one gains clearly more."""
    gains = [found.gain if (found := case.price(f"ddp={size}")) is not None else -np.inf for size in _SIZES]
    size = _SIZES[1] if gains[1] > gains[0] + _BETTER else _SIZES[0]
    return Cure(size, f"ddp={size}")

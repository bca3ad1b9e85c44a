"""Values of a knob, in order, including the value of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.errors import NotApplicable
from lostflops.predict.whatif.graph_edits.pipeline_layout import laid_out
from lostflops.predict.whatif.graph_edits.rebucket import MIB
from lostflops.predict.whatif.graph_edits.reductions import reductions

if TYPE_CHECKING:
    from lostflops.predict.whatif.baseline import Baseline
    from lostflops.predict.whatif.change import Change

AS_RECORDED: Final = "as recorded"
_SIZES: Final = (1, 5, 10, 25, 50, 100, 200)


@dataclass(frozen=True, slots=True)
class Scale:
    """The values of a knob."""

    change: Change
    label: str
    values: tuple[str, ...]
    now: int
    """Place of the recorded value, for which nothing needs to be changed."""

    @property
    def is_gradual(self) -> bool:
        return self.change.name in _GRADUAL

    @property
    def outward(self) -> list[int]:
        """Places of all other values, the nearest to `now` first."""
        places = [place for place in range(len(self.values)) if place != self.now]
        return sorted(places, key=lambda place: (abs(place - self.now), place < self.now))


def scales(start: Baseline, known: Sequence[Change], advised: Sequence[tuple[str, str]] = ()) -> Iterator[Scale]:
    """Yield the knobs that can be turned gradually, then the switches. Values that findings advise are among theirs."""
    by_name = {change.name: change for change in known}
    for name, (label, values) in _GRADUAL.items():
        if name in by_name:
            told, now = values(start)
            yield Scale(by_name[name], label, told, now)
    for change in known:
        if change.name not in _GRADUAL and change.tried:
            usual = _SWITCHED.get(change.name, change.tried)
            own = (value for name, value in advised if name == change.name and value not in usual)
            places = AS_RECORDED, *dict.fromkeys(own), *usual
            yield Scale(change, _LABELS.get(change.name, change.name.replace("_", " ")), places, 0)


def _offer_fixed_values(*values: str, now: str) -> Callable[[Baseline], tuple[tuple[str, ...], int]]:
    return lambda _: (values, values.index(now))


def _buckets(start: Baseline) -> tuple[tuple[str, ...], int]:
    """Return bucket sizes. Recorded buckets have several sizes: they are at the place of their median."""
    meetings = start.graph.meetings
    try:
        sizes = meetings.size[reductions(start.graph) & (meetings.size > 0)]
    except NotApplicable:
        sizes = meetings.size[:0]
    median = float(np.median(sizes)) / MIB if sizes.size else 0.0
    now = sum(size < median for size in _SIZES)
    told = [str(size) for size in _SIZES]
    return (*told[:now], AS_RECORDED, *told[now:]), now


def _ranks(start: Baseline) -> tuple[tuple[str, ...], int]:
    """Return numbers of ranks in whole replicas: a quarter and half of them if that is possible, and more."""
    layout = start.facts.layout
    world, replica = (layout.world, layout.replica) if layout is not None else (len(start.graph.ranks), 1)
    fewer = [world // part for part in (4, 2) if world % (part * replica) == 0]
    return tuple(str(ranks) for ranks in (*fewer, *(world * times for times in (1, 2, 4, 16, 64)))), len(fewer)


def _microbatches(start: Baseline) -> tuple[tuple[str, ...], int]:
    try:
        now = laid_out(start.graph)[1].shape.microbatches
    except NotApplicable:
        return (AS_RECORDED, "8"), 0
    fewer = [now // part for part in (4, 2) if now % part == 0]
    return tuple(str(count) for count in (*fewer, now, 2 * now, 4 * now, 8 * now)), len(fewer)


_GRADUAL: Final[Mapping[str, tuple[str, Callable[[Baseline], tuple[tuple[str, ...], int]]]]] = {
    "bucket_mb": ("gradient buckets, MiB", _buckets),
    "network.bandwidth": (
        "network bandwidth, times now",
        _offer_fixed_values("0.25x", "0.5x", "1x", "2x", "4x", "8x", now="1x"),
    ),
    "network.latency": (
        "network latency, times now",
        _offer_fixed_values("0.25x", "0.5x", "1x", "2x", "4x", now="1x"),
    ),
    "world_size": ("ranks, each with the same work", _ranks),
    "microbatches": ("microbatches per step", _microbatches),
    "accumulate": ("microbatches per gradient reduction", _offer_fixed_values("1", "2", "4", "8", now="1")),
    "compression": (
        "gradient bytes, times now",
        _offer_fixed_values("0.1x", "0.25x", "0.5x", "1x", now="1x"),
    ),
}
_LABELS: Final[Mapping[str, str]] = {
    "blocking": "small blocking collectives",
    "comm_streams": "streams for gradient reductions",
    "data": "data loading",
    "ddp": "DDP's buckets, MiB",
    "encode": "stored activations",
    "first_bucket_mb": "first bucket, MiB",
    "imbalance": "differences of every op between ranks",
    "launch": "launch overhead",
    "no_sync": "reduce only in the last microbatch",
    "overlap": "overlap",
    "precision": "matmul precision",
    "prefetch": "FSDP units to prefetch",
    "python": "Python between ops",
    "recompute": "activation recomputation",
    "offload": "offload to the host",
    "schedule": "pipeline schedule",
    "stages": "compute of pipeline stages",
    "straggler": "slowness of late ranks",
    "sync": "host waits for the device",
    "work": "cost of each rank's batch",
    "zero": "sharding: ZeRO stage",
}
_SWITCHED: Final[Mapping[str, tuple[str, ...]]] = {
    "python": ("0.75x", "0.5x", "0.25x", "removed"),
    "first_bucket_mb": ("0.25", "1", "4", "16"),
    "comm_streams": ("2", "4"),
}
"""Values for changes that have more of them than those tried to rank it."""

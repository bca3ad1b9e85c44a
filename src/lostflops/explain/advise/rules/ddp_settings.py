"""DDP searches for unused parameters although all are used, or broadcasts buffers in every forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lostflops.account.ledger.phases import OPTIMIZER
from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_share
from lostflops.explain.advise.claim import Claim, Place
from lostflops.explain.advise.diagnosis import SMALLEST
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.job_facts import job_facts
from lostflops.explain.advise.signs.traffic import traffic_of
from lostflops.predict.whatif.graph_edits.reductions import select_collectives
from lostflops.predict.whatif.graph_edits.small_calls import asked_in

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.predict.graph.tasks import Flags

_SEARCH: Final = """
    select rank, sum(dur) from events where name like '%reducer::search_unused_parameters' and step is not null
    group by rank"""
_BITMAP_ITEM: Final = 4
"""The map of used parameters, which ranks all-reduce, has this many bytes per parameter."""
_UNSORTED: Final = (
    "With this flag DDP does not sort its buckets in the order of the backward pass. Only a run without the flag shows "
    "what that costs."
)
_SEVERAL: Final = 3
"""The order of buckets matters if a step has at least this many."""
_LINES: Final = ("idle.host", "idle.python", "compute")


def _find(case: Case) -> Iterator[Claim]:
    logged = [one for values in job_facts(case, "ddp").values() for value in values for one in value]
    searching = [one for one in logged if one.get("find_unused_parameters") and not one.get("static_graph")]
    if searching and not any(one.get("unused_parameter_size") for one in logged):
        yield _search(case, searching[0])
    if any(one.get("broadcast_buffers") and one.get("buffers") for one in logged):
        yield from _buffers(case, max(logged, key=lambda one: one.get("buffer_bytes", 0)))


def _search(case: Case, ddp: dict[str, Any]) -> Claim:
    """Claim the cost of the search for unused parameters. DDP searches the graph after each forward pass, and reduces a
    map of used parameters after each backward pass; nothing hides either."""
    made = traffic_of(case)
    searched = dict(case.run.rows(_SEARCH))
    count = int(ddp.get("num_parameter_tensors") or 0)
    rows: Flags = (made.size == _BITMAP_ITEM * count) & made.of(~made.by_hand)
    wall = case.wall or 1
    search = sum(searched.values()) / wall
    reduced = int(made.exposed[rows].sum()) / wall
    share = search + reduced
    late = _late_buckets(case)
    return Claim(
        cause="ddp_settings",
        what=(
            f"find_unused_parameters=True costs {format_share(share)} of the time of all ranks, but all {count:,} "
            "parameters are used."
        ),
        taken=made.attribute(rows) | _within(case, searched),
        evidence=(
            Evidence(
                f"searching the graph takes {format_share(search)} of the time of all ranks, all-reducing the map of "
                f"used parameters ({format_bytes(_BITMAP_ITEM * count)}) {format_share(reduced)}",
                events=made.examples(rows),
                steps=tuple(sorted(case.total.steps)),
            ),
            Evidence("DDP logged no unused parameter on any rank (unused_parameter_size = 0)"),
        ),
        strength=Strength.STRONG,
        certain_if=(
            "run with find_unused_parameters=False: DDP must raise no error, and steps must get shorter by the "
            "expected gain."
        ),
        fix=(
            "Use DistributedDataParallel(model, find_unused_parameters=False). If every step skips the same "
            "parameters, use static_graph=True instead."
        ),
        saving=Estimate.bound(
            share + late,
            "the time of the search and of its all-reduce in the profiled steps, plus the exposed time of the "
            "buckets: without the flag, DDP sorts them in the order of the backward pass",
        ),
        suspected=_UNSORTED if late > share and share + late >= SMALLEST else "",
    )


def _late_buckets(case: Case) -> float:
    """Return the exposed share of DDP's buckets, but at most what perfect overlap saves: buckets in another order than
    the gradients start late. The order of two buckets does not matter."""
    made = traffic_of(case)
    rows = made.of(made.in_backward & select_collectives(made.graph, "all_reduce"))
    found = case.price("overlap=perfect")
    if found is None or made.a_step(rows) < _SEVERAL:
        return 0.0
    exposed = int(made.exposed[rows].sum()) / (case.wall or 1)
    return max(min(found.value, exposed), 0.0)


def _within(case: Case, spent: dict[int, int]) -> dict[Place, int]:
    """Attribute the time of the training thread to the lines that have room for it."""
    found: dict[Place, int] = {}
    for rank, ns in spent.items():
        left = int(ns)
        for line in _LINES if rank in case.lines else ():
            part = min(left, case.lines[rank][line])
            left -= part
            if part:
                found[rank, line] = part
    return found


def _buffers(case: Case, ddp: dict[str, Any]) -> Iterator[Claim]:
    made = traffic_of(case)
    calls = set(case.run.rows("select rank, event from collectives where op = 'broadcast'"))
    known = zip(made.rank.tolist(), made.event.tolist(), strict=True)
    rows: Flags = np.array([call in calls for call in known], np.bool_)
    # A sharded optimizer broadcasts parameters.
    rows &= made.of(~asked_in(made.graph, lambda phase: phase == OPTIMIZER))
    taken = made.attribute(rows)
    share = sum(taken.values()) / (case.wall or 1)
    if not taken:
        return
    yield Claim(
        cause="ddp_settings",
        what=(
            f"DDP broadcasts {ddp['buffers']:,} buffers ({format_bytes(ddp['buffer_bytes'])}) before every forward "
            f"pass: {format_share(share)} of the time of all ranks."
        ),
        taken=taken,
        evidence=(
            Evidence(
                f"{made.a_step(rows):.3g} broadcasts per step and rank; compute hides "
                f"{format_share(made.share_hidden(rows))}",
                events=made.examples(rows),
                steps=made.steps(rows),
            ),
        ),
        strength=Strength.STRONG,
        certain_if="run with broadcast_buffers=False: the loss must be as good as before, and steps must get shorter.",
        fix=(
            "Use DistributedDataParallel(model, broadcast_buffers=False) if buffers are constants, or statistics that "
            "may differ between ranks (BatchNorm: still save those of rank 0). Or store constants as plain attributes, "
            "not buffers."
        ),
    )


RULE: Final = Rule(
    cause="ddp_settings",
    about=(
        "With find_unused_parameters=True, DDP walks the whole autograd graph after each forward pass and all-reduces "
        "a map of used parameters after each backward pass. If every parameter is used, this time is wasted. So is the "
        "broadcast of buffers from rank 0 in every step if the buffers are constant."
    ),
    find=_find,
)

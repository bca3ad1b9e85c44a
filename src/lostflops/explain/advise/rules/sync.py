"""The host blocks on a value from the device, or on a small collective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.errors import NotApplicable
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs import spread
from lostflops.explain.advise.signs.machine import machine
from lostflops.explain.advise.signs.traffic import TRANSFER, WAIT, sources, traffic_of
from lostflops.explain.advise.signs.where import match_samples
from lostflops.predict.graph.tasks import LaneKind
from lostflops.predict.whatif.graph_edits.small_calls import small_calls

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_LINE: Final = "idle.sync"
_SMALLEST: Final = 0.02
_NAMED: Final = 3
_NOT_BLOCKING: Final = "blocking=removed"
_USUAL: Final = 4
"""Fewer small collectives per step than this are normal in healthy jobs: a loss, a flag of the GradScaler, a norm."""
_CLEAR: Final = 0.05
"""If there are fewer, removing them must save at least this part of the step: ranks would wait for each other
elsewhere."""


def _find(case: Case) -> Iterator[Claim]:
    if spread.share(case, _LINE) >= _SMALLEST:
        yield _device(case)
    if case.baseline is not None:
        yield from _small_collectives(case)


def _device(case: Case) -> Claim:
    parts = dict(case.total.parts.get(_LINE, {}))
    ranked = sorted(parts.items(), key=lambda part: -part[1])[:_NAMED]
    whole = sum(parts.values()) or 1
    blockers = ", ".join(f"{name} {format_share(ns / whole)}" for name, ns in ranked)
    where = match_samples(case.total, _LINE, lambda _: True)
    lines = where.sources if where is not None else _read_blocker_sources(case)
    rank, event = case.total.blocker
    ns = case.total.longest.get(_LINE, (0, -1, -1))[0]
    place = f" at {lines[0]}" if lines else ""
    return Claim(
        cause="sync",
        what=f"The host blocks on the device in every step{place}, and the device then idles until new work arrives.",
        taken=spread.attribute_line(case, _LINE),
        evidence=(
            Evidence(
                f"the device idles {format_share(spread.share(case, _LINE))} of the time after blocking calls, for up "
                f"to {format_ns(ns)}" + (f": {blockers}" if blockers else ""),
                events=((rank, event),) if event >= 0 else (),
                ranks=tuple(case.lines),
                steps=tuple(sorted(case.total.steps)),
                sources=lines,
            ),
        ),
        strength=Strength.STRONG,
        certain_if="move the reads out of the loop: the gaps after them must disappear.",
        fix=(
            f"Call .item(), .cpu() and print(tensor) only every n steps{place}; until then keep losses and metrics on "
            "the device (total += loss.detach())."
            + machine(case).pick(gpu=" Copy with pin_memory=True and non_blocking=True.")
        ),
        changes=("sync=removed",),
    )


def _read_blocker_sources(case: Case) -> tuple[str, ...]:
    """Read the source lines of the call that blocked longest from the trace itself."""
    rank, event = case.total.blocker
    rows = case.run.rows(
        f"select distinct source from events where rank = {rank} and event = {event} and source is not null"
    )
    return tuple(source for (source,) in rows)


def _small_collectives(case: Case) -> Iterator[Claim]:
    made = traffic_of(case)
    assert case.facts is not None
    if (made.graph.lanes.kind == LaneKind.STREAM).any():
        return
    try:
        rows = made.of(small_calls(made.graph, case.facts))
    except NotApplicable:
        return
    held = int((made.exposed + made.waited)[rows].sum())
    if held < _SMALLEST * case.wall:
        return
    lines = sources(case.run, made, rows)
    calls, place = made.a_step(rows), f" at {lines[0]}" if lines else ""
    s = "" if f"{calls:.3g}" == "1" else "s"
    barriers = made.a_step(rows & (made.size < 0))
    found = case.price(_NOT_BLOCKING)
    is_unsure = calls < _USUAL and (found is None or found.ends[0] < _CLEAR)
    yield Claim(
        cause="sync",
        what=f"The program waits for {calls:.3g} small collective{s} per step{place}.",
        taken={**made.attribute(rows, TRANSFER), **made.attribute(rows, WAIT)},
        evidence=(
            Evidence(
                f"training threads wait {format_ns(held // max(len(made.graph.steps), 1))} per step for {calls:.3g} "
                f"collective{s} of at most {max(int(made.size[rows].max()), 0)} bytes"
                + (f" ({barriers:.3g} of them barriers)" if barriers else "")
                + f", {format_share(held / case.wall)} of the time of all ranks",
                events=made.examples(rows),
                ranks=tuple(np.unique(made.rank[rows]).tolist()),
                steps=made.steps(rows),
                sources=lines,
            ),
        ),
        strength=Strength.STRONG,
        certain_if="make these calls only every n steps: steps must get shorter by the expected gain.",
        fix=(
            f"Stack the values into one tensor and all_reduce it only every n steps{place}. Or use async_op=True and "
            "call wait() when the values are logged. Remove dist.barrier() from the loop."
        ),
        changes=(_NOT_BLOCKING,),
        suspected=(
            f"{calls:.3g} such call{s} per step can be normal, and removing them may save little: ranks of different "
            "speed would wait for each other elsewhere."
            if is_unsure
            else ""
        ),
    )


RULE: Final = Rule(
    cause="sync",
    about=(
        "A program that reads a value, such as a loss with .item(), blocks until all earlier work is done. Meanwhile "
        "the device's queue runs empty; with collectives, all ranks wait for the slowest, several times per step. "
        "Values that are only logged can be read later, or less often."
    ),
    find=_find,
)

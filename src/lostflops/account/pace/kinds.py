"""Kinds of steps of a job, by the optimizers that step in them, and which kind the answers are about."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.account.pace.timings import PACED, choose_pace, paces, within
from lostflops.collect.capture import OPTIMIZER
from lostflops.core.units import format_count, format_ns, format_share

if TYPE_CHECKING:
    from lostflops.store.run import Run

_KINDS: Final = f"""
    with {PACED}
    select kind, any_value(is_main), count(*), median(ns) filter (not (is_first or compiled or profiled))
    from paced where kind <> '' group by kind order by min(step)"""
_FEWEST: Final = 3
"""Fewest steps of a kind: fewer are the odd ones at the edges of a job."""
_SMALLEST: Final = 0.01
"""A kind that takes a smaller share of the time in steps is not mentioned, unless the answers are about it, or it has
many steps: a trace may be of those."""
_MANY: Final = 0.1
_MOST: Final = 3


@dataclass(frozen=True, slots=True)
class StepKind:
    name: str
    """The optimizers that step in it, such as "SGD of 4.2 M parameters"."""
    is_main: bool
    """Whether answers about a step are about this kind."""
    steps: int
    share: float
    """Part of the time of all steps, if each took the median of its kind."""
    ns: float
    """Median step."""


def step_kinds(run: Run) -> list[StepKind]:
    """Return the kinds of steps that a job has, in the order of their first; empty if it has one, or none is known."""
    pace = choose_pace(paces(run))
    rows = run.rows(_KINDS.format(within=within((), pace.attempt))) if pace is not None else []
    usual = [(kind, is_main, steps, ns) for kind, is_main, steps, ns in rows if ns is not None and steps >= _FEWEST]
    whole = sum(steps * ns for _, _, steps, ns in usual) or 1
    found = [
        StepKind(_name(run, kind), is_main, steps, steps * ns / whole, ns)
        for kind, is_main, steps, ns in usual
        if is_main or steps * ns >= _SMALLEST * whole or steps >= _MANY * sum(row[2] for row in usual)
    ]
    return found if len(found) > 1 else []


def describe_kinds(run: Run) -> str:
    """Return the kinds of steps in a sentence or two; empty if a job has only one."""
    kinds = sorted(step_kinds(run), key=lambda one: -one.share)
    if not kinds:
        return ""
    told = "; ".join(
        f"{one.steps:,} with {one.name} take {format_ns(round(one.ns))} each and {format_share(one.share)}"
        + ("" if number else " of the time in steps")
        for number, one in enumerate(kinds[:_MOST])
    )
    place = next((number for number, one in enumerate(kinds) if one.is_main), 0)
    why = "" if place == 0 else ", because only they were profiled"
    return f"Steps are of {len(kinds)} kinds: {told}. What follows is about those with {kinds[place].name}{why}."


def _name(run: Run, kind: str) -> str:
    """Name a kind by its optimizers; by their numbers if they were not recorded."""
    told = [json.loads(value) for (value,) in run.rows(f"select distinct value from job where key = '{OPTIMIZER}'")]
    by_number = {str(one.get("number")): one for one in told if isinstance(one, dict)}
    parts = []
    for number in kind.split("+"):
        one = by_number.get(number, {})
        count = one.get("parameters")
        of = f" of {format_count(count)} parameters" if type(count) is int else ""
        parts.append(f"{one.get('type', 'optimizer ' + number)}{of}")
    return " and ".join(parts)

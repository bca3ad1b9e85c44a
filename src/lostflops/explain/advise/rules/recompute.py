"""The backward pass recomputes the forward pass to save memory (activation checkpointing)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.ledger.nesting import Nest
from lostflops.account.ledger.recompute import flag_recomputed_ops
from lostflops.account.ledger.record import distinct
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.computed_ranks import Computed, read_computed_ranks

if TYPE_CHECKING:
    from lostflops.account.ledger.record import Codes
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Place

_SOME: Final = 0.05
"""At least this share of the forward pass's FLOPs must be recomputed."""
_CHANGE: Final = "recompute=off"
_PASSES: Final = 3
"""Backward does twice the work of forward, so both together are this many forward passes."""
_BYTES: Final = {"double": 8, "float": 4, "c10::Half": 2, "c10::BFloat16": 2}


def _find(case: Case) -> Iterator[Claim]:
    share = case.facts.recomputed if case.facts is not None else _share(case)
    if share is None or share < _SOME:
        return
    found = [(one, events) for one in read_computed_ranks(case) if (events := _again(one)).size]
    if not found:
        return
    first, events = found[0]
    names = case.run.rows(
        f"select name, shapes, dtypes, event, module from events where rank = {first.rank} "
        f"and event in ({', '.join(map(str, events.tolist()))})"
    )
    kept = sum(_find_largest_input_bytes(shapes, dtypes) for _, shapes, dtypes, _, _ in names) / first.steps
    modules = sorted({module for *_, module in names if module})[:3]
    ops = ", ".join(sorted({name for name, *_ in names})[:3])
    inside = f" in {', '.join(modules)}" if modules else ""
    room = _room(case)
    taken = _attribute_recompute(case, share)
    yield Claim(
        cause="recompute",
        what=(
            f"The backward pass recomputes {format_share(min(share, 1.0))} of the forward pass (activation "
            "checkpointing)."
        ),
        taken=taken,
        evidence=(
            Evidence(
                f"rank {first.rank} runs {events.size / first.steps:,.0f} forward ops per step inside backward "
                f"({ops}{inside})",
                events=tuple((first.rank, event) for *_, event, _ in names[:5]),
                ranks=tuple(one.rank for one, _ in found),
                steps=first.made.window.number,
            ),
            Evidence(f"storing the inputs of these ops takes at least {format_bytes(round(kept))} more per rank{room}"),
        ),
        strength=Strength.STRONG,
        certain_if="run a few steps without checkpointing, with a batch that fits in memory.",
        fix=(
            "Remove torch.utils.checkpoint.checkpoint from as many layers as fit in memory (all need at least "
            f"{format_bytes(round(kept))} more per rank). If not all fit, checkpoint every second layer, or store "
            "matmuls and attention (torch.utils.checkpoint.create_selective_checkpoint_contexts)."
        ),
        changes=(_CHANGE,) if _is_replay_clear(case) else (),
    )


def _is_replay_clear(case: Case) -> bool:
    """Return whether a replay saves more than step times vary; otherwise the recomputed ops' time is the limit."""
    found = case.price(_CHANGE)
    return found is not None and found.is_gain


def _share(case: Case) -> float | None:
    """Return the recomputed FLOPs of matrix products as a share of the forward pass, which is a third of the model's;
    None if unknown."""
    done = [(effort, count) for effort, (count, _) in case.total.work.efforts.items()]
    again = sum(effort.flops * count for effort, count in done if effort.again)
    once = sum(effort.flops * count for effort, count in done if not effort.again) / _PASSES
    return again / once if once else None


def _again(one: Computed) -> Codes:
    """Return the events of forward ops inside backward; if such ops call each other, only the innermost."""
    formulas = one.record.formulas
    rows = np.flatnonzero(flag_recomputed_ops(one.record))
    rows = rows[one.made.window.inside.within(formulas.start[rows], formulas.start[rows] + 1) > 0]
    outer = np.zeros(rows.size, np.bool_)
    for lane in distinct(formulas.lane[rows]):
        own = np.flatnonzero(formulas.lane[rows] == lane)
        around = Nest(formulas.start[rows[own]], formulas.stop[rows[own]]).parents()
        outer[own[around[around >= 0]]] = True
    return formulas.event[rows[~outer]]


def _find_largest_input_bytes(shapes: str | None, dtypes: str | None) -> int:
    """Return the bytes of the largest input: weights are stored anyway, and are mostly smaller."""
    try:
        dims, types = json.loads(shapes or "[]"), json.loads(dtypes or "[]")
        return max(
            (prod(dim) * _BYTES[kind] for dim, kind in zip(dims, types, strict=True) if kind in _BYTES and dim),
            default=0,
        )
    except (TypeError, ValueError):
        return 0


def _room(case: Case) -> str:
    peak = case.run.rows("select max(peak_memory) from timings")[0][0]
    return f"; the highest peak so far is {format_bytes(peak)}" if peak else ""


def _attribute_recompute(case: Case, share: float) -> dict[Place, int]:
    """Attribute the recomputed part of the forward pass, which is in the backward pass's compute."""
    forward, backward = (case.total.phases.get(name, Counter())["compute"] for name in ("forward", "backward"))
    again = min(forward * share, backward)
    whole = case.total.lines["compute"] or 1
    return {
        (rank, "compute"): round(lines["compute"] * again / whole)
        for rank, lines in case.lines.items()
        if lines["compute"]
    }


RULE: Final = Rule(
    cause="recompute",
    about=(
        "The backward pass needs results of the forward pass. Activation checkpointing discards them and computes them "
        "again when they are needed: it saves memory and costs up to a third more compute. If memory is free, that "
        "compute is wasted."
    ),
    find=_find,
)

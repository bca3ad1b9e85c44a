"""What if backward did the forward pass again instead of keeping its results, or no longer did?"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.graph.editing import retimed
from lostflops.graph.tasks import Flags, Kind, LaneKind, TaskGraph
from lostflops.ledger.phases import BACKWARD, FORWARD
from lostflops.predict.change import Change, Edited, Facts, NotApplicable
from lostflops.predict.edits.selecting import numbered, on_lanes
from lostflops.predict.edits.values import one_of

_DOUBT: Final = 0.2
_SOME: Final = 0.02
"""Share of the forward pass that has to be done again to speak of recomputation."""
_ALL: Final = 0.9
_STALL: Final = 1_000_000
"""What takes so long on the host is no part of the pass, and not done again."""


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    one_of(value, ("on", "off"), "recompute")
    computes = (graph.tasks.kind == Kind.KERNEL) & (graph.tasks.meeting < 0)
    if not (computes & (graph.tasks.phase == FORWARD)).any() or not (computes & (graph.tasks.phase == BACKWARD)).any():
        raise NotApplicable("forward and backward passes cannot be told apart in this run")
    already = facts.recomputed
    if value == "on" and already is not None and already > _ALL:
        raise NotApplicable("backward does the whole forward pass again already")
    if value == "off" and already is None:
        raise NotApplicable("no recorded shape tells what backward does again: record with record_shapes=True")
    if value == "off" and already is not None and already < _SOME:
        raise NotApplicable("backward does nothing of the forward pass again: activations are kept")
    share = 1 - (already or 0.0) if value == "on" else -(already or 0.0)
    duration, gap = graph.tasks.duration.astype(np.float64), graph.tasks.gap.astype(np.float64)
    host = on_lanes(graph, LaneKind.HOST) & np.isin(graph.tasks.kind, (Kind.HOST, Kind.LAUNCH))
    host &= graph.tasks.duration < _STALL
    changed = _grown(graph, duration, computes, share)
    around = host | (on_lanes(graph, LaneKind.HOST) & computes)
    old = np.where(host, duration, 0) + np.where(around & (gap > 0), gap, 0)
    took = _grown(graph, old, around, share)
    factor = np.divide(took, old, out=np.ones(took.size), where=old > 0)
    changed[host] = (duration * factor)[host]
    gap = np.where(around & (gap > 0), gap * factor, gap)
    made = retimed(graph, duration=np.round(changed).astype(np.int64), gap=np.round(gap).astype(np.int64))
    return Edited(made, _DOUBT, _notes(value, share), facts=replace(facts, recomputed=float(value == "on")))


def _grown(graph: TaskGraph, times: npt.NDArray[np.float64], rows: Flags, share: float) -> npt.NDArray[np.float64]:
    """Backward of each layer with so much of the layer's forward, by rank and step; forward of layers whose backward is
    not told goes to all of it."""
    tasks = graph.tasks
    pair = numbered(graph.rank, tasks.step)
    layer = numbered(pair, tasks.layer)
    forward, backward = rows & (tasks.phase == FORWARD), rows & (tasks.phase == BACKWARD)
    ahead = np.bincount(layer, np.where(forward, times, 0))
    behind = np.bincount(layer, np.where(backward, times, 0))
    told = (ahead > 0) & (behind > 0)
    own = np.where(told, ahead, 0) / np.where(behind > 0, behind, 1)
    rest = np.bincount(pair, np.where(forward & ~told[layer], times, 0))
    whole = np.bincount(pair, np.where(backward, times, 0))
    more = own[layer] + (rest / np.where(whole > 0, whole, 1))[pair]
    grown: npt.NDArray[np.float64] = np.where(backward, times * np.maximum(1 + share * more, 0), times)
    return grown


def _notes(value: str, share: float) -> tuple[str, ...]:
    if value == "off":
        return (
            f"Backward no longer does {-share:.0%} of the forward pass again; whether memory suffices is not checked.",
        )
    return (
        (
            f"Backward takes what it took and {share:.0%} of the forward pass, layer by layer where layers are known; "
            "collectives inside the forward pass are not repeated, and nothing uses the memory that becomes free."
        ),
    )


def _how(value: str) -> str:
    if value == "off":
        return "call the layers without torch.utils.checkpoint.checkpoint"
    return "torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) around each layer"


CHANGE: Final = Change(
    name="recompute",
    form="recompute=on|off",
    about="backward does the forward pass again instead of keeping activations",
    cost="on: time for memory; off: memory for time, so that the run may not fit any more",
    how=_how,
    apply=_apply,
    tried=("on", "off"),
)

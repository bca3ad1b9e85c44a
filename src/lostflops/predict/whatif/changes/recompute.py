"""What if backward recomputed activations, of all layers or of some modules, instead of keeping them?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.account.memory.answers import WITH_MEMORY
from lostflops.account.memory.blocks import RankMemory
from lostflops.core.errors import NotApplicable, UsageError
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.tasks import Flags, LaneKind, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered, join_costs
from lostflops.predict.whatif.graph_edits.selecting import number_distinct_rows, on_lanes, ranks_with_device
from lostflops.predict.whatif.recomputation.code import code
from lostflops.predict.whatif.recomputation.recomputable import Recomputable, is_size, names_in

_DOUBT: Final = 0.2
_SOME: Final = 0.02
"""Backward must redo at least this share of the forward pass to count as recomputation."""
_ALL: Final = 0.9
_STALL: Final = 1_000_000
"""A host task of this many ns or more is not part of the pass, and not repeated."""
_DOUBT_OF_BYTES: Final = 0.1
_INPUTS_STAY: Final = (
    "The inputs of a recomputed module stay in memory until its backward has run, and so does the output that later "
    "modules need; while its backward runs, everything it kept is in memory again."
)
_COSTS: Final = {
    "on": "more time for less memory",
    "off": "less time for more memory, so the run may no longer fit",
}
Parts = npt.NDArray[np.int64] | npt.NDArray[np.int32]
Shares = npt.NDArray[np.float64]


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    computes = (graph.tasks.kind == TaskKind.KERNEL) & (graph.tasks.meeting < 0)
    if not (computes & (graph.tasks.phase == FORWARD)).any() or not (computes & (graph.tasks.phase == BACKWARD)).any():
        raise NotApplicable("forward and backward passes cannot be distinguished in this run")
    if value not in ("on", "off"):
        return _some(graph, value, facts, computes)
    already = facts.recomputed
    if value == "on" and already is not None and already > _ALL:
        raise NotApplicable("backward already recomputes the whole forward pass")
    if value == "off" and already is None:
        raise NotApplicable(
            "no shapes were recorded, so recomputation cannot be detected: record with record_shapes=True"
        )
    if value == "off" and already is not None and already < _SOME:
        raise NotApplicable("backward recomputes nothing: activations are kept")
    share = 1 - (already or 0.0) if value == "on" else -(already or 0.0)
    every = np.full(len(graph.tasks), share)
    made = _retime_backward(graph, computes, graph.tasks.layer, every, every)
    return Edited(
        graph=made, doubt=_DOUBT, notes=_notes(value, share), facts=replace(facts, recomputed=float(value == "on"))
    )


def _some(graph: TaskGraph, value: str, facts: Facts, computes: Flags) -> Edited:
    told = _require_recomputable(facts) if is_size(value) else _look_up_recomputable(facts)
    if told is None:
        names, shares = names_in(value), dict[str, float]()
    else:
        names, shares = [told.calls.modules[at] for at in told.find_modules(value)], told.shares()
    module, share, around = _some_modules(graph, names, shares, computes)
    made = _retime_backward(graph, computes, module, share, around)
    return Edited(graph=made, doubt=_DOUBT, notes=_notes_of_some(names, told), extra={"modules": names})


def _retime_backward(graph: TaskGraph, computes: Flags, part: Parts, share: Shares, share_around: Shares) -> TaskGraph:
    """Add the given share of each part's forward to its backward, and to the host's time around it."""
    duration, gap = graph.tasks.duration.astype(np.float64), graph.tasks.gap.astype(np.float64)
    host = on_lanes(graph, LaneKind.HOST) & np.isin(graph.tasks.kind, (TaskKind.HOST, TaskKind.LAUNCH))
    host &= graph.tasks.duration < _STALL
    changed = _add_recompute_time(graph, duration, computes, part, share)
    around = host | (on_lanes(graph, LaneKind.HOST) & computes)
    old = np.where(host, duration, 0) + np.where(around & (gap > 0), gap, 0)
    took = _add_recompute_time(graph, old, around, part, share_around)
    factor = np.divide(took, old, out=np.ones(took.size), where=old > 0)
    changed[host] = (duration * factor)[host]
    gap = np.where(around & (gap > 0), gap * factor, gap)
    return retime_graph(graph, duration=np.round(changed).astype(np.int64), gap=np.round(gap).astype(np.int64))


def _look_up_recomputable(facts: Facts) -> Recomputable | None:
    return facts.recomputable() if facts.recomputable is not None else None


def _require_recomputable(facts: Facts) -> Recomputable:
    found = _look_up_recomputable(facts)
    if found is None:
        raise NotApplicable(f"which modules keep what was not recorded: record with {WITH_MEMORY}")
    return found


def _remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
    if value == "off":
        raise NotApplicable("the activations that would be kept were never allocated, so their size is unknown")
    told = _require_recomputable(facts)
    chosen = told.layers() if value == "on" else told.find_modules(value)
    if not chosen:
        raise NotApplicable(f"no module was recorded, so what layers keep is unknown: record with {WITH_MEMORY}")
    return Remembered(told.edit_memory(memory, chosen), _DOUBT_OF_BYTES, (_INPUTS_STAY,))


def _notes(value: str, share: float) -> tuple[str, ...]:
    if value == "off":
        return (
            f"Backward no longer recomputes {-share:.0%} of the forward pass; whether memory suffices is not checked.",
        )
    return (
        (
            f"Backward takes its recorded time plus {share:.0%} of the forward pass, layer by layer if layers are "
            "known. Collectives in the forward pass are not repeated, and the freed memory is left unused."
        ),
    )


def _notes_of_some(names: Sequence[str], told: Recomputable | None) -> tuple[str, ...]:
    again = f"Backward recomputes {', '.join(names)}"
    if told is None:
        return (f"{again} entirely: no recorded call shows which part backward does not need.",)
    return (f"{again}, as far as backward needs it; collectives in it are not repeated.", *told.calls.notes)


def _how(value: str) -> str:
    if value == "off":
        return "call the layers without torch.utils.checkpoint.checkpoint"
    if is_size(value):
        return "lostflops memory RUN --frontier shows the modules and the code that wraps them"
    if value != "on":
        return code(names_in(value))
    return "torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) around each layer"


CHANGE: Final = Change(
    name="recompute",
    form="recompute=on|off|MODULE,...|BYTES",
    about="backward recomputes activations, of all layers or of some modules, instead of keeping them",
    cost=join_costs(_COSTS),
    costs=_COSTS,
    how=_how,
    apply=_apply,
    tried=("on", "off"),
    remember=_remember,
)


Floats = npt.NDArray[np.float64]


def _add_recompute_time(graph: TaskGraph, times: Floats, rows: Flags, part: npt.NDArray[Any], share: Floats) -> Floats:
    """Return the times with a share of each forward task added to the backward of its part of the model, by rank and
    step. Forward of parts without a recognised backward is spread over all of backward."""
    tasks = graph.tasks
    pair = number_distinct_rows(graph.rank, tasks.step)
    own_part = number_distinct_rows(pair, part)
    forward, backward = rows & (tasks.phase == FORWARD), rows & (tasks.phase == BACKWARD)
    ahead = np.bincount(own_part, np.where(forward, times * share, 0))
    behind = np.bincount(own_part, np.where(backward, times, 0))
    told = behind > 0
    own = np.where(told, ahead, 0) / np.where(told, behind, 1)
    rest = np.bincount(pair, np.where(forward & ~told[own_part], times * share, 0))
    whole = np.bincount(pair, np.where(backward, times, 0))
    more = own[own_part] + (rest / np.where(whole > 0, whole, 1))[pair]
    found: Floats = np.where(backward, times * np.maximum(1 + more, 0), times)
    return found


def _some_modules(
    graph: TaskGraph, names: Sequence[str], shares: Mapping[str, float], computes: Flags
) -> tuple[npt.NDArray[np.int64], Floats, Floats]:
    """Return for each task the module among `names` that it belongs to, else -1; the share of the task that is run
    again; and that share for the host's time around it, which has no module if a device computes."""
    place = np.full(len(graph.words) + 1, -1, np.int64)
    for at, name in enumerate(names):
        inside = [word for word, text in enumerate(graph.words) if text == name or text.startswith(f"{name}.")]
        place[inside] = at
    layer = graph.tasks.layer
    module = np.where(layer >= 0, place[layer], -1)
    for at, name in enumerate(names):
        if outer := next((other for other in names if name.startswith(f"{other}.")), None):
            raise UsageError(f"recompute: {name} is inside {outer}: give only one of them")
        if not ((module == at) & computes).any() and not any(inner.startswith(f"{name}.") for inner in names):
            raise UsageError(f"recompute={name}: give on, off, bytes such as 8GiB, or recorded modules")
    if not names:
        raise NotApplicable("no module is given")
    share = np.array([*(shares.get(name, 1.0) for name in names), 0.0])[module]
    forward = computes & (graph.tasks.phase == FORWARD)
    pair = number_distinct_rows(graph.rank, graph.tasks.step)
    times = np.where(forward, graph.tasks.duration, 0)
    again, every = np.bincount(pair, times * share), np.bincount(pair, times)
    on_device = np.isin(graph.rank, ranks_with_device(graph)) & (layer < 0)
    around = np.where(on_device, (again / np.maximum(every, 1))[pair], share)
    return module, share, around

"""The module of the model that an instant on a thread belongs to, if the collector annotated modules.

On the thread of the forward pass it is the innermost annotation. A backward node has the module of its forward op, and
so has everything inside it, except what an annotation inside the node covers: recomputation by checkpointing. Autograd
numbers ops on each thread, and a node carries the number of its forward op and of that op's thread. Arrows from forward
to backward ops show which lane that thread is. Without them it is the lane that has by far the most of the numbers:
threads count alike, and a lane that merely has them too would give wrong modules.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.ingest.common.columns import NULL, Columns
from lostflops.ingest.timeline.lookups import AnnotationLookup
from lostflops.ingest.timeline.recording import Recording

_BY_FAR: Final = 2
_KEPT: Final = ("lane", "start", "dur", "sequence", "forward_thread")


def module_lookup(recording: Recording) -> AnnotationLookup | None:
    """Return the module at each time; None if no module is annotated: then nothing is read, and there is no cost."""
    if not recording.modules:
        return None
    ops = _read_numbered_ops(recording)
    backward = ops["forward_thread"] > 0
    forward = {name: values[~backward] for name, values in ops.items()}
    nodes = _outermost({name: values[backward] for name, values in ops.items()})
    found = _forward_rows(forward, nodes, recording.links)
    of_forward = AnnotationLookup(recording.modules).at(forward["lane"], forward["start"])
    module = np.where(found >= 0, of_forward[found], 0) if of_forward.size else np.zeros(found.size, np.uint32)
    # A node of unknown module hides nothing: inside another it is part of that one.
    known = np.flatnonzero(module)
    lane, start, dur = (nodes[name][known] for name in ("lane", "start", "dur"))
    return AnnotationLookup([*recording.modules, (lane, start, start + dur, module[known])])


def _read_numbered_ops(recording: Recording) -> Columns:
    """Return ops with an autograd sequence number, in order of start on each lane."""
    pieces = []
    for piece in recording.host.pieces():
        rows = np.flatnonzero(piece["sequence"] != NULL)
        pieces.append({name: piece[name][rows] for name in _KEPT})
    ops = {name: np.concatenate([piece[name] for piece in pieces]) for name in _KEPT}
    order = np.lexsort((-ops["dur"], ops["start"], ops["lane"]))
    return {name: values[order] for name, values in ops.items()}


def _outermost(nodes: Columns) -> Columns:
    """Return the nodes without those that repeat the number of the op around them.

    The engine's call and the node that it evaluates have the same number.
    """
    same = nodes["start"][1:] < (nodes["start"] + nodes["dur"])[:-1]
    for name in ("lane", "sequence", "forward_thread"):
        same &= nodes[name][1:] == nodes[name][:-1]
    first = np.concatenate((np.ones(min(nodes["lane"].size, 1), np.bool_), ~same))
    return {name: values[first] for name, values in nodes.items()}


def _forward_rows(forward: Columns, nodes: Columns, links: Columns) -> npt.NDArray[np.int64]:
    """Return the row of each node's forward op, -1 if it was not recorded.

    Several ops may have one number, since an op that makes no node does not use one up: the last of them made the node.
    """
    found = np.full(nodes["lane"].size, -1, np.int64)
    by_lane = {lane: _by_number(forward, lane) for lane in np.unique(forward["lane"]).tolist()}
    for thread in np.unique(nodes["forward_thread"]).tolist():
        own = np.flatnonzero(nodes["forward_thread"] == thread)
        wanted = nodes["sequence"][own]
        matches = {lane: _last(numbers, rows, wanted) for lane, (numbers, rows) in by_lane.items()}
        if matches:
            arrows = _arrows(links, nodes["lane"][own], nodes["start"][own])
            likely = sorted((arrows.get(lane, 0), int((rows >= 0).sum()), lane) for lane, rows in matches.items())
            (led, held, lane), (others_led, others_held, _) = likely[-1], [(0, 0, -1), *likely][-2]
            if led > others_led or held >= _BY_FAR * others_held:
                found[own] = matches[lane]
    return found


def _by_number(forward: Columns, lane: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    rows = np.flatnonzero(forward["lane"] == lane)
    rows = rows[np.argsort(forward["sequence"][rows], kind="stable")]
    return forward["sequence"][rows], rows


def _last(
    numbers: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    at = np.searchsorted(numbers, wanted, side="right") - 1
    return np.where((at >= 0) & (numbers[at] == wanted), rows[at], -1)


def _arrows(links: Columns, lanes: npt.NDArray[np.int32], starts: npt.NDArray[np.int64]) -> dict[int, int]:
    """Count the arrows from each lane to these ops."""
    if not links:
        return {}
    own = np.isin(links["to_start"], starts) & np.isin(links["to_lane"], lanes)
    origins, counts = np.unique(links["from_lane"][own], return_counts=True)
    return dict(zip(origins.tolist(), counts.tolist(), strict=True))

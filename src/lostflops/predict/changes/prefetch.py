"""What if sharded parameters were gathered earlier?

The host enqueues the gathering of a unit when it comes to the unit so many places before. How far ahead it did so is
read off its recorded order: the gatherings that it had enqueued before the first kernel of a unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.graph.editing import rearranged, with_edges, without_edges
from lostflops.graph.tasks import NONE, Because, Kind, LaneKind
from lostflops.ledger.phases import BACKWARD, FORWARD
from lostflops.predict.change import Change, Edited, Facts, NotApplicable
from lostflops.predict.reductions import called, members, phases
from lostflops.predict.values import count

if TYPE_CHECKING:
    import numpy.typing as npt

    from lostflops.graph.tasks import Flags, TaskGraph

    Rows = npt.NDArray[np.int64]

_FEWEST: Final = 2


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    wanted = 0 if value == "0" else count(value, "prefetch")
    series = _series(graph, _gathers(graph))
    if not series:
        raise NotApplicable("no step has two all-gathers of parameters in one pass: there is nothing to fetch ahead")
    host = _Host(graph)
    depth = round(float(np.median([depth for rows in series for depth in host.depths(rows)] or [0])))
    if wanted == depth:
        raise NotApplicable(f"the run gathers {depth} units ahead already")
    changed = _moved(graph, series, wanted - depth, host)
    notes = (
        f"The run gathers {depth} units ahead, by what the host had enqueued when it came to a unit; now {wanted}.",
        "Memory for units that are gathered early, and waiting for it, is not counted.",
    )
    return Edited(changed, 0.3, notes, {"recorded_prefetch": depth})


def _gathers(graph: TaskGraph) -> Flags:
    """All-gathers of groups that also reduce and scatter."""
    scattered = np.unique(graph.meetings.group[called(graph, "reduce_scatter")])
    found: Flags = called(graph, "all_gather") & np.isin(graph.meetings.group, scattered)
    if not found.any():
        raise NotApplicable("no all-gather of sharded parameters was recorded: prefetching is for FSDP and ZeRO-3")
    return found


def _series(graph: TaskGraph, chosen: Flags) -> list[Rows]:
    """All-gathers of a rank in one pass of one step, in their order."""
    rows = members(graph, chosen)
    rows = rows[graph.tasks.step[rows] >= 0]
    phase = phases(graph)[rows]
    rows, phase = rows[np.isin(phase, (FORWARD, BACKWARD))], phase[np.isin(phase, (FORWARD, BACKWARD))]
    key = np.stack((graph.tasks.lane[rows], graph.tasks.step[rows], phase), 1)
    _, which = np.unique(key, axis=0, return_inverse=True)
    groups = [rows[which.ravel() == number] for number in range(int(which.max(initial=-1)) + 1)]
    return [group for group in groups if group.size >= _FEWEST]


class _Host:
    """Where the host enqueues what."""

    def __init__(self, graph: TaskGraph) -> None:
        edges = graph.edges
        self._graph = graph
        from_host = graph.lanes.kind[graph.tasks.lane[edges.src]] == LaneKind.HOST
        enqueues = from_host & np.isin(edges.because, (Because.LAUNCH, Because.THREAD))
        self.call = np.arange(len(graph.tasks))
        self.call[graph.tasks.kind == Kind.COMM] = NONE
        self.call[edges.dst[enqueues]] = edges.src[enqueues]
        self._order = np.argsort(edges.src, kind="stable")
        self._first = np.searchsorted(edges.src[self._order], np.arange(len(graph.tasks) + 1))

    def needed(self, row: int) -> int:
        """The call that enqueues the first task that needs a gathering, NONE where nothing does."""
        users = self._graph.edges.dst[self._order[self._first[row] : self._first[row + 1]]]
        calls = self.call[users[self._graph.tasks.kind[users] != Kind.COMM]]
        return int(calls.min(initial=len(self._graph.tasks))) if calls.size else NONE

    def depths(self, rows: Rows) -> list[int]:
        """For each gathering but the last, how many later ones were enqueued before what needs it."""
        calls, needed = self.call[rows], [self.needed(row) for row in rows[:-1].tolist()]
        pairs = zip(calls.tolist(), needed, strict=False)
        return [int(((calls > call) & (calls < need)).sum()) for call, need in pairs if min(call, need) >= 0]


def _moved(graph: TaskGraph, series: list[Rows], shift: int, host: _Host) -> TaskGraph:
    """Each gathering waits for what the one `shift` places before it waited for, and stands beside it on its lane.
    Those that would be put off past the last one are enqueued right before what needs them."""
    key = np.arange(len(graph.tasks), dtype=np.float64)
    model = np.arange(len(graph.tasks))
    late: list[int] = []
    for rows in series:
        place = np.arange(rows.size) - shift
        before = rows[np.clip(place, 0, rows.size - 1)]
        model[rows] = before
        key[rows] = before + (np.arange(rows.size) + 1) / (rows.size + 1) * np.sign(rows - before)
        late += [row for row in rows[place >= rows.size].tolist() if host.needed(row) > 0]
    changing = np.flatnonzero(model != np.arange(len(graph.tasks)))
    edges = graph.edges
    order = np.argsort(edges.dst, kind="stable")
    first = np.searchsorted(edges.dst[order], np.arange(len(graph.tasks) + 1))
    taken = [order[first[m] : first[m + 1]] for m in model[changing].tolist()]
    into = np.repeat(changing, [each.size for each in taken])
    like = edges.take(np.concatenate([*taken, np.empty(0, np.int64)]).astype(np.int64))
    changed = without_edges(graph, np.isin(edges.dst, changing))
    for early in (False, True):
        some = like.after_start == early
        changed = with_edges(changed, like.src[some], into[some], like.delay[some], after_start=early)
    needed = np.array([host.needed(row) for row in late], np.int64)
    follows = graph.follows[needed]
    changed = with_edges(changed, needed[follows] - 1, np.array(late, np.int64)[follows])
    return rearranged(changed, graph.tasks.lane, key)


CHANGE: Final = Change(
    "prefetch",
    "prefetch=K",
    "all-gathers of sharded parameters are enqueued so many units ahead; 0: each when its unit comes",
    "every unit that is gathered early holds its memory longer",
    lambda value: (
        f"module.set_modules_to_forward_prefetch(the next {value}) and set_modules_to_backward_prefetch (FSDP2); "
        "FSDP1: forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE"
    ),
    _apply,
    ("1", "2"),
)

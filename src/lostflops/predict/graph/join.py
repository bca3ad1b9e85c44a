"""One graph from the parts of all ranks: lanes and tasks on one clock, and collectives where ranks meet."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.facts.groups import members
from lostflops.account.ledger.call_sizes import SIZE
from lostflops.predict.graph.parts import GraphPart, RankNote, no_meetings
from lostflops.predict.graph.tasks import (
    NONE,
    Edges,
    Index,
    LaneKind,
    Lanes,
    MeasuredTimes,
    Ns,
    StepEdges,
    TaskGraph,
    TaskKind,
    TaskMeetings,
    Tasks,
)
from lostflops.predict.graph.threads.meetings import ends_in_order, on_one_clock, retime_meetings

if TYPE_CHECKING:
    from lostflops.store.run import Run


_CALLS = f"""select rank, event, any_value(meeting), any_value(coalesce(op, '')), any_value({SIZE}),
    any_value(coalesce(group_id, '')), any_value(group_size), any_value(expected), any_value(peer)
    from collectives left join arrivals using (rank, event) where event is not null group by rank, event"""
_NO_FACTS = (np.empty(0, np.int64),) * 6
_MOST_NAMED: Final = 8


def join(run: Run, parts: Sequence[GraphPart]) -> TaskGraph:
    """Join the parts of ranks into one graph. Records that contradict each other raise nothing here: the replay finds
    them."""
    words = _Words()
    clocks = _Clocks(run)
    began = [clocks.to_common(part.rank, part.start) for part in parts]
    ended = [clocks.to_common(part.rank, part.stop) for part in parts]
    zero = min((int(start.min()) for start in began if start.size), default=0)
    codes = [words.add(part.words) for part in parts]
    tasks, edges, steps = _concatenate_parts(parts, codes)
    measured = MeasuredTimes(np.concatenate(began) - zero, np.concatenate(ended) - zero)
    lanes = _lanes(parts, words, clocks, zero)
    graph = TaskGraph(
        tasks=tasks,
        edges=edges,
        meetings=no_meetings(),
        lanes=lanes,
        steps=steps,
        measured=measured,
        words=(),
        notes=collect_notes(parts),
    )
    tasks, meetings = _match_meetings(run, graph, words, _late(parts), _collect_meeting_keys(parts))
    made = TaskGraph(
        tasks=tasks,
        edges=edges,
        meetings=meetings,
        lanes=lanes,
        steps=steps,
        measured=measured,
        words=words.all,
        notes=graph.notes,
    )
    made.self_check()
    return made


class _Words:
    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def add(self, texts: Sequence[str]) -> Index:
        return np.array([self._codes.setdefault(text, len(self._codes)) for text in texts], np.int32)

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(self._codes)


class _Clocks:
    """Converter from clocks of ranks to the common clock; times of a rank whose clock is not tied to others stay as
    they are."""

    def __init__(self, run: Run) -> None:
        rows = run.rows("select rank, coalesce(correction, 0), coalesce(drift, 0), instant from clocks")
        self._known = {rank: tuple(told) for rank, *told in rows}

    def to_common(self, rank: int, times: Ns) -> Ns:
        correction, drift, instant = self._known.get(rank, (0, 0.0, 0))
        grown = drift * 1e-6 * (times + correction - (instant or 0)) if drift else np.zeros(times.size)
        told: Ns = times + correction + np.round(grown).astype(np.int64)
        return told


def _concatenate_parts(parts: Sequence[GraphPart], codes: Sequence[Index]) -> tuple[Tasks, Edges, StepEdges]:
    """Return the tasks, edges and steps of all parts, with lanes and tasks numbered through."""
    lane, task = 0, 0
    tasks: list[Tasks] = []
    edges: list[Edges] = []
    steps: list[tuple[npt.NDArray[Any], ...]] = []
    for part, code in zip(parts, codes, strict=True):
        own, between, edged = part.tasks, part.edges, part.steps
        named = {name: _map_indices(code, getattr(own, name)) for name in ("name", "layer")}
        tasks.append(own._replace(lane=own.lane + np.int32(lane), **named))
        shifted = (between.src + np.int32(task), between.dst + np.int32(task))
        edges.append(Edges(*shifted, between.delay, between.after_start, between.because))
        ends = (np.where(end >= 0, end + task, NONE) for end in (edged.first, edged.last))
        steps.append((np.full(edged.number.size, part.rank), edged.number, *ends, edged.joined, edged.measured))
        lane, task = lane + len(part.lanes), task + len(own)
    return _rows(Tasks, tasks), _rows(Edges, edges), _steps(steps)


def _map_indices(code: Index, index: Index) -> Index:
    coded: Index = np.where(index >= 0, code[index], NONE).astype(np.int32) if code.size else index
    return coded


def _rows(kind: Any, parts: Sequence[Any]) -> Any:
    return kind(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(kind)))


def _steps(parts: Sequence[tuple[npt.NDArray[Any], ...]]) -> StepEdges:
    types: tuple[type[np.generic], ...] = (np.int32, np.int32, np.int32, np.int32, np.bool_, np.int64)
    columns = (
        np.concatenate(column).astype(kind) for column, kind in zip(zip(*parts, strict=True), types, strict=True)
    )
    return StepEdges(*columns)


def _lanes(parts: Sequence[GraphPart], words: _Words, clocks: _Clocks, zero: int) -> Lanes:
    rows = [(part.rank, lane) for part in parts for lane in part.lanes]
    origins = [
        0 if lane.origin is None else int(clocks.to_common(rank, np.array([lane.origin]))[0]) - zero
        for rank, lane in rows
    ]
    return Lanes(
        np.array([rank for rank, _ in rows], np.int32),
        np.array([lane.kind for _, lane in rows], np.int8),
        words.add([lane.name for _, lane in rows]),
        np.maximum(np.array(origins, np.int64), 0),
    )


@dataclass(frozen=True, slots=True)
class _Call:
    """Recorded facts about one rank's part in a meeting."""

    meeting: int
    op: str
    size: int | None
    group: str
    ranks: int | None
    expected: int | None
    peer: int | None


def _has_size(call: _Call | None) -> bool:
    return call is not None and call.size is not None


def _match_meetings(
    run: Run, graph: TaskGraph, words: _Words, late: Index, agreed: dict[int, Hashable]
) -> tuple[Tasks, TaskMeetings]:
    rows = np.flatnonzero(graph.tasks.kind == TaskKind.COMM)
    told = {(rank, event): _Call(*call) for rank, event, *call in run.rows(_CALLS)}
    keys = list(zip(graph.rank[rows].tolist(), graph.tasks.event[rows].tolist(), strict=True))
    calls = [told.get(key) for key in keys]
    ends = _transfers(graph, rows, keys, calls)
    number: dict[Any, int] = {}
    met = (ends.get(key, _meeting(key, call)) for key, call in zip(keys, calls, strict=True))
    whom = [agreed.get(row, key) for row, key in zip(rows.tolist(), met, strict=True)]
    of_row = [number.setdefault(key, len(number)) for key in whom]
    meeting = np.array(of_row, np.int32)
    took, ready, attended = _measure_meetings(graph, rows, meeting, len(number))
    order = np.argsort(ready, kind="stable")
    place = np.empty(order.size, np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)
    of_task = np.full(len(graph.tasks), NONE, np.int32)
    of_task[rows] = place[meeting]
    # Of the members of a scatter only the root records a size.
    sized = sorted(range(len(calls)), key=lambda at: _has_size(calls[at]))
    facts = {of_row[at]: (keys[at], calls[at]) for at in sized}
    hosts = dict(run.rows("select rank, host from ranks"))
    described = zip(
        *(_collect_meeting_facts(*facts[i], int(attended[i]), (words, hosts)) for i in order.tolist()), strict=True
    )
    size, op, group, ranks, across, whole = (np.array(column) for column in described) if order.size else _NO_FACTS
    meetings = TaskMeetings(
        took[order],
        size.astype(np.int64),
        op.astype(np.int32),
        group.astype(np.int32),
        ranks.astype(np.int32),
        across.astype(np.int32),
        np.full(order.size, NONE, np.int32),
        whole.astype(np.bool_),
    )
    tasks = graph.tasks._replace(meeting=of_task)
    tied = [rank for (rank,) in run.rows("select rank from clocks where correction is not null")]
    return retime_meetings(graph, tasks, meetings, on_one_clock(graph, tasks, order.size, tied), late)


def _late(parts: Sequence[GraphPart]) -> Index:
    begins = np.cumsum([0, *(len(part.tasks) for part in parts)])
    return np.concatenate([part.late + begin for part, begin in zip(parts, begins[:-1].tolist(), strict=True)]).astype(
        np.int32
    )


def _transfers(
    graph: TaskGraph, rows: Ns, keys: Sequence[tuple[int, int]], calls: Sequence[_Call | None]
) -> dict[tuple[int, int], Any]:
    """Return the meetings of sends and receives that threads of the host ran, by rank and event."""
    ends: dict[tuple[int, int], tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
    known = {key: call.meeting for key, call in zip(keys, calls, strict=True) if call and call.meeting is not None}
    on_thread = graph.lanes.kind[graph.tasks.lane[rows]] == LaneKind.COMM_THREAD
    for thread, key, call in zip(on_thread.tolist(), keys, calls, strict=True):
        if thread and call is not None and call.peer is not None and call.op in {"send", "recv"}:
            sends = call.op == "send"
            pair = (key[0], call.peer) if sends else (call.peer, key[0])
            ends.setdefault(pair, ([], []))[0 if sends else 1].append(key)
    return {
        end: (pair, number)
        for pair, both in ends.items()
        for number, met in enumerate(ends_in_order(*both, known))
        for end in met
    }


def _collect_meeting_keys(parts: Sequence[GraphPart]) -> dict[int, Hashable]:
    """Return the meeting keys that parts gave to their tasks, by the number of each task in the graph."""
    begins = np.cumsum([0, *(len(part.tasks) for part in parts)]).tolist()
    return {begin + task: key for begin, part in zip(begins, parts, strict=False) for task, key in part.meets.items()}


def _meeting(key: tuple[int, int], call: _Call | None) -> Any:
    return key if call is None or call.meeting is None else call.meeting


def _measure_meetings(graph: TaskGraph, rows: Ns, meeting: Index, count: int) -> tuple[Ns, Ns, Ns]:
    """Return for each meeting the time of the member that arrived last, which no clock can distort; when it arrived;
    and how many members arrived."""
    took, ready = np.full(count, np.iinfo(np.int64).max, np.int64), np.zeros(count, np.int64)
    start, stop = graph.measured.start[rows], graph.measured.stop[rows]
    np.minimum.at(took, meeting, stop - start)
    np.maximum.at(ready, meeting, start)
    return np.maximum(took, 0), ready, np.bincount(meeting, minlength=count)


def _collect_meeting_facts(
    key: tuple[int, int], call: _Call | None, attended: int, known: tuple[_Words, dict[int, str | None]]
) -> Iterator[int | bool]:
    """Yield size, operation, group, its number of ranks and hosts, and whether all members are there."""
    words, hosts = known
    op, group = (call.op, call.group) if call else ("", "")
    own = members(group) or ((key[0], call.peer) if call and call.peer is not None else ())
    ranks = len(own) or (call.ranks if call else None) or 0
    across = {hosts.get(rank) for rank in own}
    yield NONE if call is None or call.size is None else call.size
    yield int(words.add([op])[0])
    yield int(words.add([group])[0])
    yield ranks
    yield 0 if not own or None in across else len(across)
    yield attended >= ((call.expected if call else None) or ranks or 2)


def collect_notes(parts: Sequence[GraphPart]) -> tuple[str, ...]:
    """Return all notes; ranks with the same note are named together, with the largest amount."""
    common = (note for part in parts for note in part.notes)
    return tuple(dict.fromkeys((*common, *_of_ranks(parts))))


def _of_ranks(parts: Sequence[GraphPart]) -> Iterator[str]:
    by_text: dict[str, list[tuple[int, RankNote]]] = {}
    for part in parts:
        for note in part.rank_notes:
            by_text.setdefault(note.said, []).append((part.rank, note))
    for said, own in by_text.items():
        most = max((note for _, note in own), key=lambda note: note.amount).shown
        ranks = sorted(rank for rank, _ in own)
        yield f"{_describe_ranks(ranks)}: {said.format(most if len(ranks) == 1 else f'up to {most}')}."


def _describe_ranks(ranks: Sequence[int]) -> str:
    """Return the ranks as text, with examples if there are many.

    >>> _describe_ranks([3]), _describe_ranks([0, 6]), _describe_ranks(range(64))
    ('Rank 3', 'Ranks 0, 6', '64 ranks, such as 0, 1, 2')
    """
    if len(ranks) > _MOST_NAMED:
        return f"{len(ranks)} ranks, such as {', '.join(map(str, ranks[:3]))}"
    return f"Rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"

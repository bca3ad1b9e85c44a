"""One rank's part of a graph from passes alone: stages wait for their neighbours, and transfers were not recorded.

All stages begin an iteration together. A pass begins when the pass before it on its stage has ended, and the pass it
needs on another stage: on the stage before for a forward pass, on the stage after for a backward pass, and from the
last stage to the first if ranks hold several chunks. The time between is the transfer; nothing else is known about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.facts.kernel_classes import CLASSES
from lostflops.account.ledger.batches import RankBatch
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.phases import BACKWARD, FORWARD, OTHER
from lostflops.account.ledger.record import Codes, Flags
from lostflops.core.errors import UsageError
from lostflops.predict.graph.parts import GraphPart, PartSteps, TaskLane
from lostflops.predict.graph.tasks import NONE, Because, Edges, LaneKind, Ns, TaskKind, Tasks

if TYPE_CHECKING:
    from lostflops.account.ledger.record import Record
    from lostflops.account.ledger.windows import LedgerWindow
    from lostflops.store.run import Run

_LANES: Final = ("compute", "forward-send", "backward-send")
_WORDS: Final = ("iteration", "step", "forward", "backward", "forward-recv", "backward-recv", *_LANES[1:])
_ITERATION, _STEP, _PASS, _RECV, _SEND = 0, 1, 2, 4, 6
_KINDS: Final = np.array(
    [TaskKind.COMM, TaskKind.MARK, TaskKind.KERNEL, TaskKind.KERNEL, *[TaskKind.COMM] * 4], np.int8
)
_PASSES: Final = """
    with sizes as (select max(stage) + 1 as stages, (max(stage) + 1) * (max(coalesce(chunk, 0)) + 1) as places
                   from passes),
    placed as (select rank, step, microbatch, direction = 'backward' as backward, start, stop, stage,
                      coalesce(chunk, 0) as chunk, coalesce(chunk, 0) * stages + stage as place, places, stages
               from passes, sizes),
    own as (select *, if(backward, place - 1, place + 1) as next from placed)
    select own.rank, own.step, own.chunk, own.stage, own.stages, own.backward::int as backward, own.start, own.stop,
           coalesce(own.microbatch, -1) as microbatch, own.place as at,
           if(own.backward, own.place < own.places - 1, own.place > 0) as receives,
           own.next between 0 and own.places - 1 as sends, own.next as next, coalesce(fed.start, -1) as fed
    from own left join placed as fed on fed.step = own.step and fed.microbatch = own.microbatch
         and fed.backward = own.backward and fed.place = own.next
    order by own.start"""
Rows = dict[str, npt.NDArray[Any]]


def pass_part(run: Run, record: Record, edges: LedgerWindow) -> GraphPart:
    """Build the part of a rank from its passes. Raise `UsageError` if the microbatch of a pass is not recorded, or if
    there are more ranks than stages."""
    rows = _rows(run, record.rank, edges)
    count = rows["what"].size
    steps = PartSteps(
        np.array(edges.number, np.int64),
        np.flatnonzero(rows["what"] == _STEP),
        np.append(np.flatnonzero(rows["what"] == _ITERATION)[1:], int((rows["lane"] == 0).sum())) - 1,
        np.concatenate((np.diff(edges.number) == 1, [False])),
        edges.stop - edges.start,
    )
    phase = np.array([OTHER, OTHER, *(FORWARD, BACKWARD) * 3], np.int8)[rows["what"]]
    kinds = _KINDS[rows["what"]]
    line = np.where(kinds == TaskKind.COMM, LINES.index("comm.transfer"), LINES.index("compute"))
    is_pass = kinds == TaskKind.KERNEL
    texts, layer = layers(*(np.where(is_pass, rows[name], NONE) for name in ("stage", "chunk")))
    used, lane = np.unique(rows["lane"], return_inverse=True)
    tasks = Tasks(
        lane.astype(np.int32),
        kinds,
        line.astype(np.int8),
        np.where(is_pass, rows["stop"] - rows["start"], 0),
        _gaps(rows),
        np.full(count, NONE, np.int32),
        rows["step"].astype(np.int32),
        phase,
        np.full(count, CLASSES.index("other"), np.int8),
        rows["what"].astype(np.int32),
        np.where(layer >= 0, layer + len(_WORDS), NONE).astype(np.int32),
        np.full(count, NONE, np.int64),
    )
    lanes = tuple(TaskLane(LaneKind.STREAM, _LANES[own], None) for own in used.tolist())
    met = np.flatnonzero(kinds == TaskKind.COMM)
    keys = np.stack([rows[name][met] for name in ("step", "backward", "microbatch", "meets")], axis=1).tolist()
    meets = {task: tuple(key) for task, key in zip(met.tolist(), keys, strict=True)}
    times = rows["start"], rows["stop"]
    words = (*_WORDS, *texts)
    return GraphPart(
        record.rank, lanes, tasks, _make_send_edges(rows), steps, *times, words, (_UNRECORDED,), meets=meets
    )


_UNRECORDED: Final = (
    "Transfers between stages were not recorded: the time from when a pass could start to when it does counts as its "
    "transfer."
)


def layers(stage: Codes, chunk: Codes) -> tuple[tuple[str, ...], Codes]:
    """Return the names of the parts of the model that a rank holds, and which part each of its passes runs through.

    >>> layers(np.array([2, 2, -1]), np.array([0, 1, -1]))
    (('stage 2 chunk 0', 'stage 2 chunk 1'), array([ 0,  1, -1]))
    """
    known = stage >= 0
    places, which = np.unique(np.stack((stage, chunk))[:, known], axis=1, return_inverse=True)
    found = np.full(stage.size, NONE, np.int64)
    found[known] = which.ravel()
    return tuple(f"stage {stage} chunk {chunk}" for stage, chunk in places.T.tolist()), found


def _rows(run: Run, rank: int, edges: LedgerWindow) -> Rows:
    """Return the tasks of the rank in the order of lanes, as columns."""
    told = run.keep(_PASSES, lambda: RankBatch(run, _PASSES, run.ranks)).of(rank)
    told = {name: column[np.isin(told["step"], edges.number)] for name, column in told.items()}
    if not told["step"].size or (told["microbatch"] < 0).any() or len(run.ranks) > told["stages"].max():
        raise UsageError(
            f"rank {rank} recorded neither transfers nor which passes depend on which, so waits cannot be "
            "reconstructed: put the job's config.json next to the files of all stages and ingest them again"
        )
    new = np.concatenate(([True], np.diff(told["step"]) != 0))
    zero = edges.start[np.searchsorted(edges.number, told["step"])]
    told["before"] = np.where(new, zero, np.concatenate(([0], told["stop"][:-1])))
    told["fed"] = np.where(told["fed"] >= 0, told["fed"], told["stop"])
    told["place"] = np.arange(told["step"].size) * 2.0
    every, forward = np.ones(new.size, np.bool_), told["backward"] == 0
    ended = np.concatenate((edges.start[:1], told["stop"][np.flatnonzero(new)[1:] - 1]))
    first = told["place"][new]
    parts = [
        _make_pass_rows(told, told["receives"], 0, _RECV, ("before", "start", "at")),
        _make_pass_rows(told, every, 0, _PASS, ("start", "stop", "at")) | {"place": told["place"] + 0.5},
        _make_pass_rows(told, told["sends"] & forward, 1, _SEND, ("stop", "fed", "next")),
        _make_pass_rows(told, told["sends"] & ~forward, 2, _SEND, ("stop", "fed", "next")),
        _edge(np.array(edges.number), _ITERATION, ended, edges.start, first - 0.5),
        _edge(np.array(edges.number), _STEP, edges.start, edges.start, first - 0.25),
    ]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort((columns["place"], columns["lane"]))
    return {name: column[order] for name, column in columns.items()}


def _make_pass_rows(told: Rows, rows: Flags, lane: int, what: int, names: tuple[str, str, str]) -> Rows:
    """Return the tasks of some passes; `names` are the columns with the start, the stop, and the place of the pass that
    a task is for."""
    start, stop, meets = (told[name][rows] for name in names)
    kept = {name: told[name][rows] for name in ("step", "microbatch", "backward", "stage", "chunk", "place")}
    lanes = np.full(start.size, lane)
    return kept | {"lane": lanes, "what": what + kept["backward"], "start": start, "stop": stop, "meets": meets}


def _edge(number: Ns, what: int, start: Ns, stop: Ns, place: npt.NDArray[np.float64]) -> Rows:
    """Return one task at the beginning of each step."""
    none, zero = np.full(number.size, NONE), np.zeros(number.size, np.int64)
    known = {"step": number, "start": start, "stop": stop, "place": place, "what": zero + what, "lane": zero}
    return known | dict.fromkeys(("microbatch", "backward", "stage", "chunk", "meets"), none)


def _gaps(rows: Rows) -> Ns:
    """Return how long after the one before a pass began if it receives nothing, 0 for other tasks."""
    gap = np.zeros(rows["what"].size, np.int64)
    both = (rows["lane"][1:] == 0) & (rows["lane"][:-1] == 0) & np.isin(rows["what"][1:], (_PASS, _PASS + 1))
    plain = np.flatnonzero(both & (_KINDS[rows["what"][:-1]] != TaskKind.COMM))
    gap[plain] = rows["start"][plain + 1] - rows["stop"][plain]
    return gap


def _make_send_edges(rows: Rows) -> Edges:
    """Return edges from each pass to the task that sends its result."""
    passes, sends = np.flatnonzero(np.isin(rows["what"], (_PASS, _PASS + 1))), np.flatnonzero(rows["what"] >= _SEND)
    by_place = np.searchsorted(rows["place"][passes], rows["place"][sends], "right")
    src = passes[by_place]
    none = np.zeros(sends.size, np.int64)
    because = np.full(sends.size, Because.DATAFLOW, np.int8)
    return Edges(src.astype(np.int32), sends.astype(np.int32), none, none.astype(np.bool_), because)

"""One rank's part of a graph from ops without a host: what a stage computes, sends and receives.

Ops are on the lanes of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025): compute
with everything else that stops it, collectives of parameters and gradients, and one lane for each direction of
transfers. A pass waits for what it received. Communication waits for what its rank had computed when it was issued.
Compute and transfers also wait for the last collective that had ended. The time by which an op started later than
everything it waited for is its launch delay, and stays.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lostflops.account.facts.kernel_classes import CLASSES
from lostflops.account.ledger.batches import RankBatch
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.phases import BACKWARD, FORWARD, OPTIMIZER, OTHER
from lostflops.account.ledger.record import COMM, Codes, Flags
from lostflops.predict.graph.ops.pass_part import layers, pass_part
from lostflops.predict.graph.parts import GraphPart, PartSteps, TaskLane
from lostflops.predict.graph.tasks import NONE, Because, Edges, LaneKind, Ns, TaskKind, Tasks

if TYPE_CHECKING:
    from lostflops.account.ledger.record import Record
    from lostflops.account.ledger.windows import LedgerWindow
    from lostflops.store.run import Run

LANES: Final = ("compute", "dp", "forward-send", "forward-recv", "backward-send", "backward-recv")
_COMPUTE, _DP = 0, 1
_TRANSFERS: Final = LANES[2:]
_RECEIVED: Final = ((FORWARD, LANES.index("forward-recv")), (BACKWARD, LANES.index("backward-recv")))
_DATA_PARALLEL: Final = ("params-", "grads-")
_OTHER_CLASS: Final = CLASSES.index("other")
_PEERS: Final = "select rank, event, peer from collectives where peer is not null"
_PASSES: Final = """
    select rank, start, coalesce(stage, -1) as stage, coalesce(chunk, 0) as chunk from passes order by rank, start"""
_RESOLUTION: Final = 100_000
"""An op that starts when another ends may be recorded up to this much before that end, in ns."""


def op_part(run: Run, record: Record, edges: LedgerWindow) -> GraphPart:
    if not (record.device.kind == COMM).any():
        return pass_part(run, record, edges)
    return _Builder(run, record).part(edges)


class _Builder:
    def __init__(self, run: Run, record: Record) -> None:
        device = record.device
        lane = np.array([_lane(name) for name in record.names] or [0])[device.name]
        order = np.lexsort((device.start, lane))
        self.run, self.record, self.lane = run, record, lane[order]
        self.start, self.stop, self.step = device.start[order], device.stop[order], device.step[order]
        self.event, self.comm, self.name = device.event[order], device.kind[order] == COMM, device.name[order]
        self.phase = np.array([_phase(name) for name in record.names] or [0])[self.name]
        self.stage, self.chunk = _places(run, record.rank, self.start, self.phase)

    def part(self, edges: LedgerWindow) -> GraphPart:
        src, dst = self._inputs()
        delay, first = self._delays(src, dst)
        follows = np.concatenate(([False], self.lane[1:] == self.lane[:-1]))
        gap = np.zeros(self.lane.size, np.int64)
        gap[:-1][follows[1:]] = delay[1:][follows[1:]]
        used, lane = np.unique(self.lane, return_inverse=True)
        begins = np.searchsorted(self.lane, used)
        texts, layer = layers(self.stage, self.chunk)
        count = self.lane.size
        tasks = Tasks(
            lane.astype(np.int32),
            np.where(self.comm, TaskKind.COMM, TaskKind.KERNEL).astype(np.int8),
            np.where(self.comm, LINES.index("comm.transfer"), LINES.index("compute")).astype(np.int8),
            np.where(self.comm, 0, self.stop - self.start),
            gap,
            np.full(count, NONE, np.int32),
            self.step.astype(np.int32),
            self.phase.astype(np.int8),
            np.full(count, _OTHER_CLASS, np.int8),
            self.name.astype(np.int32),
            np.where(layer >= 0, layer + len(self.record.names), NONE).astype(np.int32),
            self.event,
        )
        lanes = tuple(
            TaskLane(LaneKind.STREAM, LANES[own], int(self.start[at]) if first[at] else None)
            for own, at in zip(used.tolist(), begins.tolist(), strict=True)
        )
        because = np.where(self.lane[dst] == _COMPUTE, Because.STREAM, Because.DATAFLOW)
        between = Edges(
            src.astype(np.int32),
            dst.astype(np.int32),
            delay[dst],
            np.zeros(src.size, np.bool_),
            because.astype(np.int8),
        )
        words = (*self.record.names, *texts)
        own = (lanes, tasks, between, device_steps(edges), self.start, self.stop, words)
        return GraphPart(self.record.rank, *own, meets=self._transfers())

    def _inputs(self) -> tuple[Ns, Ns]:
        """Return what each op waits for besides the one before it on its lane."""
        computes, gathers = np.flatnonzero(self.lane == _COMPUTE), np.flatnonzero(self.lane == _DP)
        others = np.flatnonzero(self.lane != _COMPUTE)
        found = [
            self._latest(computes, others),
            self._latest(gathers, np.flatnonzero(self.lane != _DP)),
            *(self._pair_receives(phase, lane) for phase, lane in _RECEIVED),
        ]
        src, dst = (np.concatenate(column) for column in zip(*found, strict=True))
        return src, dst

    def _latest(self, before: Ns, waiting: Ns) -> tuple[Ns, Ns]:
        """Pair each waiting op with the last op in `before`, which are on one lane, that had stopped when it
        started."""
        if not before.size:
            return before, before
        at = np.searchsorted(np.maximum.accumulate(self.stop[before]), self.start[waiting] + _RESOLUTION, "right") - 1
        known = (at >= 0) & (self.start[before[at]] < self.start[waiting])
        return before[at[known]], waiting[known]

    def _pair_receives(self, phase: int, lane: int) -> tuple[Ns, Ns]:
        """Pair each pass with its own transfer, the first of a step with the first, if all passes receive; else with
        the latest."""
        rows, transfers = np.flatnonzero(self.phase == phase), np.flatnonzero(self.lane == lane)
        return (transfers, rows) if self._each(rows, transfers) else self._latest(transfers, rows)

    def _each(self, rows: Ns, transfers: Ns) -> bool:
        """Return whether every pass has its transfer, in every step."""
        return np.array_equal(np.sort(self.step[rows]), np.sort(self.step[transfers]))

    def _transfers(self) -> dict[int, Hashable]:
        """Return meeting keys of transfers if each pass has its own: the n-th that one rank sends another in a step is
        the n-th that the other receives. Their ends are recorded up to a millisecond apart, longer than many transfers
        take, so they cannot be matched by time."""
        recorded = _of_rank(self.run, _PEERS, self.record.rank)
        peers = dict(zip(recorded["event"].tolist(), recorded["peer"].tolist(), strict=True))
        found: dict[int, Hashable] = {}
        for lane, name in enumerate(LANES[2:], 2):
            direction, end = name.split("-")
            rows = np.flatnonzero(self.lane == lane)
            passes = np.flatnonzero(self.phase == (FORWARD if direction == "forward" else BACKWARD))
            if not self._each(passes, rows):
                continue
            turn = np.arange(rows.size) - np.searchsorted(self.step[rows], self.step[rows])
            for row, event, *when in zip(
                *(a.tolist() for a in (rows, self.event[rows], self.step[rows], turn)), strict=True
            ):
                if (peer := peers.get(event)) is not None:
                    pair = (self.record.rank, peer) if end == "send" else (peer, self.record.rank)
                    found[row] = (direction, *pair, *when)
        return found

    def _delays(self, src: Ns, dst: Ns) -> tuple[Ns, Flags]:
        """Return how long each op was held back after all that it waited for, and which ops waited for nothing."""
        never = np.iinfo(np.int64).min
        ready = np.full(self.lane.size, never, np.int64)
        follows = np.flatnonzero(self.lane[1:] == self.lane[:-1]) + 1
        ready[follows] = self.stop[follows - 1]
        np.maximum.at(ready, dst, self.stop[src])
        first = ready == never
        return np.where(first, 0, self.start - np.where(first, 0, ready)), first


def device_steps(edges: LedgerWindow) -> PartSteps:
    """Return steps that are defined by the work in them. A step ends with its own work if the next step was not
    recorded."""
    number = np.array(edges.number, np.int64)
    none = np.full(number.size, NONE, np.int64)
    joined = np.zeros(number.size, np.bool_)
    joined[:-1] = np.diff(number) == 1
    return PartSteps(number, none, none, joined, edges.stop - edges.start)


def _places(run: Run, rank: int, start: Ns, phase: Codes) -> tuple[Codes, Codes]:
    """Return stage and chunk of each pass, NONE for anything else."""
    stage, chunk = np.full(start.size, NONE, np.int64), np.full(start.size, NONE, np.int64)
    told = _of_rank(run, _PASSES, rank)
    rows = np.flatnonzero(np.isin(phase, (FORWARD, BACKWARD)) & np.isin(start, told["start"]))
    at = np.searchsorted(told["start"], start[rows])
    stage[rows], chunk[rows] = told["stage"][at], told["chunk"][at]
    return stage, chunk


def _of_rank(run: Run, query: str, rank: int) -> dict[str, Any]:
    """Return the columns of one rank; the query is asked once for all ranks."""
    return run.keep(query, lambda: RankBatch(run, query, run.ranks)).of(rank)


def _lane(name: str) -> int:
    if name in _TRANSFERS:
        return LANES.index(name)
    return _DP if name.startswith(_DATA_PARALLEL) else _COMPUTE


def _phase(name: str) -> int:
    known = {"forward-compute": FORWARD, "backward-compute": BACKWARD, "optimizer": OPTIMIZER}
    return known.get(name, OTHER)

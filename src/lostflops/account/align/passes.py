"""Forward and backward passes of microbatches: as recorded, else cut from the device timeline.

In a profiler trace, a pass is a stretch of kernels, in the order of their launches, that are all forward or all
backward, with no transfer between stages among them. This does not show the model chunk of an interleaved schedule, so
such a trace is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.mesh import Mesh
from lostflops.account.ledger.phases import BACKWARD, FORWARD, phases_at
from lostflops.account.ledger.record import KERNEL, Codes, Flags, Ns, Record, records

if TYPE_CHECKING:
    from lostflops.store.run import Run

_RECORDED: Final = """
    select rank, step, microbatch, coalesce(chunk, 0) as chunk, stage, direction = 'backward' as backward, start, stop
    from passes where stage is not null and step is not null and microbatch is not null
    order by rank, step, start, stop"""
_TRANSFERS: Final = """
    select rank, event, coalesce(peer, -1) as peer, op = 'send' as sends from collectives
    where op in ('send', 'recv', 'send_recv') and event is not null"""
_TRANSFER: Final = -1
_CLOCKS: Final = """
    select rank, correction, coalesce(drift, 0) as drift, coalesce(instant, 0) as instant from clocks
    where correction is not null order by rank"""


@dataclass(frozen=True, slots=True)
class PipelinePasses:
    """Passes of microbatches, one row each, by rank and step in the order in which they ran."""

    rank: Codes
    step: Codes
    microbatch: Codes
    chunk: Codes
    stage: Codes
    backward: Flags
    start: Ns
    stop: Ns

    def __len__(self) -> int:
        return int(self.rank.size)

    def where(self, kept: Flags) -> PipelinePasses:
        return PipelinePasses(*(getattr(self, column.name)[kept] for column in fields(self)))


class UnknownPasses(Exception):
    """Raised if there are no passes; its text says why, in a sentence."""


def passes(run: Run, mesh: Mesh) -> PipelinePasses:
    """Return the passes of the run, without overlap on any rank; raise `UnknownPasses` if there are none."""
    columns = run.columns(_RECORDED)
    found = PipelinePasses(
        *(np.asarray(column, None if name == "backward" else np.int64) for name, column in columns.items())
    )
    if not len(found):
        found = _from_timeline(run, mesh)
    return _apart(_on_one_clock(run, found))


def _apart(found: PipelinePasses) -> PipelinePasses:
    """Separate passes of a rank and step: of two that overlap, the second begins when the first ends."""
    new = np.ones(len(found), np.bool_)
    new[1:] = (found.rank[1:] != found.rank[:-1]) | (found.step[1:] != found.step[:-1])
    part = np.cumsum(new)
    # From the start of each part: clocks of two ranks may be months apart.
    since = found.stop - found.start[new][part - 1]
    reach = since + part * (np.ptp(since) + 1)
    shift = found.stop - reach
    before = np.concatenate((reach[:1] * 0, np.maximum.accumulate(reach)[:-1])) + shift
    start = np.where(new, found.start, np.maximum(found.start, before))
    return replace(found, start=start, stop=np.maximum(found.stop, start))


def _on_one_clock(run: Run, found: PipelinePasses) -> PipelinePasses:
    """Convert times to the reference's clock, for ranks with a known offset."""
    rank, offset, drift, instant = (np.asarray(column) for column in run.columns(_CLOCKS).values())
    if not rank.size:
        return found
    at = np.minimum(np.searchsorted(rank, found.rank), rank.size - 1)
    known = rank[at] == found.rank

    def shift(times: Ns) -> Ns:
        moved = times + offset[at]
        moved += np.rint((moved - instant[at]) * (drift[at] / 1e6)).astype(np.int64)
        return np.where(known, moved, times)

    return replace(found, start=shift(found.start), stop=shift(found.stop))


def _from_timeline(run: Run, mesh: Mesh) -> PipelinePasses:
    stages = dict(mesh.dimensions).get("pp", 1)
    if stages == 1:
        raise UnknownPasses(
            "no pipeline was found, because no pipeline group and no passes of microbatches are recorded"
        )
    columns = [np.asarray(column) for column in run.columns(_TRANSFERS).values()]
    if not columns[0].size:
        raise UnknownPasses("no transfers between stages are recorded, so passes cannot be assigned to microbatches")
    parts = []
    for record in records(run, run.ranks):
        own = columns[0] == record.rank
        parts.append(_of_rank(record, mesh, *(column[own] for column in columns[1:])))
    found = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if not found or not found[0].size:
        raise UnknownPasses("no kernel launches are recorded in steps, so passes cannot be separated")
    return PipelinePasses(*found)


def _of_rank(record: Record, mesh: Mesh, event: Codes, peer: Codes, sends: Flags) -> tuple[npt.NDArray[Any], ...]:
    """Return the columns of a rank's passes."""
    stage = mesh.stage(record.rank)
    other = np.array([mesh.stage(rank) if rank >= 0 else -1 for rank in peer.tolist()], np.int64)
    device, host = record.device, record.host
    transfer = np.isin(device.event, event[other != stage])
    rows = np.flatnonzero((device.launch >= 0) & (device.step >= 0) & ((device.kind == KERNEL) | transfer))
    rows = rows[np.argsort(host.start[device.launch[rows]], kind="stable")]
    call = device.launch[rows]
    phase = np.where(transfer[rows], _TRANSFER, phases_at(record, host.start[call], host.lane[call]))
    known = np.isin(phase, (FORWARD, BACKWARD, _TRANSFER))
    rows, phase, step = rows[known], phase[known], device.step[rows][known]
    edge = np.ones(rows.size, np.bool_)
    edge[1:] = (phase[1:] != phase[:-1]) | (step[1:] != step[:-1])
    first = np.flatnonzero(edge)
    if not first.size:
        return tuple(np.empty(0, np.int64) for _ in fields(PipelinePasses))
    kept = phase[first] != _TRANSFER
    start = np.minimum.reduceat(device.start[rows], first)[kept]
    stop = np.maximum.reduceat(device.stop[rows], first)[kept]
    backward, step = phase[first][kept] == BACKWARD, step[first][kept]
    sent = int(np.isin(device.event[rows], event[sends & (other != stage)]).sum())
    forward = int((~backward).sum())
    if stage == 0 and sent and sent != forward:
        raise UnknownPasses(
            f"rank {record.rank} of the first stage sends {sent:,} times in {forward:,} forward passes, so its "
            "schedule is not one of a single model chunk per rank"
        )
    number = ordinal(step * 2 + backward)
    same = np.full(start.size, 1, np.int64)
    return same * record.rank, step, number, same * 0, same * stage, backward, start, stop


def ordinal(keys: Codes) -> Codes:
    """Return how many equal keys came before each.

    >>> ordinal(np.array([7, 5, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(keys, kind="stable")
    new = np.ones(keys.size, np.bool_)
    new[1:] = keys[order][1:] != keys[order][:-1]
    firsts = np.maximum.accumulate(np.where(new, np.arange(keys.size), 0))
    ordinal = np.empty(keys.size, np.int64)
    ordinal[order] = np.arange(keys.size) - firsts
    return ordinal

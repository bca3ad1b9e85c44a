"""Records of a host with the blocking calls that it lost.

Where such a call is lost, the host seems to run Python until the device is done, which stays as long when the device
is done earlier. A pause of the host is a lost call if a blocking call often is between the calls around it, and if it
ended as soon after work of the device as these calls let the host go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Final, NamedTuple

import numpy as np

from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.record import Codes, HostEvents, Ns, Record, distinct
from lostflops.predict.graph.device.host import LONG
from lostflops.predict.graph.device.streams import SOON

_OFTEN: Final = 1 / 2
"""Part of the times that the same two calls follow each other in which a blocking call must be between them."""
_VARIES: Final = 5_000
"""How much longer or shorter than any recorded call a lost one may need to return once the device is done, in ns."""


class _LostSync(NamedTuple):
    row: int
    """Row of a recorded call like the lost one."""
    start: int
    stop: int


def restore_syncs(record: Record) -> Record:
    """Return the record with a row of the host for each lost call that blocked."""
    syncs = record.host.having(Trait.SYNC)
    lost = [call for lane in distinct(record.host.lane[syncs]) for call in _find_lost_syncs(record, lane)]
    if not lost:
        return record
    row, start, stop = (np.array(column, np.int64) for column in zip(*lost, strict=True))
    host = record.host
    more = {"event": np.full(row.size, -1, np.int64), "start": start, "stop": stop}
    more |= {name: getattr(host, name)[row] for name in ("lane", "name", "traits")}
    columns = {one.name: np.concatenate((getattr(host, one.name), more[one.name])) for one in fields(HostEvents)}
    return replace(record, host=HostEvents(**columns))


def _find_lost_syncs(record: Record, lane: int) -> Iterator[_LostSync]:
    host = record.host
    rows = host.having(Trait.RUNTIME | Trait.DATA, [lane])
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    blocks = (host.traits[rows] & Trait.SYNC) != 0
    after, before = host.start[rows[1:]], host.stop[rows[:-1]]
    pauses = np.flatnonzero((after - before > LONG) & ~blocks[1:] & ~blocks[:-1])
    calls = np.flatnonzero(blocks[1:-1] & ~blocks[2:] & ~blocks[:-2]) + 1
    if not pauses.size or not calls.size:
        return
    name, count = host.name[rows], len(record.names)
    around, between = name[calls - 1] * count + name[calls + 1], name[pauses] * count + name[pauses + 1]
    pauses = pauses[np.isin(between, around)]
    plain = name[:-1] * count + name[1:] if pauses.size else name[:0]
    done = np.sort(record.device.stop)
    for pause in pauses.tolist():
        key = int(name[pause] * count + name[pause + 1])
        alike = calls[around == key]
        if alike.size >= _OFTEN * (alike.size + np.count_nonzero(plain == key)):
            yield from _fit(host, rows, alike, pause, done)


def _fit(host: HostEvents, rows: Codes, alike: Codes, pause: int, done: Ns) -> Iterator[_LostSync]:
    """Yield the lost call in a pause if the device was busy when it began, and was done as long before its end as
    before the end of calls that are alike."""
    following = host.start[rows[alike + 1]]
    usual = following - _find_last_done(done, following)
    begin, end = int(host.stop[rows[pause]]), int(host.start[rows[pause + 1]])
    last = int(_find_last_done(done, np.array([end]))[0])
    since = end - last
    if last <= begin or since > SOON or not usual.min() - _VARIES <= since <= usual.max() + _VARIES:
        return
    call = rows[alike]
    start = begin + int(np.median(host.start[call] - host.stop[rows[alike - 1]]))
    stop = end - int(np.median(following - host.stop[call]))
    if begin <= start < stop <= end:
        yield _LostSync(int(call[0]), start, stop)


def _find_last_done(done: Ns, times: Ns) -> Ns:
    """Return when the device last finished something by each time."""
    return done[np.maximum(np.searchsorted(done, times, side="right") - 1, 0)]

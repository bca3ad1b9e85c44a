"""Copies between host and device do not overlap with compute."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.ledger.parts import ops_around
from lostflops.account.ledger.record import MEMCPY
from lostflops.account.ledger.shares import by_event
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_ns, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.computed_ranks import read_computed_ranks

if TYPE_CHECKING:
    from lostflops.account.ledger.record import Codes
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Place
    from lostflops.explain.advise.signs.computed_ranks import Computed

_LEAST: Final = 0.03
_MOSTLY: Final = 0.5
"""Copies count as pageable, or to the host, if at least this part of their time is."""
_LARGE: Final = 1_000_000
"""A copy of at least this many bytes to the host is more than a value that the program reads."""
_TO_DEVICE: Final = re.compile(r"Memcpy HtoD|CopyHostToDevice")
_TO_HOST: Final = re.compile(r"Memcpy DtoH|CopyDeviceToHost")
_PAGEABLE: Final = re.compile(r"Pageable")


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies of one rank."""

    one: Computed
    rows: Codes
    sizes: dict[int, int]
    copy_ns: int
    """Time of copies that do not overlap with compute."""
    idle_ns: int
    """Idle time after calls that waited for a copy."""

    @property
    def ns(self) -> int:
        return self.copy_ns + self.idle_ns


def _find(case: Case) -> Iterator[Claim]:
    found = [_copies(case, one) for one in read_computed_ranks(case) if one.record.on_device]
    wall = sum(own.one.made.window.wall for own in found)
    if not wall or (share := sum(own.ns for own in found) / wall) < _LEAST:
        return
    first = max(found, key=lambda own: own.ns)
    device, names = first.one.record.device, first.one.record.names
    longest = first.rows[np.argsort(device.start[first.rows] - device.stop[first.rows])][:3]
    is_pageable = _share_of(first, _PAGEABLE) > _MOSTLY
    moved = sum(first.sizes.values())
    kind = "pageable " if is_pageable else ""
    source = _sources(case, first, longest)
    yield Claim(
        cause="copies",
        what=(
            f"Copies between {kind}host memory and the device take {format_share(share)} of the time while the device "
            "computes nothing."
        ),
        taken=_attribute_copies(case, found),
        evidence=(
            Evidence(
                f"rank {first.one.rank} copies {format_bytes(round(moved / first.one.steps))} per step in "
                f"{format_ns(round(first.ns / first.one.steps))} ({names[device.name[longest[0]]]})",
                events=tuple((first.one.rank, int(device.event[row])) for row in longest),
                ranks=tuple(own.one.rank for own in found if own.rows.size),
                steps=first.one.made.window.number,
                sources=source,
            ),
        ),
        strength=Strength.STRONG if is_pageable else Strength.FAIR,
        certain_if="record with the fix: copies must use pinned memory and overlap with kernels.",
        fix=_to_host() if _share_of(first, _TO_HOST) > _MOSTLY else _to_device(is_pageable),
    )


def _copies(case: Case, one: Computed) -> _Copies:
    device, names = one.record.device, one.record.names
    assert one.made.gaps is not None
    rows = np.flatnonzero(device.kind == MEMCPY)
    rows = rows[one.made.window.inside.within(device.start[rows], device.start[rows] + 1) > 0]
    all_sizes = _sizes(case, one, device.event[rows])
    kept = [
        row
        for row, event in zip(rows.tolist(), device.event[rows].tolist(), strict=True)
        if _TO_DEVICE.search(names[device.name[row]])
        or (_TO_HOST.search(names[device.name[row]]) and all_sizes.get(event, 0) >= _LARGE)
    ]
    rows = np.array(kept, np.int64)
    own = by_event(device.start[rows], device.stop[rows], one.made.lines["copy"])
    sizes = {event: all_sizes.get(event, 0) for event in device.event[rows].tolist()}
    return _Copies(one, rows, sizes, int(own.sum()), _sum_blocked_idle(one, rows))


def _sum_blocked_idle(one: Computed, rows: Codes) -> int:
    """Return the idle time after calls that blocked inside the ops that copy."""
    gaps, record = one.made.gaps, one.record
    assert gaps is not None
    ns = one.made.lines["idle.sync"].within(gaps.start, gaps.stop)
    held = np.flatnonzero((ns > 0) & (gaps.blocker >= 0))
    calls = record.device.launch[rows]
    copying = ops_around(record, calls)
    blocked = ops_around(record, gaps.blocker[held])
    mine = np.isin(gaps.blocker[held], calls[calls >= 0]) | ((blocked >= 0) & np.isin(blocked, copying[copying >= 0]))
    return int(ns[held[mine]].sum())


def _sizes(case: Case, one: Computed, events: Codes) -> dict[int, int]:
    if not events.size:
        return {}
    query = f"select event, coalesce(bytes, 0) from events where rank = {one.rank} and kind = 'memcpy'"
    return dict(case.run.rows(query))


def _sources(case: Case, own: _Copies, rows: Codes) -> tuple[str, ...]:
    """Return the source lines of the ops that copy, if recorded."""
    record = own.one.record
    ops = ops_around(record, record.device.launch[rows])
    events = [int(record.host.event[op]) for op in ops.tolist() if op >= 0]
    if not events:
        return ()
    listed = ", ".join(map(str, events))
    query = f"select distinct source from events where rank = {own.one.rank} and event in ({listed})"
    return tuple(source for (source,) in case.run.rows(query) if source)


def _share_of(own: _Copies, kind: re.Pattern[str]) -> float:
    device, names = own.one.record.device, own.one.record.names
    ns = (device.stop - device.start)[own.rows]
    named = np.array([kind.search(names[code]) is not None for code in device.name[own.rows].tolist()], np.bool_)
    return float(ns[named].sum() / (ns.sum() or 1))


def _attribute_copies(case: Case, found: list[_Copies]) -> dict[Place, int]:
    """Attribute time to copies; ranks that were not read get the same share as those that were."""
    places: dict[Place, int] = {}
    for line, spent in (
        ("copy", {own.one.rank: own.copy_ns for own in found}),
        ("idle.sync", {own.one.rank: own.idle_ns for own in found}),
    ):
        held = sum(case.lines[rank][line] for rank in spent)
        share = sum(spent.values()) / held if held else 0.0
        for rank, lines in case.lines.items():
            if ns := spent.get(rank, round(lines[line] * share)):
                places[rank, line] = ns
    return places


def _to_host() -> str:
    return (
        "Copy to a pinned buffer without blocking: buffer = torch.empty_like(x, device='cpu', pin_memory=True) once, "
        "then buffer.copy_(x, non_blocking=True) and event.record() with event = torch.cuda.Event(). Read it a step "
        "later, after event.synchronize(). Or copy only every n steps."
    )


def _to_device(is_pageable: bool) -> str:
    ahead = (
        "Copy the next batch on another stream during compute: with torch.cuda.stream(side): batch = "
        "next(batches).to(device, non_blocking=True). Before using it, call "
        "torch.cuda.current_stream().wait_stream(side) and batch.record_stream(torch.cuda.current_stream())."
    )
    pinned = 'Use DataLoader(..., pin_memory=True) and batch.to("cuda", non_blocking=True).'
    return f"{pinned} {ahead}" if is_pageable else ahead


RULE: Final = Rule(
    cause="copies",
    about=(
        "Batches are copied to the device over PCIe. From ordinary (pageable) memory the driver first copies them to "
        "an internal buffer while the program waits. From pinned memory the device reads them directly, several times "
        "as fast, and can compute at the same time."
    ),
    find=_find,
)

"""What is measured next? Every case at one size before any at the next, while there is time.

A case is one op at one level. Its cost at the next size is predicted from the last one, as if time grew with size; that
is never too low by much. If the time left is not enough for all cases, the cheapest continue. The time left at the end
is used to measure sizes again, so that a disturbance of seconds shows as spread and not as a bend.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Final

WARM_UP: Final = 3
"""At most this many calls come before the first batch; no more than a batch has."""
_LONGEST_BATCH, _SHORTEST_BATCH = 2e-3, 2e-4
"""Bounds of a batch's duration in seconds: long compared with how far apart ranks leave a barrier, short compared with
the time between two interrupts of the scheduler."""
_SMALL: Final = 1 << 20
_MOST_CALLS: Final = 1000
_LEAST_BATCHES, _MOST_BATCHES = 3, 11
_FIRST_SHARE: Final = 0.6
"""Share of the time for growing sizes; the rest is for measuring them again."""
_LOOKS, _BATCHES_AGAIN = 5, 5
_DEAREST: Final = 0.05
"""Share of the time left that measuring one size again may take."""
_ROUND_SHARE: Final = 0.3
"""Share of the time left for one size of all cases, if that is enough for the fewest batches."""
_PER_BATCH: Final = 5e-4
"""Seconds between batches: a barrier."""


@dataclass(frozen=True, slots=True)
class Item:
    """What is measured next: some batches of calls, of a case at a size."""

    case: int
    size: int
    calls: int
    """Calls per batch."""
    batches: int
    is_kept: bool = True
    """False for a first look, whose result is thrown away."""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The outcome of an item."""

    call: float | None
    """Seconds per call; None if it cannot be measured."""
    elapsed: float
    """Seconds since the beginning."""


Plan = Generator[Item, TrialOutcome, None]


def sizes_up_to(most: int, least: int = 1024) -> list[int]:
    """Return the sizes from `least` to `most`, each twice the one before.

    >>> sizes_up_to(5000)
    [1024, 2048, 4096]
    """
    return [least << power for power in range(64) if least << power <= most]


def plan(cases: int, sizes: Sequence[int], elapsed: float, seconds: float) -> Plan:
    """Yield items in order; each is answered with its outcome. `sizes` must ascend."""
    known: dict[int, tuple[int, float]] = {}
    for case in range(cases):
        outcome = yield Item(case, sizes[0], 1, _LEAST_BATCHES, is_kept=False)
        elapsed = outcome.elapsed
        if outcome.call is not None:
            known[case] = (sizes[0], outcome.call)
    batch = _batch_seconds(len(known), sizes, seconds - elapsed)
    until = elapsed + _FIRST_SHARE * (seconds - elapsed)
    done: list[tuple[Item, float]] = []
    for size in sizes:
        calls = {case: call * max(size / before, 1) for case, (before, call) in known.items()}
        known = {case: known[case] for case in affordable(calls, until - elapsed)}
        share = _ROUND_SHARE * (until - elapsed) / max(len(known), 1)
        for case in list(known):
            item = _item(case, size, calls[case], batch, share)
            if cost(replace(item, batches=_LEAST_BATCHES), calls[case]) > until - elapsed:
                del known[case]
                continue
            outcome = yield item
            elapsed = outcome.elapsed
            if outcome.call is not None:
                known[case] = (size, outcome.call)
                done.append((item, outcome.call))
    yield from _again(done, elapsed, seconds)


def cost(item: Item, call: float) -> float:
    """Return the seconds that an item takes if one call takes `call` seconds."""
    return (min(item.calls, WARM_UP) + item.batches * item.calls) * call + item.batches * _PER_BATCH


def affordable(calls: dict[int, float], left: float) -> list[int]:
    """Return the cheapest cases whose least costs together fit into the seconds left, in their order.

    >>> affordable({0: 1.0, 1: 0.1, 2: 0.5}, 3.0)
    [1, 2]
    """
    found, total = [], 0.0
    for case in sorted(calls, key=lambda case: calls[case]):
        total += cost(Item(case, 0, 1, _LEAST_BATCHES), calls[case])
        if total <= left:
            found.append(case)
    return sorted(found)


def _again(done: Sequence[tuple[Item, float]], elapsed: float, seconds: float) -> Plan:
    """Yield measured items again and again while there is time, without those that cost more than a share of it."""
    for _ in range(_LOOKS):
        dearest = (seconds - elapsed) * _DEAREST
        for item, call in done:
            again = replace(item, batches=min(item.batches, _BATCHES_AGAIN))
            if cost(again, call) <= min(dearest, seconds - elapsed):
                outcome = yield again
                elapsed = outcome.elapsed


def _item(case: int, size: int, call: float, batch: float, share: float) -> Item:
    calls = min(max(round(batch / call), 1), _MOST_CALLS)
    affords = int(share / (calls * call + _PER_BATCH))
    return Item(case, size, calls, min(max(affords, _LEAST_BATCHES), _MOST_BATCHES))


def _batch_seconds(cases: int, sizes: Sequence[int], left: float) -> float:
    """Return the duration of a batch, so that small sizes take no more than a quarter of the time."""
    small = cases * sum(size <= _SMALL for size in sizes)
    return min(max(left / 4 / max(small * _MOST_BATCHES, 1), _SHORTEST_BATCH), _LONGEST_BATCH)

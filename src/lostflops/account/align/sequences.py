"""Matching of two ranks' records of the same collectives by time, if no number identifies them.

Members of a group run its collectives in one order, and each ends on all ranks at about the same time. So the ends of
two ranks differ by the offset of their clocks, on which most pairs of ends agree. With it every record finds its
partner by time, and a lost record leaves a hole instead of shifting all later ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.calls import Codes, Flags, Ns

_ANCHORS: Final = 64
_WIDTHS: Final = (20_000, 200_000, 2_000_000)
_ENOUGH: Final = 0.6
_FOR_A_SLOPE: Final = 4
"""Points that a line with a slope needs."""
MOST_DRIFT: Final = 200e-6
"""Largest drift between two clocks that drift by at most 100 ppm each."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """Calls of one rank in one channel, in order."""

    op: Codes
    size: Codes
    """-1 if unknown, which fits any."""
    step: Codes
    """-1 if unknown, which fits any."""
    barrier: Flags
    """Whether the call ends nowhere before all ranks have started it."""
    start: Ns
    stop: Ns

    def __len__(self) -> int:
        return int(self.start.size)

    def at(self, places: Codes) -> Sequence:
        return Sequence(*(getattr(self, name)[places] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Shift:
    """How far the second of two clocks is ahead of the first; all times are by the second clock."""

    offset: float
    """How far it is ahead at `origin`, in ns."""
    drift: float
    """Growth of `offset` per ns."""
    origin: int

    def remove(self, times: Ns) -> npt.NDArray[np.int64]:
        """Convert times of the second clock to the first."""
        ahead = self.offset + self.drift * (times - self.origin)
        return times - np.round(ahead).astype(np.int64)


def fits(a: Sequence, b: Sequence, i: Codes, j: Codes, by_step: bool = True) -> Flags:
    """Return whether a[i] and b[j] may be records of one call, by all but time."""
    same: Flags = a.op[i] == b.op[j]
    same &= (a.size[i] == b.size[j]) | (a.size[i] < 0) | (b.size[j] < 0)
    if by_step:
        same &= (a.step[i] == b.step[j]) | (a.step[i] < 0) | (b.step[j] < 0)
    return same


def line(times: Ns, ahead: Ns) -> Shift:
    """Fit a resistant line: slope between the medians of the first and the last third, level of the median.

    The slope is 0 unless it brings the line clearly nearer to the values.
    """
    if not times.size:
        return Shift(0.0, 0.0, 0)
    origin, base = int(np.median(times)), int(ahead[0])
    x, y = (times - origin).astype(np.float64), (ahead - base).astype(np.float64)
    third = max(1, times.size // 3)
    run = float(np.median(x[-third:]) - np.median(x[:third]))
    slope = float(np.median(y[-third:]) - np.median(y[:third])) / run if run > 0 and times.size >= _FOR_A_SLOPE else 0.0
    slope = min(max(slope, -MOST_DRIFT), MOST_DRIFT)
    flat, sloped = (_distance(y - one * x) for one in (0.0, slope))
    if flat <= 2 * sloped:
        slope = 0.0
    return Shift(base + float(np.median(y - slope * x)), slope, origin)


def _distance(values: npt.NDArray[np.float64]) -> float:
    return float(np.median(np.abs(values - np.median(values))))


def in_order(a: Sequence, b: Sequence, known: Shift | None = None, *, loosely: bool = False) -> bool:
    """Return whether both are complete: the same calls, with ends that differ by one offset throughout.

    If `loosely`, they may also just run at the same time throughout: calls that follow each other do not, so a missing
    call would show.
    """
    if len(a) != len(b) or not len(a):
        return False
    places = np.arange(len(a))
    if not fits(a, b, places, places).all():
        return False
    shift = known or line(b.stop, b.stop - a.stop)
    starts, stops = shift.remove(b.start), shift.remove(b.stop)
    apart = np.abs(stops - a.stop)
    together = np.minimum(stops, a.stop) - np.maximum(starts, a.start)
    if bool(((apart <= _WIDTHS[0]) | ((apart <= _tolerance(a.stop)) & (together >= 0))).all()):
        return True
    before = np.minimum(stops[:-1], a.stop[1:]) - np.maximum(starts[:-1], a.start[1:])
    after = np.minimum(stops[1:], a.stop[:-1]) - np.maximum(starts[1:], a.start[:-1])
    nearer = bool((together[1:] >= before).all() and (together[:-1] >= after).all())
    return loosely and nearer and bool((together >= 0).all())


def pair(
    a: Sequence, b: Sequence, known: Shift | None = None, *, loosely: bool = True
) -> tuple[Codes, Codes, Shift] | None:
    """Return the places in `a` and `b` that belong together, and the shift of the clocks; None if nothing fits."""
    if in_order(a, b, known, loosely=loosely):
        places = np.arange(len(a))
        return places, places, known or line(b.stop, b.stop - a.stop)
    alike = _each_alike(a, b, known, loosely=loosely)
    if alike is not None:
        return alike
    found = [_by_time(a, b, known, by_step) for by_step in (True, False)] if len(a) and len(b) else []
    best = max((one for one in found if one is not None), key=lambda one: one[0].size, default=None)
    if best is None or best[0].size < _ENOUGH * min(len(a), len(b)):
        return _as_listed(a, b, known) or best
    return best


def pair_in_order(a: Sequence, b: Sequence, found: tuple[Codes, Codes, Shift]) -> tuple[Codes, Codes]:
    """Return the pairs of two ends that keep their order, although several calls end at almost the same time.

    Pairs that no other call comes near divide both sequences. Between two of them, calls match by order if both sides
    have as many and none is received before it is sent; otherwise the pairs that were found stay. `a` are sends.
    """
    i, j, shift = found
    if i.size == len(a) == len(b) and bool((np.diff(i) > 0).all() and (np.diff(j) > 0).all()):
        return i, j
    stops = shift.remove(b.stop)
    apart = 4 * np.abs(stops[j] - a.stop[i]) + min(_tolerance(a.stop), _WIDTHS[-1])
    is_clear = (_gap_to_others(a.stop, i, stops[j]) > apart) & (_gap_to_others(stops, j, a.stop[i]) > apart)
    order = np.argsort(i[is_clear], kind="stable")
    clear_i, clear_j = i[is_clear][order], j[is_clear][order]
    if (np.diff(clear_j) < 0).any():
        return i, j
    edges_i, edges_j = (np.concatenate(([-1], clear, [size])) for clear, size in ((clear_i, len(a)), (clear_j, len(b))))
    between = np.searchsorted(clear_i, i[~is_clear])
    pairs = [(clear_i, clear_j)]
    for gap in range(edges_i.size - 1):
        own_i = np.arange(edges_i[gap] + 1, edges_i[gap + 1])
        own_j = np.arange(edges_j[gap] + 1, edges_j[gap + 1])
        if own_i.size == own_j.size and fits(a, b, own_i, own_j).all() and (a.start[own_i] <= stops[own_j]).all():
            pairs.append((own_i, own_j))
        else:
            pairs.append((i[~is_clear][between == gap], j[~is_clear][between == gap]))
    whole_i, whole_j = (np.concatenate(one) for one in zip(*pairs, strict=True))
    order = np.argsort(whole_i, kind="stable")
    return whole_i[order], whole_j[order]


def _gap_to_others(times: Ns, own: Codes, wanted: Ns) -> Ns:
    """Return how far each wanted time is from the nearest of `times` other than its own.

    >>> _gap_to_others(np.array([0, 10, 30]), np.array([0, 2]), np.array([1, 28])).tolist()
    [9, 18]
    """
    far = np.iinfo(np.int64).max
    order = np.argsort(times, kind="stable")
    padded = np.concatenate(([-far // 2], times[order], [far // 2]))
    place = np.empty(times.size, np.int64)
    place[order] = np.arange(1, times.size + 1)
    right = np.searchsorted(padded, wanted)
    candidates = np.stack([right - 2, right - 1, right, right + 1])
    candidates = np.clip(candidates, 0, padded.size - 1)
    gaps = np.where(candidates == place[own], far, np.abs(padded[candidates] - wanted))
    nearest_gap: Ns = gaps.min(axis=0)
    return nearest_gap


def _each_alike(a: Sequence, b: Sequence, known: Shift | None, *, loosely: bool) -> tuple[Codes, Codes, Shift] | None:
    """Match calls of each operation and size by themselves; None unless all of these are complete.

    Two calls that threads of the host take up at the same time may begin in either order.
    """
    kinds = np.unique(np.stack((np.concatenate((a.op, b.op)), np.concatenate((a.size, b.size)))), axis=1)
    if kinds.shape[1] < 2 or (kinds[1] < 0).any():
        return None
    places: list[tuple[Codes, Codes]] = []
    for op, size in kinds.T.tolist():
        i, j = (np.flatnonzero((one.op == op) & (one.size == size)) for one in (a, b))
        if not in_order(a.at(i), b.at(j), known, loosely=loosely):
            return None
        places.append((i, j))
    i, j = (np.concatenate(one) for one in zip(*places, strict=True))
    order = np.argsort(i, kind="stable")
    i, j = i[order], j[order]
    shift = known or line(b.stop[j], b.stop[j] - a.stop[i])
    meet = (shift.remove(b.start[j]) <= a.stop[i]) & (a.start[i] <= shift.remove(b.stop[j]))
    return (i, j, shift) if meet.all() else None


def _tolerance(stops: Ns) -> float:
    spacing = np.diff(np.sort(stops))
    return max(float(_WIDTHS[0]), float(np.median(spacing)) / 4 if spacing.size else 0.0)


def _as_listed(a: Sequence, b: Sequence, known: Shift | None) -> tuple[Codes, Codes, Shift] | None:
    """Match the same calls in the same order, if times show nothing but do not contradict it.

    A broadcast may end long before it is received.
    """
    places = np.arange(len(a))
    if len(a) != len(b) or not fits(a, b, places, places).all() or not _may_meet(a, b, known):
        return None
    return places, places, known or line(b.stop, b.stop - a.stop)


def _may_meet(a: Sequence, b: Sequence, known: Shift | None) -> bool:
    """Return whether by some clock each barrier of one runs at the same time as the other's at its place."""
    both = a.barrier & b.barrier
    if not both.any():
        return True
    least = int((b.start[both] - a.stop[both]).max())
    most = int((b.stop[both] - a.start[both]).min())
    if known is not None:
        return least - _WIDTHS[0] <= known.offset <= most + _WIDTHS[0]
    return least <= most + MOST_DRIFT * float(a.stop[-1] - a.start[0])


def _by_time(a: Sequence, b: Sequence, known: Shift | None, by_step: bool) -> tuple[Codes, Codes, Shift] | None:
    shift = known or _vote(a, b, by_step)
    if shift is None:
        return None
    i, j = _partners(a, b, shift, by_step)
    for _ in range(2):
        if i.size < 2 or known is not None:
            break
        shift = line(b.stop[j], b.stop[j] - a.stop[i])
        i, j = _partners(a, b, shift, by_step)
    return (i, j, shift) if i.size else None


def _vote(a: Sequence, b: Sequence, by_step: bool) -> Shift | None:
    """Return the difference of ends that most pairs share; None if no pair fits."""
    anchors = np.unique(np.linspace(0, len(a) - 1, min(_ANCHORS, len(a))).astype(np.int64))
    i, j = np.repeat(anchors, len(b)), np.tile(np.arange(len(b)), anchors.size)
    may = fits(a, b, i, j, by_step)
    differences = np.sort(b.stop[j[may]] - a.stop[i[may]])
    if not differences.size:
        return None
    could = min(anchors.size, len(b))
    best, width = (0, 0), _WIDTHS[0]
    for width in _WIDTHS:
        votes = np.searchsorted(differences, differences + width, side="right") - np.arange(differences.size)
        best = int(votes.max()), int(votes.argmax())
        if best[0] >= _ENOUGH * could:
            break
    chosen = differences[best[1] : best[1] + best[0]]
    return Shift(float(chosen[0]) + float(np.median(chosen - chosen[0])), 0.0, int(b.stop[len(b) // 2]))


def _partners(a: Sequence, b: Sequence, shift: Shift, by_step: bool) -> tuple[Codes, Codes]:
    """Return calls whose ends are nearest to each other, that fit, and that run at the same time."""
    stops = shift.remove(b.stop)
    i = nearest(a.stop, stops)
    j = np.arange(len(b))
    mutual = nearest(stops, a.stop)[i] == j
    i, j = i[mutual], j[mutual]
    meets = (shift.remove(b.start[j]) <= a.stop[i]) & (a.start[i] <= stops[j])
    kept = meets & fits(a, b, i, j, by_step)
    return i[kept], j[kept]


def nearest(times: Ns, wanted: Ns) -> Codes:
    """Return the place of the time that is nearest to each wanted time.

    >>> nearest(np.array([0, 10, 20]), np.array([4, 6, 99])).tolist()
    [0, 1, 2]
    """
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    right = np.clip(np.searchsorted(ordered, wanted), 1, max(ordered.size - 1, 1))
    left = right - 1
    right = np.minimum(right, ordered.size - 1)
    chosen: Codes = order[np.where(wanted - ordered[left] <= ordered[right] - wanted, left, right)]
    return chosen

"""Cost curves of the calls that a replay re-times, with their link to themselves.

Gradient buckets overlap and slow each other down, so a curve through recorded durations would count sharing as latency.
Calls of one size, or of nearly one, do not separate latency from bandwidth: small ones count mostly as latency, others
as bandwidth, and the interval allows for as much latency as networks have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, sqrt
from statistics import fmean, median
from typing import Final

from lostflops.predict.costs.algorithms import FORMS, algorithms_of
from lostflops.predict.costs.curve import Constant, Curve, CurvePiece
from lostflops.predict.costs.fit import fit_curve
from lostflops.predict.costs.times import OPS, CommGroup
from lostflops.predict.scaling.timeline import StepTimeline

NARROW: Final = 4
"""Sizes that are closer together than this, the largest over the smallest, count as one."""
SMALL: Final = 65_536
"""The time of messages up to this size, in bytes, is mostly latency."""
MOST_LATENCY: Final = {"gloo": 1e6}
"""Largest latency of one message in ns, by backend."""
_OTHER_LATENCY: Final = 2e4
_OF_BYTES: Final = 0.25
"""Part of the time of the quickest small message that depends on bytes."""

Key = tuple[str, str, int, int]
Samples = dict[int, list[float]]


@dataclass(frozen=True)
class OwnTimes:
    """Curves from the run that is replayed, used in place of a calibration."""

    backend: str | None
    samples: Mapping[Key, Samples]
    date: str | None = None

    @classmethod
    def of(
        cls, timelines: Sequence[StepTimeline], group: Callable[[str], CommGroup | None], backend: str | None
    ) -> OwnTimes:
        """Collect samples of groups that grow; `group` gives the ranks and hosts of such a group, and None for any
        other."""
        samples: dict[Key, Samples] = {}
        for one in timelines:
            for call, queued in zip(one.calls, one.queued, strict=True):
                own = group(call.group)
                if own is not None and own.ranks > 1 and call.op in OPS and call.size and queued.alone > 0:
                    found = samples.setdefault((call.op, own.level, own.ranks, own.hosts), {})
                    found.setdefault(call.size, []).append(queued.alone)
        return cls(backend, samples)

    @cached_property
    def curves(self) -> dict[Key, Curve]:
        return {key: self._curve(key, samples) for key, samples in self.samples.items()}

    def _curve(self, key: Key, samples: Samples) -> Curve:
        algorithm = algorithms_of(self.backend or "", key[0])[0]
        steps = FORMS[OPS[OPS.index(key[0])], algorithm].steps(key[2])
        latency = steps * MOST_LATENCY.get(self.backend or "", _OTHER_LATENCY)
        if max(samples) < NARROW * min(samples):
            return mostly_latency(samples) if max(samples) <= SMALL else proportional(samples, latency)
        pieces = fit_curve(list(samples), list(samples.values())).pieces
        if len(pieces) == 1 and min(samples) > SMALL:
            pieces = (_plausible(pieces[0], latency, sqrt(min(samples) * max(samples))),)
        return Curve(tuple(_bound_interval(piece, latency, sqrt(min(samples) * max(samples))) for piece in pieces))


def _plausible(piece: CurvePiece, latency: float, centre: float) -> CurvePiece:
    """Limit the latency of a line to what networks have. Large messages do not show latency: what a line has above that
    comes from something else, such as compute beside the smaller ones. Its time at the middle stays."""
    if piece.alpha.value <= latency:
        return piece
    rate = max(piece.at(centre) - latency, 0.0) / centre
    return replace(piece, alpha=Constant(latency, 0.0, latency), beta=Constant(rate, piece.beta.low, rate))


def _bound_interval(piece: CurvePiece, latency: float, centre: float) -> CurvePiece:
    """Limit the interval of a piece. Few sizes leave wide intervals; but no network has more latency than this, and
    bandwidth compensates for what it has."""
    own = sqrt(piece.shape[0]) if isfinite(piece.shape[0]) else latency
    return replace(piece, margin=2 * piece.spread, shape=_trade_latency(min(own, latency), centre))


def _trade_latency(latency: float, size: float) -> tuple[float, float, float]:
    """Return the shape of an interval in which latency is traded for bandwidth, so that the time at one size stays."""
    return latency**2, (latency / size) ** 2, -(latency**2) / size


def mostly_latency(samples: Samples) -> Curve:
    """Return the curve of small messages of about one size. The quickest one limits the time that depends on bytes: a
    quarter of it is assumed, and the interval includes both ends. The extra time of others is latency too: threads that
    get their core late.

    >>> (piece,) = mostly_latency({1000: [4e4, 4e4]}).pieces
    >>> piece.at(1000), piece.beta
    (40000.0, Constant(value=10.0, low=0.0, high=40.0))
    """
    times = sorted(ns for own in samples.values() for ns in own)
    usual, quick = fmean(times), times[len(times) // 10]
    size = sum(of * len(own) for of, own in samples.items()) / len(times)
    most = quick / size
    rate = _OF_BYTES * most
    alpha = Constant(usual - rate * size, usual - quick, usual)
    spread = 1.4826 * median(abs(ns - usual) for ns in times) / usual / sqrt(len(times))
    shape = _trade_latency((1 - _OF_BYTES) * quick, size)
    return Curve((CurvePiece(min(samples), max(samples), alpha, Constant(rate, 0.0, most), spread, 2 * spread, shape),))


def proportional(samples: Samples, most: float) -> Curve:
    """Return a curve without latency; its interval includes up to `most` ns of it, if the times leave room.

    >>> (piece,) = proportional({1000: [5e6, 5e6]}, 2e6).pieces
    >>> piece.alpha, piece.beta.low, piece.beta.value
    (Constant(value=0.0, low=0.0, high=2000000.0), 3000.0, 5000.0)
    """
    rates = [ns / size for size, times in samples.items() for ns in times]
    rate = median(rates)
    spread = 1.4826 * median(abs(each - rate) for each in rates) / rate
    latency = min(most, rate * min(samples))
    beta = Constant(rate, rate - latency / max(samples), rate)
    return Curve(
        (
            CurvePiece(
                min(samples),
                max(samples),
                Constant(0.0, 0.0, latency),
                beta,
                spread,
                2 * spread,
                _trade_latency(latency, max(samples)),
            ),
        )
    )

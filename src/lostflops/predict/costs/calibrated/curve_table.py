"""Measured times of each operation and group, with the curve fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from statistics import median

from lostflops.account.facts.bandwidth import bus_factor
from lostflops.predict.costs.calibration import Calibration, Key, Samples
from lostflops.predict.costs.curve import Constant, Curve, CurvePiece
from lostflops.predict.costs.times import OPS


def name_of(key: Key) -> str:
    """Return the operation and group of a key as text.

    >>> name_of(("all_reduce", "world", 16, 2)), name_of(("send_recv", "pair.host", 2, 1))
    ('all_reduce world 16 on 2', 'send_recv pair.host 2')
    """
    return f"{key[0]} {group_name(key)}"


def group_name(key: Key) -> str:
    _, level, ranks, hosts = key
    return f"{level} {ranks}" + (f" on {hosts}" if hosts > 1 else "")


@dataclass(frozen=True)
class FittedCurve:
    key: Key
    samples: Samples
    curve: Curve

    @cached_property
    def medians(self) -> dict[int, float]:
        return {size: median(ns) for size, ns in self.samples.items()}

    @cached_property
    def errors(self) -> dict[int, float]:
        """Relative error of the curve against the median, by size, without sign."""
        return {size: abs(self.curve.at(size) / ns - 1) for size, ns in self.medians.items() if ns > 0}

    @property
    def group(self) -> str:
        return group_name(self.key)

    @property
    def name(self) -> str:
        return name_of(self.key)

    def bandwidth(self, piece: CurvePiece | None = None) -> Constant:
        """Return busbw in GB/s, of the largest sizes unless a piece is given; infinite if time does not grow with
        size."""
        beta = (piece or self.curve.pieces[-1]).beta
        # Logs of nccl-tests size scatter and gather as all-gather: by the whole.
        op = "all_gather" if self.key[0] in {"scatter", "gather"} else self.key[0]
        factor = bus_factor(op, self.key[2]) or 1.0
        value, low, high = (factor / ns if ns > 0 else inf for ns in (beta.value, beta.high, beta.low))
        return Constant(value, low, high)


def list_fitted_curves(calibration: Calibration) -> list[FittedCurve]:
    return [FittedCurve(key, calibration.samples[key], curve) for key, curve in sorted(calibration.curves.items())]


def most_telling(found: Sequence[FittedCurve]) -> list[FittedCurve]:
    """Return the groups of the operation that shows most about a network: all-reduce if it was measured."""
    order = {str(op): place for place, op in enumerate(OPS)}
    first = min((one.key[0] for one in found), key=lambda op: order.get(op, len(order)))
    return [one for one in found if one.key[0] == first]

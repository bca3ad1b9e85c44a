"""What does communication cost on this cluster, how certain is that, and where is the fit wrong?

The result has constants by operation and group, errors by size, plots of measured and predicted times, and the roofline
of the device. With another calibration, it also shows where the two agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, isfinite
from statistics import median
from typing import Final

from lostflops.core.results import Block, Result
from lostflops.core.units import format_bytes, format_share, pluralise
from lostflops.predict.costs.calibrated import fitted_tables as tables
from lostflops.predict.costs.calibrated.curve_table import FittedCurve, list_fitted_curves, most_telling, name_of
from lostflops.predict.costs.calibration import Calibration
from lostflops.predict.costs.fit import FAR
from lostflops.predict.costs.roofline import DeviceRoofline, roofline

OUTLYING: Final = 3
"""A sample that took more than this many times the median of its size is an outlier."""
WIDE: Final = 0.25
"""A size whose samples are typically further than this from their median, relative, was measured badly."""
POOR: Final = 0.1
"""Curves that miss half of the sizes by more than this, relative, were fitted to disturbed times."""
_MOST_NAMED: Final = 4
_PLACES: Final = {
    "host": "inside a host",
    "across": "across hosts, one rank on each",
    "world": "across hosts",
    "ring": "around the ring",
    "pair.host": "between two ranks on one host",
    "pair.across": "between two hosts",
}


def show(calibration: Calibration, other: Calibration | None = None) -> Result:
    found, limits = list_fitted_curves(calibration), roofline(calibration)
    plots = tables.plots(found)
    blocks: list[Block] = [tables.constants(found), tables.errors(found), plots[0]] if found else []
    if reached := tables.tabulate_peak_rates(limits):
        blocks.append(reached)
    if other is not None:
        blocks.append(tables.tabulate_comparison(calibration, other))
    says = (*_levels(found), *_accuracy(found), *_peaks(limits), *_agreement(calibration, other))
    return Result(
        name="calibrate",
        title="Calibration",
        verdict=" ".join(says) or "Nothing was measured that a curve can be fitted to.",
        blocks=tuple(blocks),
        notes=(*_notes(calibration, found), *calibration.notes),
        more=(tables.groups(found), *plots[1:], *([tables.residuals(found)] if found else [])),
    )


def _levels(found: Sequence[FittedCurve]) -> Iterator[str]:
    """Yield how bandwidth inside a host compares with that across hosts, by the largest groups of the most informative
    operation."""
    if not found:
        return
    main = sorted(most_telling(found), key=lambda one: one.key[2:])
    inside, beyond = ([one for one in main if (one.key[3] > 1) == is_beyond] for is_beyond in (False, True))
    op = main[0].key[0]
    if not (inside and beyond):
        one = main[-1]
        yield f"{op} {_rate(one)} {_PLACES.get(one.key[1], one.key[1])}, with {one.key[2]} ranks."
        return
    near, far = inside[-1].bandwidth(), beyond[-1].bandwidth()
    says = f"{op} {_rate(inside[-1])} inside a host and {_rate(beyond[-1])} across hosts"
    if far.high < near.low:
        yield f"{says}: across hosts is the slowest level, {_times(near.value, far.value)} slower."
    elif near.high < far.low:
        yield f"{says}: inside a host is the slowest level, {_times(far.value, near.value)} slower."
    else:
        yield f"{says}: their intervals overlap, so neither is clearly slower."


def _rate(one: FittedCurve) -> str:
    bandwidth = one.bandwidth()
    if bandwidth.value == inf:
        return "takes the same time at all sizes"
    bounds = f"{bandwidth.low:.3g} to {bandwidth.high:.3g}" if bandwidth.high < inf else f"at least {bandwidth.low:.3g}"
    return f"moves {bandwidth.value:.3g} GB/s (busbw, {bounds if bandwidth.low > 0 else 'accuracy unknown'})"


def _times(fast: float, slow: float) -> str:
    return f"{fast / slow:.3g} times" if isfinite(fast) else "many times"


def _accuracy(found: Sequence[FittedCurve]) -> Iterator[str]:
    large = [error for one in found for size, error in one.errors.items() if size >= tables.LARGE]
    small = [error for one in found for size, error in one.errors.items() if size < tables.LARGE]
    said = [
        f"within {format_share(max(errors))} of the measurements {where} (median {format_share(median(errors))})"
        for where, errors in (("from 1 MB up", large), ("below 1 MB", small))
        if errors
    ]
    if said:
        yield f"The curves are {', and '.join(said)}."
    if said and median(large + small) > POOR:
        yield "That is poor: something disturbed the measurement. Measure again while nothing else runs."


def _peaks(limits: DeviceRoofline) -> Iterator[str]:
    if limits.matmuls:
        best = sorted(limits.matmuls, key=lambda dtype: -limits.matmuls[dtype].rate)
        yield f"Matmuls reach {', '.join(f'{limits.achievable_tflops(one):.3g} TFLOP/s in {one}' for one in best)}."


def _agreement(calibration: Calibration, other: Calibration | None) -> Iterator[str]:
    if other is None:
        return
    pairs = [(ns, curve.interval(size)) for _, curve, size, ns in tables.pairs(calibration, other)]
    if not pairs:
        yield "The two calibrations have no operation and group in common, so they cannot be compared."
        return
    apart = sum(not told.low <= ns <= told.high for ns, told in pairs)
    ratio = median(ns / told.ns for ns, told in pairs if told.ns > 0)
    yield (
        f"Compared at {pluralise(len(pairs), 'size')}: times here are {ratio:.2f}x those of the other (median), "
        f"{apart} outside its interval."
    )


def _notes(calibration: Calibration, found: Sequence[FittedCurve]) -> Iterator[str]:
    yield from _scatter(found)
    if far := [_at(one, size) for one in found for size, error in one.errors.items() if error > FAR]:
        yield f"Far from the curve: {_some(far)}."
    if falling := [one.name for one in found if _falls(one)]:
        yield f"Larger sizes take less time than smaller ones, which the model cannot fit: {_some(falling)}."
    if unknown := [one.name for one in found if not isfinite(one.curve.pieces[0].margin)]:
        yield f"Accuracy unknown, because too few sizes were measured: {_some(unknown)}."
    if lacking := [name_of(key) for key in calibration.samples if key not in calibration.curves]:
        yield f"Too few sizes measured to fit a curve: {_some(lacking)}."
    alike = [
        f"{one.name} and {two.name}"
        for one in found
        for two in found
        if one.key[0] == two.key[0] and one.key[3] == 1 < two.key[3] and _overlap(one, two)
    ]
    if alike:
        yield f"Bandwidths do not differ clearly: {_some(alike)}."


def _scatter(found: Sequence[FittedCurve]) -> Iterator[str]:
    outliers = total = 0
    wide: list[str] = []
    for one in found:
        for size, ns in one.samples.items():
            middle = one.medians[size]
            outliers += sum(sample > OUTLYING * middle for sample in ns)
            total += len(ns)
            if len(ns) > 3 and median(abs(sample - middle) for sample in ns) > WIDE * middle:
                wide.append(_at(one, size))
    if outliers:
        yield (
            f"{pluralise(outliers, 'sample')} of {total:,} took more than {OUTLYING}x the median of their size. The "
            "file keeps them; the medians ignore them."
        )
    if wide:
        yield f"Spread above {format_share(WIDE)}: {_some(wide)}. Measure again on a quiet machine."


def _falls(one: FittedCurve) -> bool:
    """Return whether the time of the largest size is well below that of the smallest."""
    return one.medians[max(one.medians)] < (1 - WIDE) * one.medians[min(one.medians)]


def _overlap(one: FittedCurve, two: FittedCurve) -> bool:
    near, far = one.bandwidth(), two.bandwidth()
    return max(near.low, far.low) <= min(near.high, far.high)


def _at(one: FittedCurve, size: int) -> str:
    return f"{one.name} at {format_bytes(size)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return "; ".join(names[:_MOST_NAMED]) + more

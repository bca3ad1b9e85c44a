"""Tables and plots of measured times, fitted curves and their errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, isfinite, log10
from statistics import median
from typing import Final

from lostflops.core.results import Field, Plot, Series, Table, Value
from lostflops.predict.costs.calibrated.curve_table import FittedCurve, most_telling, name_of
from lostflops.predict.costs.calibration import Calibration, Key
from lostflops.predict.costs.curve import Curve
from lostflops.predict.costs.roofline import DeviceRoofline, Reached

LARGE: Final = 1_000_000
"""From this size on, in bytes, bandwidth matters; the time of smaller sizes is mostly latency."""


def constants(found: Sequence[FittedCurve]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for one in found:
        for piece in one.curve.pieces:
            alpha, bandwidth = piece.alpha, one.bandwidth(piece)
            rows.append(
                (
                    one.name,
                    *one.key,
                    piece.first,
                    piece.last,
                    *(round(ns) if isfinite(ns) else None for ns in (alpha.value, alpha.low, alpha.high)),
                    *(gbs if isfinite(gbs) else None for gbs in (bandwidth.value, bandwidth.low, bandwidth.high)),
                    piece.spread if isfinite(piece.margin) else None,
                )
            )
    fields = (
        Field("name", label="group"),
        *(Field(name, shown=False) for name in ("op", "level", "ranks", "hosts")),
        Field("first_bytes", "bytes", "from"),
        Field("last_bytes", "bytes", shown=False),
        Field("alpha_ns", "ns", "alpha"),
        Field("alpha_low_ns", "ns", "low"),
        Field("alpha_high_ns", "ns", "high"),
        Field("busbw_gbs", "gbs", "GB/s"),
        Field("busbw_low_gbs", "gbs", "low"),
        Field("busbw_high_gbs", "gbs", "high"),
        Field("spread", "share", shown=False),
    )
    return Table(
        "constants", "Latency (alpha) and bus bandwidth (1/beta), one row per linear piece", fields, tuple(rows)
    )


def errors(found: Sequence[FittedCurve]) -> Table:
    """Tabulate errors by decade of sizes, all groups together."""
    decades: dict[int, list[tuple[float, int, FittedCurve]]] = {}
    for one in found:
        for size, error in one.errors.items():
            decades.setdefault(floor(log10(size)), []).append((error, size, one))
    rows: list[tuple[Value, ...]] = []
    for decade, missed in sorted(decades.items()):
        worst, size, one = max(missed, key=lambda item: item[0])
        rows.append((10**decade, len(missed), median(error for error, *_ in missed), worst, size, one.name))
    fields = (
        Field("from_bytes", "bytes", "sizes from"),
        Field("count", "count", "measured"),
        Field("median_error", "share", "median error"),
        Field("worst_error", "share", "worst"),
        Field("worst_bytes", "bytes", "at"),
        Field("worst_of", label="group"),
    )
    return Table("errors", "Error of the curves, by size", fields, tuple(rows))


def groups(found: Sequence[FittedCurve]) -> Table:
    """Tabulate errors by operation and group, below 1 MB and from there on."""
    rows: list[tuple[Value, ...]] = []
    for one in found:
        small = [error for size, error in one.errors.items() if size < LARGE]
        large = [error for size, error in one.errors.items() if size >= LARGE]
        rows.append(
            (
                *one.key,
                len(one.curve.pieces),
                *(figure(part) if part else None for part in (small, large) for figure in (median, max)),
            )
        )
    fields = (
        Field("op"),
        Field("level"),
        Field("ranks"),
        Field("hosts"),
        Field("pieces"),
        Field("median_error_below_1mb", "share"),
        Field("worst_error_below_1mb", "share"),
        Field("median_error_from_1mb", "share"),
        Field("worst_error_from_1mb", "share"),
    )
    return Table("groups", "Error of the curves, by operation and group", fields, tuple(rows))


def plots(found: Sequence[FittedCurve]) -> list[Plot]:
    """Return one plot for each operation, the most informative first."""
    if not found:
        return []
    first = most_telling(found)[0].key[0]
    ops = sorted({one.key[0] for one in found}, key=lambda op: (op != first, op))
    return [_plot(op, [one for one in found if one.key[0] == op]) for op in ops]


def _plot(op: str, found: Sequence[FittedCurve]) -> Plot:
    series: list[Series] = []
    for one in found:
        series.append(Series(f"{one.group}: measured", "marks", tuple(one.medians.items())))
        series.append(
            Series(f"{one.group}: predicted", "line", tuple((size, one.curve.at(size)) for size in one.samples))
        )
    return Plot(
        f"plot_{op}",
        f"{op}: time by size",
        Field("bytes", "bytes", "size"),
        Field("ns", "ns", "time"),
        tuple(series),
    )


def residuals(found: Sequence[FittedCurve]) -> Plot:
    """Plot by how much each curve is above the measurements, over the size."""
    return Plot(
        "residuals",
        "Error of the curves: above zero, the prediction is too long",
        Field("bytes", "bytes", "size"),
        Field("residual", "share", "predicted / measured - 1"),
        tuple(Series(one.name, "marks", _compute_residuals(one)) for one in found),
        log_y=False,
    )


def _compute_residuals(one: FittedCurve) -> tuple[tuple[float, float], ...]:
    return tuple((size, one.curve.at(size) / ns - 1) for size, ns in one.medians.items() if ns > 0)


def tabulate_peak_rates(limits: DeviceRoofline) -> Table | None:
    rows: list[tuple[Value, ...]] = []

    def add(what: str, best: dict[str, Reached], unit: str, per: float) -> None:
        rows.extend((what, name, one.rate / per, unit, one.at) for name, one in best.items())

    add("matmul", limits.matmuls, "TFLOP/s", 1000)
    add("memory", limits.memory, "GB/s", 1)
    add("copy", limits.copies, "GB/s", 1)
    if limits.launch_ns is not None:
        rows.append(("launch", "", limits.launch_ns / 1000, "us", ""))
    fields = (Field("what"), Field("kind"), Field("reached", "rate"), Field("unit"), Field("at"))
    return Table("roofline", "Peak rates of one device", fields, tuple(rows)) if rows else None


def pairs(calibration: Calibration, other: Calibration) -> Iterator[tuple[Key, Curve, int, float]]:
    """Yield every size that was measured here, by its median, if the other has a curve for the same operation and
    group; a single size of a group is enough."""
    for key, samples in calibration.samples.items():
        if (curve := other.curves.get(key)) is not None:
            for size, ns in samples.items():
                yield key, curve, size, median(ns)


def tabulate_comparison(calibration: Calibration, other: Calibration) -> Table:
    rows: list[tuple[Value, ...]] = []
    for key, curve, size, ns in pairs(calibration, other):
        told = curve.interval(size)
        high = round(told.high) if isfinite(told.high) else None
        differs = not told.low <= ns <= told.high
        ratio = ns / told.ns if told.ns > 0 else None
        rows.append(
            (name_of(key), *key, size, round(ns), round(told.ns), round(told.low), high, ratio, differs, told.reach)
        )
    fields = (
        Field("name", label="group"),
        *(Field(name, shown=False) for name in ("op", "level", "ranks", "hosts")),
        Field("bytes", "bytes", "size"),
        Field("ns", "ns", "this"),
        Field("other_ns", "ns", "other"),
        Field("other_low_ns", "ns", "low", shown=False),
        Field("other_high_ns", "ns", "high", shown=False),
        Field("ratio", "rate"),
        Field("differs"),
        Field("reach"),
    )
    return Table("compared", "Compared with the other calibration", fields, tuple(rows), most_shown=20)

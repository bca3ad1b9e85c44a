"""Axes of a plot: positions of values, and labels of ticks. Independent of the output format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from lostflops.core.results import Field, Plot, Unit
from lostflops.core.units import (
    format_bytes,
    format_count,
    format_flop,
    format_flops,
    format_ns,
    format_time,
    parse_duration,
)

MOST_OWN_TICKS: Final = 8
"""Numbers of things (ranks, hosts) are ticks themselves if there are at most this many."""
_MOST_UNEVEN_TICKS: Final = 6
"""Even steps on a logarithmic axis get closer and closer, so there are at most this many."""
_HUGE: Final = 1e24
"""Values from here on have no unit prefix."""
_MARGIN: Final = 0.03
_LARGEST: Final = 1e100
_CLOSEST: Final = 1e-9
"""Values with a smaller relative difference are drawn as one."""
_FORMATS: Final = {
    "ns": format_ns,
    "bytes": format_bytes,
    "flop": format_flop,
    "flops": format_flops,
    "": format_count,
    "count": format_count,
}
_PREFIXES: Final = "kMGTPEZ"
_MINUTES: Final = 1e12
"""Axes that end at this time or later, in ns, are in seconds, minutes or hours with even steps."""
_DIGITS: Final = 3
_MOST_DIGITS: Final = 15
_HINTS: Final = {"gbs": "GB/s", "rate": "per s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis of a plot, from `low` to `high`; both are above zero on a logarithmic axis."""

    unit: Unit
    title: str
    log: bool
    low: float
    high: float
    own: tuple[float, ...] = ()
    """Values of the plot that may be its ticks."""

    def place(self, value: float) -> float:
        """Return the place of a value, from 0 at the low end to 1 at the high end."""
        low, high = self._on_scale(self.low), self._on_scale(self.high)
        return (self._on_scale(value) - low) / (high - low)

    def ticks(self, most: int) -> tuple[tuple[float, str], ...]:
        """Return round values within the axis, each with its text."""
        found = self.own if self.own and len(self.own) <= most else self._round(most)
        inside = [value for value in found if self.low <= value <= self.high]
        base, name = self._long()
        digits = _digits([value / base for value in found])
        return tuple(
            (
                value,
                f"{_brief(value / base, digits)} {name}"
                if name and value
                else format_axis_value(value, self.unit, digits),
            )
            for value in inside
        )

    def _long(self) -> tuple[float, str]:
        """Return the unit of long time axes, in ns, and its name. Minutes and hours are not powers of ten, so even
        steps need their own unit; shorter axes have none."""
        if self.log or self.unit != "ns" or self.high < _MINUTES:
            return 1.0, ""
        reach = self.high - self.low
        return (3600e9, "h") if reach >= 60 * _MINUTES else (60e9, "min") if reach >= _MINUTES else (1e9, "s")

    def _on_scale(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def _round(self, most: int) -> tuple[float, ...]:
        if not self.log:
            base, _ = self._long()
            return tuple(value * base for value in _steps(self.low / base, self.high / base, most))
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        each = [10.0**power for power in decades if self.low <= 10.0**power <= self.high]
        if len(each) > 2:
            return tuple(each[:: -(-len(each) // most)])
        finer = [digit * 10.0**power for power in decades for digit in (1, 2, 5)]
        inside = [value for value in finer if self.low <= value <= self.high]
        return tuple(inside if 2 <= len(inside) <= most else _steps(self.low, self.high, min(most, _MOST_UNEVEN_TICKS)))


def axes(plot: Plot) -> tuple[Axis, Axis] | None:
    """Return the axes of x and y; None if there is nothing to draw."""
    points = [point for series in plot.series for point in series.points if drawable(plot, point)]
    if not points:
        return None
    x = _axis(plot.x, [x for x, _ in points], log=plot.log_x)
    return x, _axis(plot.y, [y for _, y in points], log=plot.log_y)


def drawable(plot: Plot, point: tuple[float, float]) -> bool:
    """Return whether a point can be drawn: a logarithmic axis has no place for zero and below, and no axis for absurd
    values."""
    return all(
        abs(value) <= _LARGEST and (value >= 1 / _LARGEST or not log)
        for value, log in zip(point, (plot.log_x, plot.log_y), strict=True)
    )


def left_out(plot: Plot) -> int:
    return sum(not drawable(plot, point) for series in plot.series for point in series.points)


def numbers(plot: Plot) -> tuple[int, ...]:
    """Return a number for each series, which decides its look. A line has that of marks with the same name up to a
    colon.

    >>> from lostflops.core.results import Series
    >>> drawn = (("a: measured", "marks"), ("a: fitted", "line"), ("b", "line"))
    >>> numbers(Plot("p", "", Field("x"), Field("y"), tuple(Series(name, kind, ()) for name, kind in drawn)))
    (0, 0, 1)
    """
    found: list[int] = []
    marks: dict[str, int] = {}
    for series in plot.series:
        subject, colon, _ = series.name.partition(":")
        own = max(found, default=-1) + 1
        found.append(marks.get(subject, own) if series.drawn == "line" else own)
        if series.drawn == "marks" and colon:
            marks[subject] = own
    return tuple(found)


def format_axis_value(value: float, unit: Unit, digits: int = _DIGITS) -> str:
    """Format a value at an axis, without trailing zeros.

    >>> values = ((1e6, "bytes"), (2500, "ns"), (0.25, "share"), (4096, "count"), (0.5, "gbs"))
    >>> tuple(format_axis_value(value, unit) for value, unit in values)
    ('1 MB', '2.5 us', '25%', '4096', '0.5')
    """
    if abs(value) >= _HUGE:
        return f"{value:.3g}"
    if unit == "share":
        return f"{_brief(100 * value, digits)}%"
    if unit == "time":
        return format_time(round(value))
    if unit in {"", "count"} and value == round(value) and abs(value) < 100_000:
        return str(round(value))
    if unit not in _FORMATS or abs(value) < 1:
        number = _brief(value, digits)
        return f"{number} {unit}" if unit == "ns" and value else number
    name = _FORMATS[unit](round(value)).partition(" ")[2]
    return f"{_brief(value / _factor(name, unit), digits)} {name}".rstrip()


def _brief(value: float, digits: int) -> str:
    """Round a value, without a power of ten.

    >>> _brief(99_200.4, 3), _brief(0.25, 3)
    ('99200', '0.25')
    """
    return f"{float(f'{value:.{digits}g}'):.{_MOST_DIGITS}g}"


def _factor(name: str, unit: Unit) -> float:
    """Return the value of one unit.

    >>> _factor("ms", "ns"), _factor("GB", "bytes"), _factor("", "count")
    (1000000, 1000000000, 1)
    """
    if unit == "ns":
        return parse_duration(f"1{name}")
    return 1000 ** (_PREFIXES.find(name[0]) + 1) if name else 1


def _digits(values: Sequence[float]) -> int:
    """Return how many digits show the smallest step between values, so that close values differ correctly.

    >>> _digits([25.84, 25.86, 25.88]), _digits([0, 20, 40])
    (4, 3)
    """
    if len(values) < 2:
        return _DIGITS
    least = min(after - before for before, after in pairwise(values))
    first, last = (math.floor(math.log10(value) + _CLOSEST) for value in (max(map(abs, values)), least))
    return min(_MOST_DIGITS, max(_DIGITS, first - last + 1))


def _axis(field: Field, values: Iterable[float], *, log: bool) -> Axis:
    distinct = sorted(set(values))
    low, high = distinct[0], distinct[-1]
    if log:
        ratio = (high / low) ** _MARGIN if high > low * (1 + _CLOSEST) else 2.0
        low, high = low / ratio, high * ratio
    else:
        anchored = 0 <= low <= high / 2
        apart = high - low > max(_CLOSEST * max(abs(low), abs(high)), 1 / _LARGEST)
        alone = 0.5 * abs(high) if abs(high) > _CLOSEST else 1.0
        margin = (high - low) * _MARGIN if apart else alone
        low, high = (0.0 if anchored else low - margin), high + margin
    is_numbered = field.unit in {"", "count"} and all(value == round(value) for value in distinct)
    own = distinct if is_numbered and len(distinct) <= MOST_OWN_TICKS else ()
    hint = _HINTS.get(field.unit, "")
    title = field.label or field.name
    return Axis(
        unit=field.unit,
        title=f"{title} ({hint})" if hint and hint not in title else title,
        log=log,
        low=low,
        high=high,
        own=tuple(own),
    )


def _steps(low: float, high: float, most: int) -> Iterator[float]:
    """Yield multiples of 1, 2 or 5 times a power of ten: those within the axis, and some after it."""
    rough = (high - low) / max(most - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    for index in range(most + 2):
        yield float(f"{(first + index) * step:.{_MOST_DIGITS}g}")

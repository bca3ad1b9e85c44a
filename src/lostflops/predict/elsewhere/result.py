"""The answer of `lostflops devices`: the devices ranked, what each costs, and a picture of both."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.core.errors import NotApplicable
from lostflops.core.results import Field, Figure, Plot, Result, Series, Table, Value
from lostflops.core.units import format_ns, format_percent, parse_duration, pluralise
from lostflops.predict.elsewhere.comparison import Ranked, RankedDevices, compare_devices
from lostflops.predict.elsewhere.forecast import Forecasts
from lostflops.predict.elsewhere.recorded import distinct_notes
from lostflops.predict.estimate.rates import GIB, capacity

if TYPE_CHECKING:
    from lostflops.predict.elsewhere.prices import Prices

_STEPS: Final = 1_000
"""Steps whose price is stated: that of one is too small to read."""
_MILLION: Final = 1e6
_NOT_OF_DEVICE: Final = ("host", "input")
"""Limits that a faster device does not move."""
_LIKELY: Final = 0.5
_AT_FLOOR: Final = 1.01
"""Steps up to this part of the floor are no longer than it: kernels are hidden."""
_MOST_MARKS: Final = 16
"""At most this many devices have a mark of their own, those on the frontier first."""
_MOST_UNPRICED: Final = 8
"""Rows of throughput that screens show without prices."""
_MOST_NAMED: Final = 5
"""At most this many devices are named in a sentence."""
_MOST_REASONS: Final = 3
_NEARLY_FULL: Final = 0.8
"""Part of a device's memory above which it may be too small in practice."""
_LEAST_MEMORY: Final = 7 * GIB
"""Every known device has at least this much memory."""


@dataclass(frozen=True, slots=True)
class WorkPerStep:
    """Work of one step of the whole job; None is unknown."""

    tokens: float | None
    samples: float | None


def show_devices(found: Forecasts, prices: Prices | None, work: WorkPerStep) -> Result:
    """Compare the devices and show them."""
    compared = compare_devices(found, prices)
    if not compared.ranked or all(one.is_now for one in found.made):
        raise NotApplicable(f"the step cannot be predicted on any other device: {_most_frequent_reasons(compared)}")
    plot = _plot(compared)
    details = _details(compared, work)
    return Result(
        name="devices",
        title="This run on other devices",
        verdict=_verdict(found, compared, prices, work),
        blocks=(
            _ranking(found, compared),
            *([details] if any(field.shown for field in details.fields[1:]) else []),
            *([plot] if plot is not None else []),
            *([_left_out(compared)] if compared.refused else []),
            found.baseline,
        ),
        notes=tuple(_notes(found, compared, prices)),
        more=(
            *([] if any(field.shown for field in details.fields[1:]) else [details]),
            *([] if plot is not None else [Figure("time_and_price", ())]),
            *([] if compared.refused else [_left_out(compared)]),
            Figure("fastest", compared.ranked[0].name),
            Figure("cheapest", compared.priced[0].name if compared.priced else None),
            Figure("peak_bytes", found.peak),
            Figure("ranks", found.ranks),
        ),
    )


def _verdict(found: Forecasts, compared: RankedDevices, prices: Prices | None, work: WorkPerStep) -> str:
    sentences = ["Uncertain, because the replay does not match the run."] if found.is_guess else []
    alike = [one for one in compared.ranked if one.may_be_first]
    tied = _tied(compared)
    why = _why_alike(alike)
    if why and len(alike) > 1 and (tied or compared.ranked[0].chance < _LIKELY):
        sentences += [_equally_fast(found, why, alike), *(["Choose by price."] if prices is None else [])]
    elif tied:
        sentences += [_share_shortest(found, tied), *(["Choose by price."] if prices is None else [])]
    else:
        sentences += [_fastest(found, compared), _others(compared)]
    if prices is not None:
        sentences.append(_cheapest(compared, work))
    return " ".join(filter(None, sentences))


def _why_alike(alike: Sequence[Ranked]) -> str:
    """Return why these devices are equally fast; empty if a faster device would help."""
    if not alike:
        return ""
    best = alike[0].forecast
    if best.bound.word in _NOT_OF_DEVICE:
        return f"The {best.bound.word} limits the job"
    floor = max(one.forecast.floor for one in alike)
    return "Faster kernels would not shorten the step" if best.step <= _AT_FLOOR * floor else ""


def _equally_fast(found: Forecasts, why: str, alike: Sequence[Ranked]) -> str:
    best = alike[0]
    has_now = any(one.forecast.is_now for one in alike)
    among = f", {found.now} among them" if has_now else ""
    speed = "" if has_now else f", {_speed(found, best)}"
    return f"{why}, so {len(alike)} devices may be equally fast{among}: {_step(best)}{speed}."


def _step(one: Ranked) -> str:
    return f"{format_ns(round(one.forecast.step))} per step ({_format_range(one)})"


def _speed(found: Forecasts, one: Ranked) -> str:
    return f"{found.measured / one.forecast.step:.3g}x as fast as {found.now}"


def _tied(compared: RankedDevices) -> list[Ranked]:
    """Return the devices that share the shortest step; empty if one device is first, or if that of the run may be as
    fast."""
    best, now = compared.ranked[0], compared.now
    tied = [one for one in compared.ranked if round(one.forecast.step) == round(best.forecast.step)]
    return [] if len(tied) == 1 or (now is not None and now.may_be_first) else tied


def _share_shortest(found: Forecasts, tied: Sequence[Ranked]) -> str:
    names = _join_names([one.name for one in tied])
    return f"{names} share the shortest predicted step: {_step(tied[0])}, {_speed(found, tied[0])}."


def _fastest(found: Forecasts, compared: RankedDevices) -> str:
    best = compared.ranked[0]
    if best is compared.now and len(compared.ranked) == 1:
        return f"No other known device can run this job as it is: on {found.now} it takes {_step(best)}."
    if best is compared.now:
        return f"No known device is predicted to be faster than {found.now}: {_step(best)}."
    if compared.now is not None and compared.now.chance >= best.chance:
        chance = _format_chance(compared.now.chance)
        return (
            f"No known device is likely to be faster than {found.now}, which is the fastest with probability {chance}: "
            f"{best.name} has the shortest predicted step, {_step(best)}."
        )
    limit = best.forecast.bound.word
    idle = f" There the {limit} limits the job." if limit in _NOT_OF_DEVICE else ""
    if best.chance >= _LIKELY:
        how = f"is the fastest with probability {_format_chance(best.chance)}"
    else:
        how = "has the shortest predicted step"
    return f"{best.name} {how}: {_step(best)}, {_speed(found, best)}.{idle}"


def _others(compared: RankedDevices) -> str:
    """Name the devices that may be as fast as the first, that of the run before the others."""
    best, *others = compared.ranked
    if not others:
        return "" if best.forecast.is_now else "No other known device can run this job as it is."
    alike = sorted((one for one in others if one.may_be_first), key=lambda one: not one.forecast.is_now)
    if compared.now is not None and best is not compared.now and compared.now.chance >= best.chance:
        return ""
    chance = f"It is the fastest with probability {_format_chance(best.chance)}"
    if best.chance < _LIKELY and alike:
        return f"{chance} only: {_join_names([_shown_name(one) for one in alike])} may be as fast."
    second = f"{others[0].name} is second."
    return f"{chance}; {second}" if best is compared.now else second


def _format_chance(chance: float) -> str:
    """Format a probability; no prediction is certain."""
    return format_percent(min(chance, 0.999))


def _join_names(names: Sequence[str]) -> str:
    """List names; if there are too many, the first of them.

    >>> _join_names("ab"), _join_names("abcdefg")
    ('a and b', 'a, b, c, d and 3 more')
    """
    if len(names) > _MOST_NAMED:
        kept = names[: _MOST_NAMED - 1]
        return f"{', '.join(kept)} and {len(names) - len(kept)} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _cheapest(compared: RankedDevices, work: WorkPerStep) -> str:
    if not compared.priced:
        return "No device with a price is ranked."
    best = compared.priced[0]
    assert best.usd is not None
    assert best.cheapest_chance is not None
    count, unit = _counted(work)
    price = (
        f"{format_usd(best.usd / count * _MILLION)} per million {unit}"
        if count
        else f"{format_usd(best.usd * _STEPS)} per {_STEPS:,} steps"
    )
    at = f"{price}, at {format_ns(round(best.forecast.step))} per step"
    if len(compared.priced) == 1:
        return f"{best.name}, the only ranked device with a known cost, costs {price}."
    number, chance = len(compared.priced), _format_chance(best.cheapest_chance)
    if best.cheapest_chance >= _LIKELY:
        return f"{best.name} is the cheapest of {number} devices with a price, with probability {chance}: {at}."
    return (
        f"{best.name} has the lowest predicted cost of {number} devices with a price: {at}. It is the cheapest with "
        f"probability {chance} only."
    )


def _counted(work: WorkPerStep) -> tuple[float | None, str]:
    """Return the work that a price is stated for, and its name."""
    if work.tokens:
        return work.tokens, "tokens"
    return (work.samples, "samples") if work.samples else (None, "")


def format_usd(usd: float) -> str:
    """Format a price with three digits, or to the cent.

    >>> format_usd(1234.5), format_usd(3.14159), format_usd(0.15), format_usd(0.0000123), format_usd(0)
    ('$1,234', '$3.14', '$0.15', '$0.0000123', '$0')
    """
    if usd >= 100:
        return f"${usd:,.0f}"
    if usd >= 0.9995:
        return f"${usd:.2f}"
    return f"${_three_digits(usd).rstrip('0')}" if usd else "$0"


def _format_range(one: Ranked) -> str:
    """Return the interval of a step, in the unit of the step."""
    unit = format_ns(round(one.forecast.step)).partition(" ")[2]
    return " to ".join(_three_digits(ns / parse_duration(f"1 {unit}")) for ns in (one.forecast.low, one.forecast.high))


def _three_digits(value: float) -> str:
    """Format a number with three digits, without a power of ten.

    >>> _three_digits(1021.4), _three_digits(99.96), _three_digits(54), _three_digits(0.7784), _three_digits(0)
    ('1,021', '100', '54.0', '0.778', '0')
    """
    if not value:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(float(f"{abs(value):.3g}"))))
    return f"{value:,.{decimals}f}"


def _ranking(found: Forecasts, compared: RankedDevices) -> Table:
    fields = (
        Field("device", shown=False),
        Field("shown_name", label="device"),
        Field("step_ns", "ns", "step"),
        Field("interval", label="range"),
        Field("low_ns", "ns", shown=False),
        Field("high_ns", "ns", shown=False),
        Field("first", "share", "fastest"),
        Field("speed", "rate"),
        Field("limit", label="limited by"),
        Field("memory_share", "share", shown=False),
        Field("capacity_bytes", "bytes", shown=False),
        Field("may_be_first", shown=False),
        Field("is_now", shown=False),
    )
    rows = tuple(
        (
            one.name,
            _shown_name(one),
            round(one.forecast.step),
            _format_range(one),
            round(one.forecast.low),
            round(one.forecast.high),
            one.chance,
            found.measured / one.forecast.step,
            one.forecast.bound.word or "-",
            _share(found.peak, capacity(one.forecast.device)),
            capacity(one.forecast.device),
            one.may_be_first,
            one.forecast.is_now,
        )
        for one in compared.ranked
    )
    more = tuple(
        {
            "shares": {str(word): share for word, share in one.forecast.bound.shares.items()},
            "notes": [*one.forecast.notes],
        }
        for one in compared.ranked
    )
    return Table("devices", "Devices by predicted step time", fields, rows, more=more)


def _details(compared: RankedDevices, work: WorkPerStep) -> Table:
    """Tabulate throughput, price and energy. Devices with a price are first, the cheapest of them first; if there are
    any, screens show only these."""
    count, unit = _counted(work)
    has_price, has_joules = bool(compared.priced), any(one.joules for one in compared.priced)
    unpriced = [one for one in compared.ranked if one.usd is None]
    fields = (
        Field("device"),
        Field("tokens_per_second", "rate", "tokens/s", shown=unit == "tokens"),
        Field("samples_per_second", "rate", "samples/s", shown=unit == "samples"),
        Field("usd_per_1000_steps", "rate", "$/1k steps", shown=has_price),
        Field("usd_per_million", "rate", f"$/1M {unit}", shown=has_price and bool(count)),
        Field("cheapest", "share", "cheapest", shown=has_price),
        Field("efficient", shown=False),
        Field("joules_per_step", "rate", "J/step", shown=has_joules),
    )
    rows = tuple(
        (
            one.name,
            _per_second(work.tokens, one),
            _per_second(work.samples, one),
            None if one.usd is None else one.usd * _STEPS,
            None if one.usd is None or not count else one.usd / count * _MILLION,
            one.cheapest_chance,
            one.is_efficient,
            one.joules,
        )
        for one in (*compared.priced, *unpriced)
    )
    most = len(compared.priced) if has_price else _MOST_UNPRICED
    return Table("costs", _details_title(fields), fields, rows, most_shown=most)


def _details_title(fields: Sequence[Field]) -> str:
    shown = {field.name for field in fields if field.shown}
    parts = (
        *(["Throughput"] if shown & {"tokens_per_second", "samples_per_second"} else []),
        *(["cost"] if "usd_per_1000_steps" in shown else []),
        *(["energy"] if "joules_per_step" in shown else []),
    )
    text = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + (parts[-1] if parts else "")
    return text[:1].upper() + text[1:]


def _per_second(count: float | None, one: Ranked) -> float | None:
    return None if not count else count / one.forecast.step * 1e9


def _share(peak: int | None, held: int | None) -> float | None:
    return None if peak is None or held is None else peak / held


def _plot(compared: RankedDevices) -> Plot | None:
    """Draw time against price; devices on the frontier have a name of their own, and so has that of the run."""
    priced = compared.priced
    if not priced:
        return None
    efficient = [one for one in priced if one.is_efficient]
    others = [one for one in priced if not one.is_efficient]
    others.sort(key=lambda one: not one.forecast.is_now)
    most = max(1, _MOST_MARKS - len(efficient))
    line = Series("no device is both faster and cheaper", "line", tuple(map(_point, efficient)))
    series = (
        *(Series(_shown_name(one), "marks", (_point(one),)) for one in efficient),
        *([line] if len(efficient) > 1 else []),
        *(Series(_shown_name(one), "marks", (_point(one),)) for one in others[:most]),
        *([Series("other devices", "marks", tuple(map(_point, others[most:])))] if others[most:] else []),
    )
    points = [_point(one) for one in priced]
    return Plot(
        "time_and_price",
        "Step time against cost: the best devices are at the bottom left",
        Field("usd_per_1000_steps", "", f"USD per {_STEPS:,} steps"),
        Field("step_ns", "ns", "step time"),
        series,
        log_x=all(x > 0 for x, _ in points),
    )


def _shown_name(one: Ranked) -> str:
    return f"{one.name} (now)" if one.forecast.is_now else one.name


def _point(one: Ranked) -> tuple[float, float]:
    assert one.usd is not None
    return one.usd * _STEPS, one.forecast.step


def _left_out(compared: RankedDevices) -> Table:
    """Group devices that are not ranked by the reason."""
    by_reason = _names_by_reason(compared)
    rows: tuple[tuple[Value, ...], ...] = tuple((", ".join(names), reason) for reason, names in by_reason.items())
    more = tuple({"names": names} for names in by_reason.values())
    return Table("left_out", "Not ranked", (Field("devices"), Field("reason")), rows, more=more)


def _names_by_reason(compared: RankedDevices) -> dict[str, list[str]]:
    by_reason: dict[str, list[str]] = {}
    for one in compared.refused:
        short = re.sub(rf" of {re.escape(one.device)}(?= |$)", "", one.reason.partition(";")[0])
        by_reason.setdefault(short, []).append(one.device)
    return by_reason


def _most_frequent_reasons(compared: RankedDevices) -> str:
    by_reason = sorted(_names_by_reason(compared).items(), key=lambda entry: -len(entry[1]))
    return "; ".join(f"{reason} ({pluralise(len(names), 'device')})" for reason, names in by_reason[:_MOST_REASONS])


def _notes(found: Forecasts, compared: RankedDevices, prices: Prices | None) -> Iterator[str]:
    yield from found.notes
    yield from distinct_notes(found.made, compared.ranked[0].forecast)
    yield (
        "Probabilities ignore errors that change all devices alike (of the replay and the recorded steps), and assume "
        "that each device has a host like that of this run."
    )
    yield _note_on_memory(found, compared)
    if prices is None:
        yield "For costs, write [NAME] and, below it, usd_per_hour = PRICE into a file, and give it to --prices."
    else:
        yield from _notes_on_prices(found, compared, prices)


def _note_on_memory(found: Forecasts, compared: RankedDevices) -> str:
    if found.peak is None:
        return "Memory: the peak of this run is not known, so a device may be too small for it."
    shares = {one.name: _share(found.peak, capacity(one.forecast.device)) for one in compared.ranked}
    full = [f"{name} ({format_percent(share)})" for name, share in shares.items() if share and share > _NEARLY_FULL]
    unknown = [name for name, share in shares.items() if share is None]
    note = f"Memory: this job needs {found.peak / GIB:.3g} GiB per device ({found.memory_note}); libraries need more."
    if full:
        note += f" Nearly full: {', '.join(full)}."
    if unknown and found.peak > _NEARLY_FULL * _LEAST_MEMORY:
        note += f" Check that it fits, as their capacity is not known: {', '.join(unknown)}."
    return note


def _notes_on_prices(found: Forecasts, compared: RankedDevices, prices: Prices) -> Iterator[str]:
    if found.ranks > 1:
        yield f"Costs and energy are those of all {found.ranks} devices of the job."
    if prices.usd_per_kwh is not None:
        yield f"Costs include power at {format_usd(prices.usd_per_kwh)} per kWh, for the devices alone."
    ranked = {one.name for one in compared.ranked}
    if missing := [name for name in prices.devices if name not in ranked]:
        yield f"Not ranked, though they have a price: {', '.join(missing)}."
    if any(one.name in prices.devices and prices.is_limit(one.forecast.device) for one in compared.ranked):
        yield (
            "Energy is an upper limit for devices without watts in the file of prices: it is computed from the power "
            "limit of the data sheet."
        )

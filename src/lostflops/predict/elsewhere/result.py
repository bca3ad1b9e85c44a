"""The answer of `lostflops devices`: the devices ranked, what each costs, and a picture of both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.core.errors import NotApplicable
from lostflops.core.results import Field, Figure, Plot, Result, Series, Table, Value
from lostflops.core.units import format_ns, format_percent
from lostflops.predict.elsewhere.comparison import Ranked, RankedDevices, compare_devices
from lostflops.predict.elsewhere.forecast import Forecasts
from lostflops.predict.elsewhere.recorded import distinct_notes
from lostflops.predict.estimate.rates import capacity

if TYPE_CHECKING:
    from lostflops.predict.elsewhere.prices import Prices

_STEPS: Final = 1_000
"""Steps whose price is stated: that of one is too small to read."""
_MILLION: Final = 1e6
_NOT_OF_DEVICE: Final = ("host", "input")
"""Limits that a faster device does not move."""
_LIKELY: Final = 0.5
_MOST_MARKS: Final = 12
"""At most this many devices off the frontier have a mark of their own."""
_MOST_UNPRICED: Final = 8
"""Rows of throughput that screens show without prices."""
_MOST_NAMED: Final = 4
"""At most this many devices are named in a sentence."""


@dataclass(frozen=True, slots=True)
class WorkPerStep:
    """Work of one step of the whole job; None is unknown."""

    tokens: float | None
    samples: float | None


def show_devices(found: Forecasts, prices: Prices | None, work: WorkPerStep) -> Result:
    """Compare the devices and show them."""
    compared = compare_devices(found, prices)
    if not compared.ranked:
        reasons = "; ".join(f"{one.device}: {one.reason}" for one in compared.refused[:_MOST_NAMED])
        raise NotApplicable(f"the step can be predicted on no known device ({reasons}, ...)")
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
    guess = "A guess, because the replay does not match the run. " if found.is_guess else ""
    tied = _tied(found, compared)
    said = [tied] if tied else [_fastest(found, compared), _surety(compared)]
    if prices is not None:
        said.append(_cheapest(compared, work))
    return guess + " ".join(filter(None, said))


def _tied(found: Forecasts, compared: RankedDevices) -> str:
    """Return what devices have in common whose steps are the same, as they only wait for the host; "" if one device is
    first, or if that of the run may be as fast."""
    best, now = compared.ranked[0], compared.now
    tied = [one for one in compared.ranked if round(one.forecast.step) == round(best.forecast.step)]
    if len(tied) == 1 or (now is not None and now.may_be_first):
        return ""
    named = ", ".join(one.name for one in tied[:_MOST_NAMED])
    more = f" and {len(tied) - _MOST_NAMED} more" if len(tied) > _MOST_NAMED else ""
    step = f"{format_ns(round(best.forecast.step))} per step (90% interval {_format_range(best)})"
    ratio = f"{found.measured / best.forecast.step:.3g}x as fast as {found.now}"
    limits = {one.forecast.bound.word for one in tied}
    (limit,) = limits if len(limits) == 1 else (None,)
    why = f" There the {limit} limits the job." if limit in _NOT_OF_DEVICE else ""
    return f"{len(tied)} devices share the shortest predicted step: {step}, {ratio}.{why} They are {named}{more}."


def _fastest(found: Forecasts, compared: RankedDevices) -> str:
    best, now = compared.ranked[0], compared.now
    step = f"{format_ns(round(best.forecast.step))} per step (90% interval {_format_range(best)})"
    if best is now and len(compared.ranked) == 1:
        return f"No other known device can run this job as it is: on {found.now} it takes {step}."
    if best is now:
        return f"No known device is predicted to be faster than {found.now}: {step}."
    ratio = f"{found.measured / best.forecast.step:.3g}x as fast as {found.now}"
    if now is not None and now.may_be_first:
        limit = now.forecast.bound.word
        why = f", where the {limit} limits the job" if limit in _NOT_OF_DEVICE else ""
        return f"{best.name} has the shortest predicted step, {step}, but it may be no faster than {found.now}{why}."
    limit = best.forecast.bound.word
    idle = f" There the {limit} limits the job." if limit in _NOT_OF_DEVICE else ""
    return f"{best.name} is fastest: {step}, {ratio}.{idle}"


def _surety(compared: RankedDevices) -> str:
    best, *others = compared.ranked
    if not others:
        return "" if best.forecast.is_now else "No other known device can run this job as it is."
    second = f"{others[0].name} is second"
    if best.chance >= _LIKELY:
        return f"It is first with probability {format_percent(best.chance)}; {second}."
    alike = [one.name for one in others if one.may_be_first]
    named = ", ".join(alike[:_MOST_NAMED])
    more = f" and {len(alike) - _MOST_NAMED} more" if len(alike) > _MOST_NAMED else ""
    return f"It is first with probability {format_percent(best.chance)} only: {named}{more} may be as fast."


def _cheapest(compared: RankedDevices, work: WorkPerStep) -> str:
    if not compared.priced:
        return "No device with a price can run this job."
    best = compared.priced[0]
    assert best.usd is not None
    assert best.cheapest_chance is not None
    count, unit = _counted(work)
    price = (
        f"{format_usd(best.usd / count * _MILLION)} per million {unit}"
        if count
        else f"{format_usd(best.usd * _STEPS)} per {_STEPS:,} steps"
    )
    sure = "" if len(compared.priced) == 1 else f", cheapest with probability {format_percent(best.cheapest_chance)}"
    of = "" if len(compared.priced) == 1 else f" of {len(compared.priced)} devices with a price"
    step = format_ns(round(best.forecast.step))
    return f"{best.name} is the cheapest{of}: {price} at {step} per step{sure}."


def _counted(work: WorkPerStep) -> tuple[float | None, str]:
    """Return the work that a price is stated for, and its name."""
    if work.tokens:
        return work.tokens, "tokens"
    return (work.samples, "samples") if work.samples else (None, "")


def format_usd(usd: float) -> str:
    """Format a price with three digits, at least cents.

    >>> format_usd(1234.5), format_usd(3.14159), format_usd(0.00123), format_usd(0)
    ('$1,234', '$3.14', '$0.00123', '$0')
    """
    if usd >= 100:
        return f"${usd:,.0f}"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.3g}"


def _format_range(one: Ranked) -> str:
    """Return the interval of a step; its numbers have a unit only if it differs from that of the step."""
    step, low, high = (format_ns(round(ns)) for ns in (one.forecast.step, one.forecast.low, one.forecast.high))
    unit = step.partition(" ")[2]
    ends = (low, high)
    if all(end.partition(" ")[2] == unit for end in ends):
        low, high = (end.partition(" ")[0] for end in ends)
    return f"{low} to {high}"


def _ranking(found: Forecasts, compared: RankedDevices) -> Table:
    fields = (
        Field("device", shown=False),
        Field("shown_name", label="device"),
        Field("step_ns", "ns", "step", has_bars=True),
        Field("interval", label="90% interval"),
        Field("low_ns", "ns", shown=False),
        Field("high_ns", "ns", shown=False),
        Field("speed", "rate"),
        Field("limit", label="limited by"),
        Field("memory_share", "share", "memory", shown=found.peak is not None),
        Field("capacity_bytes", "bytes", shown=False),
        Field("first", "share"),
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
            found.measured / one.forecast.step,
            one.forecast.bound.word or "-",
            _share(found.peak, capacity(one.forecast.device)),
            capacity(one.forecast.device),
            one.chance,
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
    line = Series("no other is faster and cheaper", "line", tuple(map(_point, efficient)))
    series = (
        *(Series(one.name, "marks", (_point(one),)) for one in efficient),
        *([line] if len(efficient) > 1 else []),
        *(Series(_shown_name(one), "marks", (_point(one),)) for one in others[:_MOST_MARKS]),
        *([Series("other devices", "marks", tuple(map(_point, others[_MOST_MARKS:])))] if others[_MOST_MARKS:] else []),
    )
    points = [_point(one) for one in priced]
    return Plot(
        "time_and_price",
        "Time against price: the best devices are at the bottom left",
        Field("usd_per_1000_steps", "", f"USD per {_STEPS:,} steps"),
        Field("step_ns", "ns", "time of a step"),
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
    by_reason: dict[str, list[str]] = {}
    for one in compared.refused:
        short = re.sub(rf" of {re.escape(one.device)}(?= |$)", "", one.reason.partition(";")[0])
        by_reason.setdefault(short, []).append(one.device)
    rows: tuple[tuple[Value, ...], ...] = tuple((", ".join(names), reason) for reason, names in by_reason.items())
    more = tuple({"names": names} for names in by_reason.values())
    return Table("left_out", "Not ranked", (Field("devices"), Field("reason")), rows, more=more)


def _notes(found: Forecasts, compared: RankedDevices, prices: Prices | None) -> Iterator[str]:
    yield from distinct_notes(found.made, compared.ranked[0].forecast)
    yield (
        "Probabilities count what is uncertain of each device alone, and assume a host like that of this run. Errors "
        "of the replay and of the recorded steps are the same for all devices."
    )
    if found.peak is None:
        yield "Memory: the peak of this run is not known, so a device may be too small for it."
    else:
        unknown = sum(capacity(one.forecast.device) is None for one in compared.ranked)
        yield (
            f"Memory: {found.memory_note}; the allocator and libraries need more"
            + (f". The capacity of {unknown} ranked devices does not follow from their name." if unknown else ".")
        )
    if prices is None:
        yield "No prices are known: write [NAME] and usd_per_hour = PRICE into a file for --prices, to compare costs."
    else:
        yield from _notes_on_prices(compared, prices)
    yield from found.notes


def _notes_on_prices(compared: RankedDevices, prices: Prices) -> Iterator[str]:
    if prices.usd_per_kwh is not None:
        yield f"Costs include power at {format_usd(prices.usd_per_kwh)} per kWh, for the devices alone."
    ranked = {one.name for one in compared.ranked}
    if missing := [name for name in prices.devices if name not in ranked]:
        yield f"Not ranked, though they have a price: {', '.join(missing)}."
    limits = [
        one.name for one in compared.ranked if one.name in prices.devices and prices.is_limit(one.forecast.device)
    ]
    if limits:
        yield (
            f"Energy is an upper limit for {', '.join(limits)}: it is computed from the power limit of the data sheet. "
            "Give watts in the file of prices if you measured them."
        )

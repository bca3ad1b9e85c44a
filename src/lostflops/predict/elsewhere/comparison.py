"""Devices side by side: which is fastest, which is cheapest, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lostflops.predict.elsewhere.choice import chances_of_least, frontier
from lostflops.predict.elsewhere.forecast import Forecast, Forecasts, Refused, fits
from lostflops.predict.elsewhere.prices import Prices
from lostflops.predict.estimate.rates import GIB, capacity

_HOUR: Final = 3.6e12
_MAY_BE: Final = 0.1
"""A device may be the fastest if it is at least this part as likely to be as the most likely one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A device among others. Money is in USD, for all ranks of the job."""

    forecast: Forecast
    chance: float
    """Probability that no other device is faster."""
    may_be_first: bool
    """Whether it is not much less likely to be the fastest than the most likely one."""
    usd: float | None
    """Price of a step; None without a price."""
    cheapest_chance: float | None
    """Probability that no other device with a price is cheaper."""
    joules: float | None
    """Energy of a step; None without the power of the device."""
    is_efficient: bool
    """Whether no other device is both faster and cheaper."""

    @property
    def name(self) -> str:
        return self.forecast.device.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedDevices:
    """Devices that can run the job, the fastest first, and those that cannot."""

    ranked: tuple[Ranked, ...]
    refused: tuple[Refused, ...]

    @property
    def now(self) -> Ranked | None:
        return next((one for one in self.ranked if one.forecast.is_now), None)

    @property
    def priced(self) -> tuple[Ranked, ...]:
        """Devices with a price, the cheapest first."""
        return tuple(sorted((one for one in self.ranked if one.usd is not None), key=lambda one: one.usd or 0.0))


def compare_devices(found: Forecasts, prices: Prices | None) -> RankedDevices:
    """Rank the devices by their predicted step. The device of the run stays among them, as the run did fit there."""
    made = sorted(found.made, key=lambda one: one.step)
    inside = [one for one in made if one.is_now or fits(found.peak, one.device) is not False]
    refused = [*found.refused, *(_too_small(one, found.peak) for one in made if one not in inside)]
    chances = _chances_of_first(inside)
    money = {one.device.name: usd for one in inside if (usd := _usd(one, found.ranks, prices)) is not None}
    cheapest = _chances_of_cheapest(inside, money)
    priced = [one for one in inside if one.device.name in money]
    efficient = {priced[at].device.name for at in frontier([(money[one.device.name], one.step) for one in priced])}
    ranked = tuple(
        Ranked(
            forecast=one,
            chance=chance,
            may_be_first=chance >= _MAY_BE * max(chances),
            usd=money.get(one.device.name),
            cheapest_chance=cheapest.get(one.device.name),
            joules=_joules(one, found.ranks, prices),
            is_efficient=one.device.name in efficient,
        )
        for one, chance in zip(inside, chances, strict=True)
    )
    return RankedDevices(ranked=ranked, refused=tuple(refused))


def _chances_of_first(inside: list[Forecast]) -> list[float]:
    if not inside:
        return []
    steps, halves, floors = zip(*((one.step, one.own, min(one.floor, one.step)) for one in inside), strict=True)
    return [float(chance) for chance in chances_of_least(steps, halves, floors)]


def _chances_of_cheapest(inside: list[Forecast], money: Mapping[str, float]) -> dict[str, float]:
    """Return the probability of each device with a price to be the cheapest: its error is that of its time."""
    priced = [one for one in inside if one.device.name in money]
    if not priced:
        return {}
    usd = [money[one.device.name] for one in priced]
    halves = [price * one.own / one.step for price, one in zip(usd, priced, strict=True)]
    floors = [price * min(one.floor, one.step) / one.step for price, one in zip(usd, priced, strict=True)]
    chances = chances_of_least(usd, halves, floors).tolist()
    return {one.device.name: chance for one, chance in zip(priced, chances, strict=True)}


def _usd(one: Forecast, ranks: int, prices: Prices | None) -> float | None:
    hourly = None if prices is None else prices.hourly(one.device)
    return None if hourly is None else hourly * ranks * one.step / _HOUR


def _joules(one: Forecast, ranks: int, prices: Prices | None) -> float | None:
    watts = None if prices is None else prices.power(one.device)
    return None if watts is None else watts * ranks * one.step / 1e9


def _too_small(one: Forecast, peak: int | None) -> Refused:
    held = capacity(one.device)
    assert peak is not None, one
    assert held is not None, one
    return Refused(
        device=one.device.name,
        reason=f"too small: it has {held / GIB:.1f} GiB, the job needs {peak / GIB:.1f} GiB",
    )

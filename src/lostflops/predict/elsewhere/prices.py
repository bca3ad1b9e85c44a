"""Prices and power of devices, from a TOML file that the user edits.

    usd_per_kwh = 0.2          # optional: the price of power is added to that of the device

    [H100-SXM5]
    usd_per_hour = 3           # of one device
    watts = 650                # optional: what one device draws during the job

No price is known without the file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lostflops.account.facts.devices import Device, find_device, offer_names
from lostflops.core.errors import UsageError

_KEYS: Final = ("usd_per_hour", "watts")
_TOP: Final = "usd_per_kwh"
_MOST: Final = 1e6
"""Largest price or power: more than any device has."""


@dataclass(frozen=True, slots=True)
class DevicePrice:
    usd_per_hour: float
    watts: float | None


@dataclass(frozen=True, slots=True)
class Prices:
    devices: Mapping[str, DevicePrice]
    """By name of the device."""
    usd_per_kwh: float | None

    def power(self, device: Device) -> float | None:
        """Return the power of one device in watts: as the file says, else the limit in its data sheet; None if neither
        is known."""
        price = self.devices.get(device.name)
        if price is not None and price.watts is not None:
            return price.watts
        return None if device.chip is None else float(device.chip.watts)

    def is_limit(self, device: Device) -> bool:
        """Return whether the power of a device is the limit in its data sheet, which a job may never reach."""
        price = self.devices.get(device.name)
        return device.chip is not None and (price is None or price.watts is None)

    def hourly(self, device: Device) -> float | None:
        """Return the price of one device for an hour with its power, in USD; None if that is not known."""
        price = self.devices.get(device.name)
        if price is None:
            return None
        if self.usd_per_kwh is None:
            return price.usd_per_hour
        watts = self.power(device)
        return None if watts is None else price.usd_per_hour + watts / 1000 * self.usd_per_kwh


def read_prices(file: Path) -> Prices:
    """Read a file of prices; raise `UsageError` with the line to fix."""
    try:
        text = file.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): give a TOML file of prices to --prices") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not TOML: {error}. Write {_EXAMPLE}. {_QUOTES}") from None
    where = _Lines(file, text)
    per_kwh = found.pop(_TOP, None)
    if per_kwh is not None:
        per_kwh = _number(per_kwh, where.at("", _TOP), _TOP)
    devices: dict[str, DevicePrice] = {}
    for name, entry in found.items():
        device = _device(name, entry, where)
        if device.name in devices:
            raise UsageError(f"{where.at(name)}: {device.name} has two prices; remove one")
        devices[device.name] = _price(name, entry, where)
    if not devices:
        raise UsageError(f"{file} has no price: write {_EXAMPLE}")
    return Prices(devices, per_kwh)


_EXAMPLE: Final = "[NAME of a device] and, below it, usd_per_hour = PRICE"
_QUOTES: Final = 'Names with spaces need quotes: ["RTX 4090"]'


@dataclass(frozen=True, slots=True)
class _Lines:
    """Places in a file, for errors."""

    file: Path
    text: str

    def at(self, table: str, key: str = "") -> str:
        """Return file and line of a table, or of a key in it; the file alone if neither is on a line of its own."""
        inside, table_line = not table, 0
        wanted = re.compile(rf"\s*[\"']?{re.escape(key or table)}[\"']?\s*[.=]")
        for number, line in enumerate(self.text.splitlines(), 1):
            if head := re.match(r"\s*\[\s*(.+?)\s*\]\s*(?:#.*)?$", line):
                inside = head[1].strip("\"'") == table
                table_line = number if inside else table_line
            elif (inside or not key) and wanted.match(line):
                return f"{self.file}, line {number}"
        return f"{self.file}, line {table_line}" if table_line else str(self.file)


def _device(name: str, entry: Any, where: _Lines) -> Device:
    device = find_device(name)
    if device is None:
        raise UsageError(f"{where.at(name)}: no device is called {name!r}: write {offer_names(name)}")
    if not isinstance(entry, dict):
        raise UsageError(f"{where.at(name)}: {name} is a value: write [{name}] and, below it, usd_per_hour = PRICE")
    return device


def _price(name: str, entry: dict[str, Any], where: _Lines) -> DevicePrice:
    for key in entry:
        if key not in _KEYS:
            hint = f"; {_TOP} is for all devices: move it to the top of the file" if key == _TOP else ""
            raise UsageError(
                f"{where.at(name, key)}: {name} has an unknown key {key!r}: use {' and '.join(_KEYS)}{hint}"
            )
    if "usd_per_hour" not in entry:
        raise UsageError(f"{where.at(name)}: {name} has no usd_per_hour: add the price of one device for an hour")
    values = {key: _number(value, where.at(name, key), f"{name} {key}") for key, value in entry.items()}
    if values.get("watts") == 0:
        raise UsageError(
            f"{where.at(name, 'watts')}: {name} watts is 0: give the power of one device, or remove the line"
        )
    return DevicePrice(values["usd_per_hour"], values.get("watts"))


def _number(value: Any, where: str, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        key = what.rsplit(maxsplit=1)[-1]
        raise UsageError(f"{where}: {what} = {value!r:.40} is not a number: write one such as {key} = 2.5")
    if not 0 <= value <= _MOST:  # not a number is neither; an integer may be too large for a float
        raise UsageError(f"{where}: {what} = {value!r:.40} must be a number from 0 to {_MOST:,.0f}")
    return float(value)

from pathlib import Path

import pytest

from lostflops.account.facts.devices import Device, find_device
from lostflops.core.errors import UsageError
from lostflops.predict.elsewhere.prices import read_prices

GOOD = """
usd_per_kwh = 0.5
[H100-SXM5]  # ours
usd_per_hour = 3
watts = 500
["NVIDIA L4"]
usd_per_hour = 0.5
["MI250X (one GCD)"]
usd_per_hour = 1
"""


def device(name: str) -> Device:
    found = find_device(name)
    assert found is not None
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prices.toml"


def test_an_hour_costs_the_device_and_its_power(file: Path) -> None:
    file.write_text(GOOD)
    prices = read_prices(file)
    assert prices.hourly(device("H100-SXM5")) == pytest.approx(3 + 0.5 * 0.5)
    assert prices.hourly(device("L4")) == pytest.approx(0.5 + 0.072 * 0.5)
    assert prices.hourly(device("B200")) is None
    assert [prices.is_limit(device(name)) for name in ("H100-SXM5", "L4")] == [False, True]
    assert prices.power(device("H100-SXM5")) == 500
    assert prices.power(device("L4")) == 72


def test_without_a_price_of_power_only_the_device_costs(file: Path) -> None:
    file.write_text("[H100-SXM5]\nusd_per_hour = 3\n")
    assert read_prices(file).hourly(device("H100-SXM5")) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[H100-SXM5]\nusd_per_hour = -1", "line 2: H100-SXM5 usd_per_hour = -1 must be a number from 0"),
        ("[H100-SXM5]\nusd_per_hour = nan", "line 2: H100-SXM5 usd_per_hour = nan must be"),
        ("[H100-SXM5]\nusd_per_hour = inf", "line 2: .* must be"),
        ("[H100-SXM5]\nusd_per_hour = 1" + 400 * "0", "line 2: .* must be"),
        ('[H100-SXM5]\nusd_per_hour = "3"', "line 2: H100-SXM5 usd_per_hour = '3' is not a number: write one such as"),
        ("[H100-SXM5]\nusd_per_hour = true", "line 2: .* = True is not a number"),
        ("[L4]\nusd_per_hour = 1\n[H100-SXM5]\n\nusd_per_hour = []", "line 5: H100-SXM5 usd_per_hour"),
        ("[H100-SXM5]\nusd_per_hour = 3\nwatts = 0", "line 3: H100-SXM5 watts is 0"),
        ("[H100-SXM5]\nwatts = 700", "line 1: H100-SXM5 has no usd_per_hour"),
        ("[H100-SXM5]\nusd = 3", "line 2: H100-SXM5 has an unknown key 'usd': use usd_per_hour and watts"),
        ("[H100-SXM5]\nusd_per_hour = 3\nusd_per_kwh = 1", "line 3: .* move it to the top of the file"),
        ("\n[Abacus]\nusd_per_hour = 3", "line 2: no device is called 'Abacus': write one of P4, .*H100-SXM5"),
        ("[H100]\nusd_per_hour = 3", "line 1: no device is called 'H100': write H100-SXM5 or H100-PCIe$"),
        ("[RTX 4090]\nusd_per_hour = 3", r'is not TOML: .*line 1.* Names with spaces need quotes: \["RTX 4090"\]'),
        ("H100-SXM5 = 3", r"line 1: H100-SXM5 is a value: write \[H100-SXM5\]"),
        ('[H100-SXM5]\nusd_per_hour = 3\n["H100 SXM5"]\nusd_per_hour = 4', "line 3: H100-SXM5 has two prices"),
        ("usd_per_kwh = -0.1\n[L4]\nusd_per_hour = 1", "line 1: usd_per_kwh = -0.1 must be"),
        ("[H100-SXM5\nusd_per_hour = 3", "is not TOML: .*line 1"),
        ("", "has no price: write"),
    ],
)
def test_errors_name_the_line_to_fix(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match=says):
        read_prices(file)


def test_a_file_that_is_missing_is_named(file: Path) -> None:
    with pytest.raises(UsageError, match=r"prices\.toml cannot be read .*No such file"):
        read_prices(file)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.core import units
from lostflops.core.errors import UsageError

FORMATS = [
    (units.format_ns, units.parse_duration, 10**20),
    (units.format_bytes, units.parse_bytes, 10**24),
]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (1_234_567, "1.23 ms"),
        (999_499, "999 us"),
        (999_500, "1.00 ms"),
        (1_225_000, "1.22 ms"),
        (1_235_000, "1.24 ms"),
        (-45_600, "-45.6 us"),
        (999_000_000_000, "999 s"),
        (1_000_000_000_000, "16.7 min"),
        (86_400_000_000_000, "24.0 h"),
        (8_640_000_000_000_000, "2400 h"),
    ],
)
def test_format_ns(ns: int, text: str) -> None:
    assert units.format_ns(ns) == text


def test_a_size_beyond_every_prefix_is_still_written() -> None:
    assert units.format_bytes(5 * 10**25) == "50000 ZB"


@pytest.mark.parametrize(("format_", "parse", "limit"), FORMATS)
@given(data=st.data())
def test_formatting_keeps_three_digits(format_, parse, limit: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(-limit, limit))
    shown = parse(format_(value))
    assert abs(shown - value) * 200 <= abs(value)
    assert format_(shown) == format_(value)


@given(st.integers(-(10**21), 10**21), st.sampled_from(["ns", "us", "ms", "s", "min", "h"]))
def test_parsing_is_exact(count: int, unit: str) -> None:
    factor = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}[unit]
    assert units.parse_duration(f"{count} {unit}") == count * factor


@given(st.integers(0, 10**15))
def test_decimal_microseconds_are_exact(ns: int) -> None:
    assert units.parse_duration(f"{ns // 1000}.{ns % 1000:03d} us") == ns


@pytest.mark.parametrize(
    "text", ["", "5", "ms", "5 parsecs", "1e999 s", "nan s", "0x10 ns", "1 2 s", "9" * 5000 + " s"]
)
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        units.parse_duration(text)


def test_a_fraction_of_the_base_unit_is_refused() -> None:
    with pytest.raises(UsageError, match="whole number of ns"):
        units.parse_duration("0.5 ns")
    with pytest.raises(UsageError, match="whole number of B"):
        units.parse_bytes("1.3 B")


@pytest.mark.parametrize(
    ("text", "count"), [("1 kB", 1000), ("1 KB", 1000), ("1 KiB", 1024), ("2.5 GiB", 2_684_354_560)]
)
def test_parse_bytes(text: str, count: int) -> None:
    assert units.parse_bytes(text) == count


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_only_all_reads_as_all_and_only_nothing_as_nothing(part: int, rest: int) -> None:
    assert units.format_share(part / (part + rest)) not in {"100.0%", "0.0%"}


def test_a_time_beyond_the_calendar_is_shown_as_it_is() -> None:
    assert units.format_time(10**30) == f"{10**30} ns"

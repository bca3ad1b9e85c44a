"""Nanoseconds, bytes and FLOP: parsing and formatting.

Quantities are integers. Formatting rounds once, half to even, to three significant digits;
parsing is exact decimal arithmetic and refuses what does not name a whole number of the base unit.
Prefixes are powers of 1000 (MB, GFLOP); the binary ones (MiB) are read but never written.
"""

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from lostflops.core.errors import UsageError

_Scale = tuple[tuple[str, int], ...]

_DURATIONS: _Scale = (
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
)
_PREFIXES: _Scale = tuple((prefix, 1000**power) for power, prefix in enumerate(("", "k", "M", "G", "T", "P", "E", "Z")))
_BYTES: _Scale = tuple((f"{prefix}B", factor) for prefix, factor in _PREFIXES)
_BINARY: _Scale = tuple((f"{prefix}iB", 1024 ** (power + 1)) for power, prefix in enumerate("KMGTPE"))
_FLOPS: _Scale = tuple((f"{prefix}FLOP", factor) for prefix, factor in _PREFIXES)

_DURATION_FACTORS = {**dict(_DURATIONS), "µs": 1_000, "μs": 1_000}
_BYTE_FACTORS = {**dict(_BYTES), **dict(_BINARY), "KB": 1_000}

_QUANTITY = re.compile(
    r"\s*([+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,2})?)\s*([a-zA-Zµμ]*)\s*"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_ns(ns: int) -> str:
    """Format a duration in the unit that suits it.

    >>> format_ns(1234567), format_ns(999_999), format_ns(0), format_ns(5_400_000_000_000)
    ('1.23 ms', '1.00 ms', '0 ns', '90.0 min')
    """
    return _format(ns, _DURATIONS)


def format_bytes(count: int) -> str:
    """Format a size in powers of 1000, as bandwidths are stated.

    >>> format_bytes(25_600_000), format_bytes(512), format_bytes(-2048)
    ('25.6 MB', '512 B', '-2.05 kB')
    """
    return _format(count, _BYTES)


def format_flop(count: int) -> str:
    """Format a number of floating-point operations.

    >>> format_flop(3_120_000_000_000)
    '3.12 TFLOP'
    """
    return _format(count, _FLOPS)


def format_flops(rate: int) -> str:
    """Format floating-point operations per second.

    >>> format_flops(989_000_000_000_000)
    '989 TFLOP/s'
    """
    return f"{_format(rate, _FLOPS)}/s"


def format_count(count: int) -> str:
    """Format a number of things, exact up to 999.

    >>> format_count(999), format_count(1_234_567)
    ('999', '1.23 M')
    """
    return _format(count, _PREFIXES).rstrip()


def pluralise(count: int, noun: str) -> str:
    """Format a number with its noun.

    >>> pluralise(1, "rank"), pluralise(10_000, "rank"), pluralise(0, "step")
    ('1 rank', '10,000 ranks', '0 steps')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_share(share: float) -> str:
    """Format a part of a whole in percent; 100% always means all of it, and 0% nothing, or a tiny negative part.

    >>> format_share(0.1234), format_share(1), format_share(0.99999), format_share(0.00001), format_share(0)
    ('12.3%', '100.0%', '>99.9%', '<0.1%', '0.0%')
    >>> format_share(-0.00001)
    '0.0%'
    """
    if 0.9995 < share < 1:
        return ">99.9%"
    if 0 < abs(share) < 0.0005:
        return "<0.1%" if share > 0 else "0.0%"
    return f"{100 * share:.1f}%"


def format_percent(share: float) -> str:
    """Format a part of a whole for sentences: whole percents, with a digit after the point below 1%.

    >>> format_percent(0.1234), format_percent(1), format_percent(0.999), format_percent(0.0042), format_percent(0)
    ('12%', '100%', '>99%', '0.4%', '0%')
    """
    if 0.995 <= share < 1:
        return ">99%"
    if share == 0 or abs(share) >= 0.0095:
        return f"{100 * share:.0f}%"
    return format_share(share)


def format_interval(low: float, high: float) -> str:
    """Format two shares as an interval.

    >>> format_interval(0.07, 0.352), format_interval(0.004, 0.03), format_interval(0.137, 0.142)
    ('7 to 35%', '0.4% to 3%', '13.7% to 14.2%')
    """
    first, last = format_percent(low), format_percent(high)
    if first == last:
        first, last = format_share(low), format_share(high)
    return f"{first.removesuffix('%') if first[:-1].isdigit() and last[:-1].isdigit() else first} to {last}"


def format_time(ns: int) -> str:
    """Format a Unix time in UTC, cut to milliseconds.

    >>> format_time(1_700_000_000_123_999_999)
    '2023-11-14 22:13:20.123'
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=ns // 1_000_000)
    except OverflowError:
        return f"{ns} ns"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"


def parse_duration(text: str) -> int:
    """Parse a number with a unit, and return nanoseconds.

    >>> parse_duration("1.5 ms"), parse_duration("2h"), parse_duration("250ns")
    (1500000, 7200000000000, 250)
    """
    return _parse(text, _DURATION_FACTORS, "a duration", "250us, 1.5 ms, 30 s, 2 h")


def parse_bytes(text: str) -> int:
    """Parse a number with a unit, decimal or binary, and return bytes.

    >>> parse_bytes("25 MB"), parse_bytes("1.5KiB"), parse_bytes("7 B")
    (25000000, 1536, 7)
    """
    return _parse(text, _BYTE_FACTORS, "a size", "512 B, 25 MB, 4 GiB")


def _format(value: int, scale: _Scale) -> str:
    sign = "-" if value < 0 else ""
    magnitude = abs(value)
    if magnitude < 1000:
        return f"{sign}{magnitude} {scale[0][0]}"
    for unit, factor in scale[1:]:
        if text := _three_digits(magnitude, factor):
            return f"{sign}{text} {unit}"
    largest, factor = scale[-1]
    return f"{sign}{round(Fraction(magnitude, factor))} {largest}"


def _three_digits(magnitude: int, factor: int) -> str | None:
    """Format the quotient with three digits; return None if that needs a larger unit."""
    quotient = Fraction(magnitude, factor)
    for places in (2, 1, 0):
        scaled = round(quotient * 10**places)
        if scaled < 1000:
            digits = str(scaled)
            return f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return None


def _parse(text: str, factors: dict[str, int], what: str, examples: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in factors:
        raise UsageError(f"{text!r} is not {what}: write a number and a unit, as in {examples}")
    value = Fraction(match[1]) * factors[match[2]]
    if value.denominator != 1:
        smallest = next(iter(factors))
        raise UsageError(f"{text!r} is not a whole number of {smallest}")
    return value.numerator

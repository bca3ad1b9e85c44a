"""Decimal microseconds to integer nanoseconds against exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lostflops.ingest.formats.kineto.exact_time import UNREADABLE, to_ns

LIMIT = 1 << 62
digits = st.text("0123456789", min_size=1, max_size=20)
exponents = st.one_of(
    st.just(""), st.builds("{}{}{}".format, *map(st.sampled_from, ("eE", ["", "+", "-"], "0123456789")))
)
numbers = st.builds(
    lambda sign, whole, dot, rest, exponent: sign + whole + (dot + rest if dot else "") + exponent,
    st.sampled_from(["", "", "-"]),
    digits,
    st.sampled_from(["", "."]),
    digits,
    exponents,
)
kineto = st.builds("{}.{:03d}".format, st.integers(0, 10**16), st.integers(0, 999))
unix = st.builds(
    lambda us, rest: f"{us}{rest}", st.integers(10**15, 2 * 10**15), st.sampled_from(["", ".5", ".1234", ".0005"])
)


def exactly(text):
    """Round half to even, as Python rounds fractions."""
    ns = round(Fraction(text) * 1000)
    return ns if abs(ns) < LIMIT else UNREADABLE


@given(st.lists(st.one_of(numbers, kineto, unix), max_size=20))
@example(["9" * 70 + "e-60"])
@example(["0.0005" + "0" * 60 + "1"])
@example(["4611686018427387.903", "4611686018427387.904", "-4611686018427387.903", "-4611686018427387.904"])
@example(["999999999999999.999", "1000000000000000.000", "9999999999999999.999"])
def test_every_spelling_is_exact(texts):
    assert to_ns([text.encode() for text in texts]).tolist() == [exactly(text) for text in texts]


@given(st.lists(st.one_of(numbers, kineto), min_size=1, max_size=6), st.lists(st.integers(0, 30), max_size=6))
def test_a_number_does_not_depend_on_its_neighbours(texts, order):
    mixed = texts + [texts[i % len(texts)] for i in order] + ["nonsense", ""]
    assert to_ns([text.encode() for text in mixed]).tolist()[:-2] == [to_ns([t.encode()])[0] for t in mixed[:-2]]


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("-0", 0),
        ("0.0005", 0),  # half to even
        ("0.0015", 2),
        ("0.0025", 2),
        ("0.00250000000000000000001", 3),
        ("-0.0015", -2),
        ("12", 12_000),
        ("12.5", 12_500),
        ("6322354273271.390", 6_322_354_273_271_390),
        ("1698955063520869.240", 1_698_955_063_520_869_240),
        ("1e3", 1_000_000),
        ("1.5E-3", 2),
        ("007.250", 7_250),
        ('"12.5"', 12_500),  # quoted, as some tools write it
        ("1e-999999", 0),
        ("1e-99999999999", 0),
    ],
)
def test_known_spellings(text, ns):
    assert to_ns([text.encode()]).tolist() == [ns]


@pytest.mark.parametrize(
    "token",
    [
        b"", b"null", b"true", b"false", b"nan", b"NaN", b"inf", b"-Infinity", b"snan", b"{}", b"[1]", b'""', b'"x"',
        b"-",        b".", b"+", b"e", b"1e", b"1.2.3", b"0x10", b"1,5", b"1 2", b"--1",
        "\u0661".encode(), b"\xff", b"1e19",
        b"1e99", b"9" * 40, b"1e999999999999999999999", b"-1e400", b"4611686018427387.904",
    ],
)  # fmt: skip
def test_what_is_no_time_is_unreadable(token):
    assert to_ns([b"1.5", token, b"2"]).tolist() == [1500, UNREADABLE, 2000]


@pytest.mark.parametrize("token", [b'"1_000.5"', b'"1_0"'])
def test_what_only_python_takes_for_a_number_is_unreadable(token):
    assert to_ns([token]).tolist() == [UNREADABLE]


def test_a_token_over_several_lines_disturbs_nobody():
    assert to_ns([b"1.5", b"[\n1\n]", b"2"]).tolist() == [1500, UNREADABLE, 2000]


def test_shape_of_the_result():
    assert to_ns([]).dtype == to_ns([b"1"]).dtype == np.int64
    assert to_ns([]).shape == (0,)


@given(st.lists(st.binary(max_size=12).filter(lambda token: b"\n" not in token), max_size=8))
def test_any_bytes_give_one_number_each(tokens):
    found = to_ns(tokens)
    assert found.size == len(tokens)
    assert all(ns == UNREADABLE or abs(ns) < LIMIT for ns in found.tolist())

"""Numbers in few bytes, read back one by one."""

from hypothesis import given
from hypothesis import strategies as st

from lostflops.show.report.varints import deltas, varints


def read(packed):
    numbers, value, bits = [], 0, 0
    for byte in packed:
        value |= (byte & 127) << bits
        bits += 7
        if byte < 128:
            numbers.append(value)
            value = bits = 0
    return numbers


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_numbers_come_back(values):
    assert read(varints(values)) == values


@given(st.lists(st.integers(-(2**61), 2**61)))
def test_differences_come_back(values):
    found, last = [], 0
    for number in read(deltas(values)):
        last += -(number + 1) // 2 if number % 2 else number // 2
        found.append(last)
    assert found == values

"""Times on the common clock and back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lostflops.account.align.one_clock import OneClock

NOW = 1_700_000_000_000_000_000


@given(st.integers(-(10**12), 10**12), st.floats(-2e-4, 2e-4), st.integers(0, 10**12))
def test_there_and_back_is_the_same_to_a_ns(offset, drift, later):
    clock = OneClock({3: (offset, drift, NOW)})
    times = np.array([NOW, NOW + later, NOW - later])
    assert np.abs(clock.own(3, clock.to_common(3, times)) - times).max() <= 1


def test_a_rank_that_is_not_tied_keeps_its_time():
    clock = OneClock({3: (5, 0.0, NOW)})
    assert clock.to_common(4, np.array([NOW])).tolist() == [NOW]
    assert clock.own(4, np.array([NOW])).tolist() == [NOW]
    assert clock.ties(3)
    assert not clock.ties(4)

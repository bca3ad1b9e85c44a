"""Curves of a run's own calls: latency as far as networks have it."""

from __future__ import annotations

from lostflops.predict.scaling.own_times import MOST_LATENCY, OwnTimes

KEY = ("all_reduce", "host", 2, 1)
MOST = 2 * MOST_LATENCY["gloo"]


def alpha(samples):
    (piece,) = OwnTimes("gloo", {KEY: samples}).curves[KEY].pieces
    return piece


def test_large_messages_show_no_more_latency_than_networks_have():
    """30 ms of a smaller one beside compute are not latency; in the middle the curve says what was measured."""
    piece = alpha({4_000_000: [35e6] * 4, 36_000_000: [75e6] * 4})
    assert piece.alpha.value == MOST
    assert abs(piece.at(12_000_000) - 45e6) < 1e3


def test_small_messages_show_it():
    assert abs(alpha({1_000: [30e6] * 4, 36_000_000: [66e6] * 4}).alpha.value - 30e6) < 1e5


def test_what_is_plausible_stays():
    assert abs(alpha({4_000_000: [5e6] * 4, 36_000_000: [37e6] * 4}).alpha.value - 1e6) < 1e4

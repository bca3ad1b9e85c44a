"""Bins of a strip, against counting nanoseconds one by one."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.record import records
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.strips import bin_lines, edges, whole
from lostflops.account.ledger.windows import WindowKind
from lostflops.store.intervals import Intervals
from lostflops.store.run import Run
from lostflops.testing import Straggler, SyntheticCluster, store

SHIFTS = st.sampled_from([0, 1_700_000_000_000_000_000, -(10**17)])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([None, *LINES]), min_size=1, max_size=80), st.integers(1, 30), SHIFTS)
def test_a_bin_has_the_line_with_most_of_its_nanoseconds(told, bins, shift):
    bins = min(bins, len(told))
    at = edges(shift, shift + len(told), bins)
    assert (at[0], at[-1]) == (shift, shift + len(told))
    own = {
        line: Intervals.of(
            [shift + t for t, one in enumerate(told) if one == line],
            [shift + t + 1 for t, one in enumerate(told) if one == line],
        )
        for line in LINES
    }
    # Any line comes before none where both have as much, and earlier lines before later ones.
    rank = {line: place for place, line in enumerate(LINES)} | {None: len(LINES)}
    expected = []
    for start, stop in zip(at[:-1] - shift, at[1:] - shift, strict=True):
        counts = Counter(told[start:stop])
        best = min(counts, key=lambda line: (-counts[line], rank[line]))
        expected.append(0 if best is None else 1 + LINES.index(best))
    assert bin_lines(own, at).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**60), st.integers(1, 10**15), st.integers(1, 20_000))
def test_edges_of_long_times_are_equal_and_in_order(start, span, bins):
    bins = min(bins, span)
    widths = np.diff(edges(start, start + span, bins))
    assert widths.sum() == span
    assert widths.max() - widths.min() <= 1
    assert widths.min() >= 1


def test_bins_count_what_the_ledger_counts(tmp_path):
    cluster = SyntheticCluster(ranks=2, steps=3, stragglers=(Straggler(1, "slow_kernels", factor=1.5),))
    with Run.open(store(cluster.generate(), tmp_path / "run")) as run:
        kept = {ledger.rank: ledger for ledger in ledgers(run, scope(run, WindowKind.STEPS))}
        for record in records(run, run.ranks):
            ledger = kept[record.rank]
            start, stop = int(ledger.window.start[0]), int(ledger.window.stop[-1])
            lines, bins = whole(record).lines, 20_000
            codes = bin_lines(lines, edges(start, stop, bins))
            width = (stop - start) / bins
            for code, line in enumerate(LINES, 1):
                pieces = len(lines[line].clip(start, stop))
                # A piece is off by at most a bin at each of its ends.
                assert (codes == code).sum() * width == pytest.approx(ledger.lines[line], abs=2 * width * (pieces + 1))
            assert (codes == 0).sum() == 0

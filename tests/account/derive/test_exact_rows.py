"""Stretches of a page, unpacked as a browser does it, give the totals of the run to the ns."""

import random
from collections import Counter
from itertools import accumulate

import pytest

from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive import exact_rows
from lostflops.account.derive.derive import derive
from lostflops.account.derive.exact_rows import row_stretches, step_lines
from lostflops.account.derive.selection import total_selection
from lostflops.account.derive.timeline import TimelineSpan
from lostflops.account.ledger.lines import LINES, WAIT_LINES
from lostflops.explain.analyze.timeline import timeline
from lostflops.show.report.view import View
from lostflops.store.run import Run
from lostflops.testing import Clock, Straggler, SyntheticCluster, store

CLUSTER = SyntheticCluster(
    ranks=4,
    ranks_per_host=1,
    pipeline_parallel=2,
    steps=3,
    stragglers=(Straggler(2, "slow_kernels", factor=1.6),),
    clocks={1: Clock(700_000_000, 20.0), 2: Clock(-350_000_000, -30.0), 3: Clock(5_000_000)},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return store(CLUSTER.generate(), tmp_path_factory.mktemp("rows") / "run", host_names=True)


@pytest.fixture(scope="module")
def run(folder):
    derive(folder)
    with Run.open(folder) as opened:
        yield opened


def packed(run):
    view = View()
    return view, view.block(timeline(run).blocks[0])


def numbers(view, blob):
    found, value, bits = [], 0, 0
    for byte in view.blobs[blob["blob"]]:
        value, bits = value | (byte & 127) << bits, bits + 7
        if byte < 128:
            found.append(value)
            value = bits = 0
    return found


def differing(view, blob):
    return list(accumulate(-(one + 1) // 2 if one % 2 else one // 2 for one in numbers(view, blob)))


class Unpacked:
    """What a page does with the stretches of a block."""

    def __init__(self, view, block):
        own = block["stretches"]
        self.span, self.kinds = block["span"], block["kinds"]
        self.rates, self.ahead, self.start = own["rate"], differing(view, own["ahead"]), differing(view, own["start"])
        kind, dur, late = (numbers(view, own[name]) for name in ("kind", "dur", "late"))
        self.rows, first = [], 0
        for count in numbers(view, own["count"]):
            part = slice(first, first + count)
            self.rows.append(list(zip(kind[part], dur[part], late[part], strict=True)))
            first += count
        assert first == len(kind) == len(dur) == len(late)

    def cut(self, row, time):
        return time - round((time + self.ahead[row]) * self.rates[row])  # Python rounds halves to even, too

    def totals(self, rows, start, stop):
        lines, waits = Counter(dict.fromkeys(self.kinds, 0)), Counter()
        for row in rows:
            first = self.cut(row, start) if start > 0 else float("-inf")
            last = self.cut(row, stop) if stop < self.span else float("inf")
            time = self.start[row]
            for kind, dur, late in self.rows[row]:
                ns = min(time + dur, last) - max(time, first)
                if kind and ns > 0:
                    lines[self.kinds[kind - 1]] += ns
                    if self.kinds[kind - 1] in WAIT_LINES:
                        waits[late - 1 if late else None] += ns
                time += dur
        return lines, waits


def test_a_page_sums_any_selection_as_the_run_does(run):
    page, chance = Unpacked(*packed(run)), random.Random(3)
    for _ in range(200):
        ranks = sorted(chance.sample(run.ranks, chance.randint(1, 4)))
        start, stop = sorted(chance.choice([0, page.span, chance.randrange(page.span)]) for _ in "12")
        if start < stop:
            found = total_selection(run, ranks, start, stop)
            assert page.totals(ranks, start, stop) == (found.lines, found.waits)
    lines, waits = page.totals(range(4), 0, page.span)
    assert lines.total() == run.rows("select sum(stop - start)::bigint from stretches")[0][0]
    assert waits[2] == max(waits.values())
    assert any(page.rates)


def test_stretches_from_events_are_those_of_the_table(run, monkeypatch):
    clock = OneClock.of(run)
    span = TimelineSpan.of(run, clock)
    stored = row_stretches(run, clock, span)
    monkeypatch.setattr(exact_rows, "has_stretches", lambda *_: False)
    assert row_stretches(run, clock, span) == stored
    assert row_stretches(run, clock, span, most=10) is None


def test_time_that_was_not_recorded_is_a_stretch_of_no_kind(run, monkeypatch):
    clock = OneClock.of(run)
    span = TimelineSpan.of(run, clock)
    whole = row_stretches(run, clock, span)
    read = exact_rows._read_stretches

    def without_waits(run):
        for rank, own in read(run):
            kept = own.late < 0
            kept[[0, -1]] = True
            yield rank, type(own)(own.start[kept], own.stop[kept], own.line[kept], own.late[kept])

    monkeypatch.setattr(exact_rows, "_read_stretches", without_waits)
    cut = row_stretches(run, clock, span)
    assert 0 not in whole.kind
    assert cut.kind.count(0) > 20
    # Nothing moves.
    assert (cut.start, sum(cut.dur)) == (whole.start, sum(whole.dur))


def test_a_rank_without_stretches_has_an_empty_row(run, monkeypatch):
    read = exact_rows._read_stretches
    monkeypatch.setattr(exact_rows, "_read_stretches", lambda run: (one for one in read(run) if one[0] != 1))
    clock = OneClock.of(run)
    found = row_stretches(run, clock, TimelineSpan.of(run, clock))
    assert [count > 0 for count in found.count] == [True, False, True, True]


@pytest.fixture
def large(monkeypatch):
    """Let these runs count as too large for stretches."""
    monkeypatch.setattr(row_stretches, "__defaults__", (10,))


def by_step(run, times, steps):
    at = iter(times)
    found = {(rank, step, line): next(at) for rank in run.ranks for step in steps for line in LINES}
    assert next(at, None) is None
    return found


def test_a_large_run_has_the_ledger_of_each_step(run, large):
    view, block = packed(run)
    assert block["stretches"] is None
    found = by_step(run, numbers(view, block["step_lines"]), [step for step, _ in block["marks"]])
    stored = run.rows("select rank, step, line, ns from ledger where split = 'step'")
    assert {key: ns for key, ns in found.items() if ns} == {tuple(key): ns for *key, ns in stored if ns}
    assert len({step for _, step, _ in found}) == 3


def test_steps_from_events_are_those_of_the_table(run, monkeypatch):
    stored = step_lines(run, [10, 11, 12])
    monkeypatch.setattr(exact_rows, "has_accounts", lambda *_: False)
    assert step_lines(run, [10, 11, 12]) == stored
    assert step_lines(run, [11]) == [
        ns for (_, step, _), ns in by_step(run, stored, [10, 11, 12]).items() if step == 11
    ]


def test_too_many_steps_or_none_are_left_out(run):
    assert step_lines(run, [10, 11, 12], most=3 * 4 * len(LINES)) is not None
    assert step_lines(run, [10, 11, 12], most=3 * 4 * len(LINES) - 1) is None
    assert step_lines(run, []) is None

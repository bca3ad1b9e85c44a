"""One clock for all ranks: bounds against a naive oracle, and against the truth whatever the ends of collectives."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lostflops.account.align.clocks import clocks
from lostflops.account.align.common_clock import Clocks, Readings
from lostflops.account.align.match import match
from made_calls import Call, made

EPOCH = 1_700_000_000_000_000_000
Hosts = dict[int, str | None]
quick = settings(deadline=None, derandomize=True, max_examples=150)


def told(calls: list[Call], hosts: Hosts) -> Clocks:
    return clocks(match(made(*calls).calls, {}, hosts), np.array(sorted(hosts), np.int64), hosts)


def meeting(seq: int, spans: dict[int, tuple[int, int]], group: str = "g", op: str = "all_reduce") -> list[Call]:
    return [Call(rank, start, stop, seq=seq, group=group, op=op) for rank, (start, stop) in spans.items()]


def transfer(group: str, send: Call, receive: Call) -> list[Call]:
    """In a group of its own, so that nothing has to be matched by time."""
    more = {"group": group, "seq": -1}
    return [
        send.but(op="send", peer=receive.rank, **more),
        receive.but(op="recv", peer=send.rank, **more),
    ]


# -- the truth ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrueClock:
    ahead: int
    drift_ppb: int

    def read(self, time: int) -> int:
        return EPOCH + time + self.ahead + time * self.drift_ppb // 10**9

    def exactly(self, time: Fraction) -> Fraction:
        return EPOCH + time + self.ahead + time * Fraction(self.drift_ppb, 10**9)

    def when(self, shown: int) -> Fraction:
        return (shown - EPOCH - self.ahead) / (1 + Fraction(self.drift_ppb, 10**9))


@dataclass(frozen=True)
class Cluster:
    """Clocks by rank; those of one host are one."""

    clocks: dict[int, TrueClock]
    hosts: Hosts
    calls: list[Call]

    def true_offset(self, reference: int, rank: int, instant: int) -> Fraction:
        time = self.clocks[reference].when(instant)
        return instant - self.clocks[rank].exactly(time)


CLOCKS = st.builds(
    TrueClock, st.integers(-(10**9), 10**9), st.sampled_from((-100_000, -50_000, 0, 777, 50_000, 100_000))
)
LENGTHS = st.sampled_from((1, 50, 5_000, 1_000_000, 400_000_000))


@st.composite
def clusters(draw: st.DrawFn, *, apart: bool = True) -> Cluster:
    """Collectives that begin anywhere and end at any time after the last start; not even at the same if `apart`."""
    ranks = range(draw(st.integers(1, 5)))
    host = {rank: draw(st.integers(0, 3)) for rank in ranks}
    own = {number: draw(CLOCKS) for number in sorted(set(host.values()))}
    known = draw(st.booleans())
    hosts: Hosts = {rank: f"host{host[rank]}" if known else None for rank in ranks}
    calls: list[Call] = []
    span = draw(st.sampled_from((1_000, 10**6, 10**9, 10**10)))

    def call(rank: int, start: int, stop: int) -> Call:
        clock = own[host[rank]]
        return Call(rank, clock.read(start), clock.read(stop))

    for number in range(draw(st.integers(0, 12))):
        members = sorted(draw(st.sets(st.sampled_from(ranks), min_size=min(2, len(ranks)), max_size=len(ranks))))
        if len(members) < 2:
            continue
        length = draw(LENGTHS)
        time = draw(st.integers(0, span))
        starts = {rank: time + draw(st.integers(0, length)) for rank in members}
        last = max(starts.values())
        if draw(st.integers(0, 3)) == 0:
            sender, receiver = draw(st.permutations(members))[:2]
            end = max(starts[sender], starts[receiver]) + draw(st.integers(0, length))
            posted = call(sender, starts[sender], starts[sender] + draw(st.integers(0, length)))
            calls += transfer(f"t{number}", posted, call(receiver, starts[receiver], end))
            continue
        name = "g" + "".join(map(str, members))
        together = last + draw(st.integers(0, length))
        for rank in members:
            end = last + draw(st.integers(0, length)) if apart else together
            calls.append(call(rank, starts[rank], end).but(seq=number, group=name))
    return Cluster({rank: own[host[rank]] for rank in ranks}, hosts, calls)


def check_certificate(cluster: Cluster) -> None:
    found = told(cluster.calls, cluster.hosts)
    for place, rank in enumerate(found.ranks.tolist()):
        if found.tied[place]:
            true = cluster.true_offset(found.reference, rank, found.instant)
            error = abs(true - int(found.offset[place]))
            assert error <= found.uncertainty[place], f"rank {rank}: off by {float(error)}, {found.method[place]}"
        else:
            assert found.method[place] == "untied"


def far_off() -> Cluster:
    """The second rank ends so late that the estimate of its clock is off by a second. So its calls, a second from the
    middle of the run, look as if they were in it, where drift has no room."""
    reference, other = TrueClock(0, 0), TrueClock(0, 100_000)
    second = 10**9
    calls = meeting(0, {0: (reference.read(-second), reference.read(-second + 10))})
    for seq in (1, 2, 3):
        time = second + 50 * seq
        early = reference.read(time - 10), reference.read(time)
        calls += meeting(seq, {0: early, 1: (other.read(time), other.read(time + second))})
    return Cluster({0: reference, 1: other}, {0: None, 1: None}, calls)


@settings(quick, max_examples=250)
@example(far_off())
@given(clusters())
def test_the_truth_is_in_the_interval(cluster: Cluster) -> None:
    check_certificate(cluster)


@quick
@given(clusters(apart=False))
def test_the_truth_is_in_the_interval_where_ends_coincide(cluster: Cluster) -> None:
    check_certificate(cluster)


# -- the oracle --------------------------------------------------------------------------------------------------------

MOST_DRIFT = 200e-6
ROUNDING = 2.0
NEARLY = 5
"""Whole ns, and slack for drift that goes by the estimate there and by the result here."""


def naive_bounds(calls: list[Call], found: Clocks, hosts: Hosts) -> dict[int, tuple[float, float]]:
    """Least and largest offset of each rank from every pair of records of every meeting.

    Ranks of one host must agree by themselves, and clocks must not have been given a drift.
    """
    clock = {rank: hosts[rank] or str(rank) for rank in hosts}
    names = sorted(set(clock.values()))
    offset = dict(zip(found.ranks.tolist(), found.offset.tolist(), strict=True))

    def slack(call: Call, time: int) -> float:
        return MOST_DRIFT * abs(time + offset[call.rank] - found.instant) + ROUNDING

    most = {(a, b): 0.0 if a == b else inf for a in names for b in names}
    """How much larger the offset of the second can be."""
    for ender in calls:
        for starter in calls:
            if ender.group != starter.group or ender.op in ("broadcast", "send") or starter.op == "recv":
                continue
            if (ender.op, starter.op) == ("recv", "send") or ender.seq == starter.seq:
                pair = clock[ender.rank], clock[starter.rank]
                room = ender.stop - starter.start + slack(ender, ender.stop) + slack(starter, starter.start)
                if pair[0] != pair[1]:
                    most[pair] = min(most[pair], room)
    for via in names:
        for a in names:
            for b in names:
                most[a, b] = min(most[a, b], most[a, via] + most[via, b])
    home = clock[found.reference]
    return {rank: (-most[clock[rank], home], most[home, clock[rank]]) for rank in hosts}


@st.composite
def loose_systems(draw: st.DrawFn) -> tuple[list[Call], Hosts]:
    """Meetings of few ranks with clocks that are nearly the same."""
    ranks = range(draw(st.integers(2, 5)))
    ahead = {rank: draw(st.integers(-2_000, 2_000)) for rank in ranks}
    calls: list[Call] = []
    for number in range(draw(st.integers(1, 7))):
        members = sorted(draw(st.sets(st.sampled_from(ranks), min_size=2, max_size=3)))
        starts = {rank: EPOCH + 100_000 * number + draw(st.integers(0, 3_000)) for rank in members}
        last = max(starts.values())
        ends = {rank: max(starts[rank], last + draw(st.integers(0, 4_000))) for rank in members}
        spans = {rank: (starts[rank] + ahead[rank], ends[rank] + ahead[rank]) for rank in members}
        if draw(st.integers(0, 3)) == 0:
            sender, receiver = draw(st.permutations(members))[:2]
            calls += transfer(f"t{number}", *(Call(rank, *spans[rank]) for rank in (sender, receiver)))
        else:
            op = draw(
                st.sampled_from(("all_reduce", "all_gather", "reduce_scatter", "barrier", "all_to_all", "broadcast"))
            )
            calls += meeting(number, spans, group=f"g{number}", op=op)
    return calls, dict.fromkeys(ranks)


def check_bounds(calls: list[Call], hosts: Hosts) -> None:
    found = told(calls, hosts)
    assert not found.drift.any()
    bounds = naive_bounds(calls, found, hosts)
    for place, rank in enumerate(found.ranks.tolist()):
        if rank == found.reference:
            assert (found.offset[place], found.uncertainty[place]) == (0, 0)
        elif not np.isfinite(bounds[rank]).all():
            assert (found.method[place], found.uncertainty[place]) == ("untied", inf)
        else:
            low, high = bounds[rank]
            offset = int(found.offset[place])
            assert found.method[place] == "collectives"
            assert low - NEARLY <= offset <= high + NEARLY
            assert abs(found.uncertainty[place] - max(high - offset, offset - low)) <= NEARLY


@quick
@given(loose_systems())
def test_bounds_are_those_of_all_pairs(system: tuple[list[Call], Hosts]) -> None:
    check_bounds(*system)


# -- made by hand ------------------------------------------------------------------------------------------------------


def by_rank(found: Clocks) -> dict[int, tuple[str, int | None, float]]:
    """Method, offset and uncertainty."""
    rows = zip(found.ranks.tolist(), found.method, found.offset.tolist(), found.uncertainty.tolist(), strict=True)
    return {rank: (method, offset if room < inf else None, room) for rank, method, offset, room in rows}


def steady(spans: dict[int, tuple[int, int]], count: int = 5, **more: str) -> list[Call]:
    """The same meeting again and again."""
    return [
        call.but(start=EPOCH + call.start + 1_000 * seq, stop=EPOCH + call.stop + 1_000 * seq)
        for seq in range(count)
        for call in meeting(seq, spans, **more)
    ]


def test_signs_and_widths() -> None:
    """Rank 1 is 300 ns ahead. By its clock it starts at 350 and ends at 400; the reference runs from 20 to 100: so at
    350 + offset the reference has not ended, and at 400 + offset it has started."""
    found = told(steady({0: (20, 100), 1: (350, 400)}), {0: None, 1: None})
    method, offset, room = by_rank(found)[1]
    assert (method, offset) == ("collectives", -300)
    low, high = 20 - 400, 100 - 350
    rounding = 2 * ROUNDING + 1
    assert max(high + 300, -300 - low) <= room <= max(high + 300, -300 - low) + rounding
    assert found.instant == EPOCH + (20 + 4_100) // 2
    assert found.constraints.tolist() == [5, 5]
    assert by_rank(found)[0] == ("reference", 0, 0.0)
    assert found.to_reference(np.array([0, 1]), np.array([EPOCH, EPOCH + 300])).tolist() == [EPOCH, EPOCH]


def test_the_offset_stays_in_its_bounds() -> None:
    """Ends say 5,000; but rank 1 starts and ends while rank 0 is in the call."""
    calls = steady({0: (100, 200), 1: (5_100, 5_200)}, 2) + steady({0: (100, 5_300), 1: (5_000, 5_200)}, 1, group="h")
    shown = by_rank(told(calls, {0: None, 1: None}))[1]
    assert shown[0] == "collectives"
    calls = steady({0: (0, 10), 1: (0, 5_000)}, 5)
    _, offset, room = by_rank(told(calls, {0: None, 1: None}))[1]
    assert offset is not None
    assert offset - room <= -4_990 + 5
    assert offset + room >= 0


def test_ends_lie_apart_where_bounds_overrule_them() -> None:
    """Most ends say that rank 1 is 5,000 ns behind; one short meeting says that it is not."""
    calls = steady({0: (0, 10_000), 1: (0, 5_000)}, 5) + steady({0: (0, 10), 1: (0, 10)}, 1, group="h")
    found = told(calls, {0: None, 1: None})
    _, offset, room = by_rank(found)[1]
    assert offset is not None
    assert abs(offset) <= 20
    assert room <= 40
    assert found.spread.min() >= 2_400


def test_drift_is_found_and_told() -> None:
    clock = TrueClock(-5_000_000, 40_000)
    calls = []
    for seq in range(100):
        time = 10**7 * seq
        calls += meeting(
            seq, {0: (EPOCH + time, EPOCH + time + 500), 1: (clock.read(time + 100), clock.read(time + 500))}
        )
    found = told(calls, {0: None, 1: None})
    assert found.drift[1] * 1e6 == pytest.approx(-40, abs=0.01)
    stamps = np.array([clock.read(time) for time in (0, 5 * 10**8, 10**9)])
    assert np.abs(found.to_reference(np.ones(3, np.int64), stamps) - EPOCH - [0, 5 * 10**8, 10**9]).max() <= 5
    true = Cluster({0: TrueClock(0, 0), 1: clock}, {}, []).true_offset(0, 1, found.instant)
    assert abs(true - int(found.offset[1])) <= 5


class TestHosts:
    def test_ranks_of_the_reference_s_host(self) -> None:
        found = told(steady({0: (0, 100), 1: (50, 100), 2: (1_000_080, 1_000_100)}), {0: "a", 1: "a", 2: "b"})
        assert by_rank(found)[1] == ("same host", 0, 0.0)
        assert by_rank(found)[2][:2] == ("collectives", -1_000_000)

    def test_ranks_of_one_host_have_one_offset(self) -> None:
        """Rank 3 met only a neighbour."""
        calls = steady({0: (0, 100), 2: (5_000, 5_100)}) + steady({2: (8_000, 8_100), 3: (8_000, 8_100)}, group="h")
        rows = by_rank(told(calls, {0: "a", 2: "b", 3: "b"}))
        assert rows[2] == rows[3]
        assert rows[2][1] == -5_000
        assert by_rank(told(calls, {0: "a", 3: "b"} | {2: None}))[3][1] == -5_000

    def test_unknown_hosts_are_clocks_of_their_own(self) -> None:
        found = told(steady({0: (0, 100), 1: (700, 800)}), {0: None, 1: None})
        assert by_rank(found)[1][:2] == ("collectives", -700)

    def test_devices_of_one_host_that_disagree_widen_the_bounds(self) -> None:
        """On one host a call cannot have ended before another began: here by 30 ns it has."""
        good = told(steady({0: (0, 100), 1: (50, 100), 2: (60, 100)}), {0: "a", 1: "a", 2: "b"})
        skewed = told(steady({0: (0, 100), 1: (130, 230), 2: (60, 100)}), {0: "a", 1: "a", 2: "b"})
        assert by_rank(skewed)[1][2] >= 30
        assert by_rank(skewed)[2][2] > by_rank(good)[2][2] + 30


class TestUntied:
    def test_nothing_in_common(self) -> None:
        calls = steady({0: (0, 9), 1: (0, 9)}) + steady({2: (0, 9)}, group="h")
        found = told(calls, dict.fromkeys((0, 1, 2, 3)))
        assert by_rank(found)[2] == by_rank(found)[3] == ("untied", None, inf)
        assert by_rank(found)[1][1] == 0

    def test_the_larger_island_has_the_reference(self) -> None:
        calls = steady({0: (0, 9), 1: (0, 9)}) + steady({2: (0, 9), 3: (0, 9), 5: (0, 9)}, group="h")
        found = told(calls, dict.fromkeys((0, 1, 2, 3, 5)))
        assert found.reference == 2
        assert [row[0] for row in by_rank(found).values()] == ["untied"] * 2 + ["reference"] + ["collectives"] * 2

    def test_of_equal_islands_the_first_has_it(self) -> None:
        calls = steady({1: (0, 9), 4: (0, 9)}) + steady({0: (0, 9), 3: (0, 9)}, group="h")
        assert told(calls, dict.fromkeys((0, 1, 3, 4))).reference == 0

    def test_broadcasts_bound_nothing(self) -> None:
        found = told(steady({0: (0, 9), 1: (5, 9)}, op="broadcast"), {0: None, 1: None})
        assert by_rank(found)[1] == ("untied", None, inf)
        assert found.constraints.tolist() == [0, 0]

    def test_one_way_is_half_a_bound(self) -> None:
        one, other = Call(0, EPOCH + 10, EPOCH + 20), Call(1, EPOCH + 10, EPOCH + 20)
        there = transfer("t", one, other)
        assert by_rank(told(there, {0: None, 1: None}))[1] == ("untied", None, inf)
        back = transfer("u", other, one)
        method, offset, room = by_rank(told(there + back, {0: None, 1: None}))[1]
        assert (method, offset) == ("collectives", 0)
        assert 10 <= room <= 10 + 2 * ROUNDING + 1

    def test_no_calls(self) -> None:
        rows = by_rank(told([], {3: None, 4: None, 7: "x", 8: "x"}))
        assert [row[0] for row in rows.values()] == ["untied", "untied", "reference", "same host"]

    def test_one_rank(self) -> None:
        found = told(steady({5: (0, 9)}), {5: None})
        assert (found.reference, by_rank(found)) == (5, {5: ("reference", 0, 0.0)})

    @pytest.mark.parametrize("length", [5, 250])
    def test_a_chain(self, length: int) -> None:
        """Each rank meets the next one only, 100 ns apart by their clocks."""
        calls = []
        for rank in range(length):
            spans = {rank: (100 * rank, 100 * rank + 50), rank + 1: (100 * rank + 100, 100 * rank + 150)}
            calls += steady(spans, 1, group=f"g{rank}")
        rows = by_rank(told(calls, dict.fromkeys(range(length + 1))))
        for rank in range(1, length + 1):
            assert rows[rank][:2] == ("collectives", -100 * rank)
            assert 50 * rank <= rows[rank][2] <= (50 + 2 * ROUNDING + 1) * rank


class TestContradictions:
    def test_two_ranks_that_never_agree(self) -> None:
        """Half of the meetings say 0, the other half 50,000."""
        one = steady({0: (0, 10), 1: (0, 10)}, 4)
        other = steady({0: (0, 10), 1: (50_000, 50_010)}, 4, group="h")
        rows = by_rank(told(one + other, {0: None, 1: None, 2: None}))
        assert rows == {0: ("reference", 0, 0.0), 1: ("contradictory", None, inf), 2: ("untied", None, inf)}

    def test_others_keep_their_offset(self) -> None:
        one = steady({0: (0, 10), 1: (0, 10)}, 4) + steady({0: (0, 10), 2: (700, 710), 3: (0, 10)}, 4, group="c")
        other = steady({0: (0, 10), 1: (50_000, 50_010)}, 4, group="h")
        rows = by_rank(told(one + other, {0: "a", 1: None, 2: None, 3: "a"}))
        assert rows[0] == ("reference", 0, 0.0)
        assert rows[1][:2] == ("contradictory", None)
        assert rows[2][:2] == ("collectives", -700)
        assert rows[3] == ("same host", 0, 0.0)

    def test_a_few_wrong_meetings_are_left_out(self) -> None:
        good = steady({0: (0, 10), 1: (0, 10)}, 9)
        bad = steady({0: (0, 10), 1: (50_000, 50_010)}, 1, group="h")
        assert by_rank(told(good + bad, {0: None, 1: None}))[1][:2] == ("collectives", 0)


# -- readings that travelled -------------------------------------------------------------------------------------------


def test_readings_bound_a_clock_that_lateness_leaves_open() -> None:
    """Rank 1 is 40 ms late in every collective, which leaves its clock open by 40 ms; two messages do not."""
    hosts: Hosts = {0: "a", 1: "b"}
    ahead, ms = 5_000_000_000, 1_000_000
    calls = [
        call
        for k in range(20)
        for start in (EPOCH + k * 100 * ms,)
        for call in meeting(k, {0: (start, start + 50 * ms), 1: (start + ahead + 40 * ms, start + ahead + 50 * ms)})
    ]
    matched, ranks = match(made(*calls).calls, {}, hosts), np.array([0, 1], np.int64)
    without = clocks(matched, ranks, hosts)
    middle = EPOCH + 1000 * ms
    readings = Readings(
        rank=np.array([1, 0]),
        arrived=np.array([middle + ahead + ms // 2, middle + ms]),
        sender=np.array([0, 1]),
        sent=np.array([middle, middle + ahead]),
    )
    bounded = clocks(matched, ranks, hosts, readings)
    assert without.uncertainty[1] > 9 * ms
    assert bounded.uncertainty[1] < 2 * ms
    assert abs(int(bounded.offset[1]) + ahead) <= bounded.uncertainty[1]


def test_readings_of_ranks_that_nothing_else_ties_or_that_share_a_clock_change_nothing() -> None:
    hosts: Hosts = {0: "a", 1: "a", 2: "b"}
    calls = [call for k in range(5) for call in meeting(k, {0: (k * 100, k * 100 + 9), 1: (k * 100, k * 100 + 9)})]
    matched, ranks = match(made(*calls).calls, {}, hosts), np.array([0, 1, 2], np.int64)
    readings = Readings(np.array([1, 2, 7]), np.array([50, 50, 1]), np.array([0, 0, 0]), np.array([10**9, 40, 1]))
    assert clocks(matched, ranks, hosts, readings).method == clocks(matched, ranks, hosts).method


# -- how far ends lie apart, where ranks only send and receive ---------------------------------------------------------


def sends(late: int, of: int = 200) -> list[Call]:
    """Transfers whose ends differ by up to 5 us; every other send is recorded `late` ns longer."""
    chance = np.random.default_rng(0)
    calls = []
    for number in range(of):
        start = EPOCH + number * 1_000_000
        ends = start + 100_000 + chance.integers(-5_000, 5_000, 2)
        send = Call(0, start, int(ends[0]) + (late if number % 2 else 0))
        calls += [
            send.but(op="send", peer=1, group="g", seq=-1),
            Call(1, start, int(ends[1])).but(op="recv", peer=0, group="g", seq=-1),
        ]
    return calls


@pytest.mark.parametrize("late", [0, 800_000], ids=["prompt", "waited for later"])
def test_sends_that_last_until_somebody_waits_do_not_widen_the_clock_error(late: int) -> None:
    """Ends differ by 3.3 us in the mean, so each is 1.3 us from the middle in the median."""
    spread = told(sends(late), {0: "a", 1: "a"}).spread
    assert spread.tolist() == pytest.approx([1_500, 1_500], abs=400)

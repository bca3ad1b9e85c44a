"""Which records belong to one collective: small cases made by hand, each record named after what it is a record of."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from lostflops.account.align.match import _as_many_as_any, match
from made_calls import Call, Made, Meeting, made

AHEAD = {0: 0, 1: 700_000_000, 2: -300_000_000, 3: 55_000}
"""Of the clock of each rank."""
ENDS = (100_000, 380_000, 450_000, 810_000, 990_000, 1_500_000, 1_580_000, 2_100_000)
"""Of the meetings a to h, by the clock of rank 0: no pace, as in a step."""
NAMES = "abcdefgh"


def whole(ranks: Iterable[int], *, numbered: bool = False) -> list[Call]:
    """Every rank at every meeting; the later the rank, the later it starts."""
    return [
        Call(
            rank,
            start=AHEAD[rank] + end - 40_000 + 7_000 * rank,
            stop=AHEAD[rank] + end,
            seq=11 + number if numbered else -1,
            name=name,
        )
        for rank in ranks
        for number, (name, end) in enumerate(zip(NAMES, ENDS, strict=True))
    ]


def without(calls: list[Call], lost: dict[int, str]) -> Made:
    return made(*(call for call in calls if call.name not in lost.get(call.rank, "")))


def expected(ranks: Iterable[int], lost: dict[int, str]) -> list[Meeting]:
    """Of the meetings that at least two ranks have a record of."""
    met = [{rank: name for rank in ranks if name not in lost.get(rank, "")} for name in NAMES]
    return [meeting for meeting in met if len(meeting) > 1]


def ordered(meetings: list[Meeting]) -> list[Meeting]:
    return sorted(meetings, key=lambda meeting: sorted(meeting.values()))


def test_numbers_of_ranks_of_32_bits_do_not_wrap() -> None:
    """Products of rank and count of numbers that are equal in 32 bits: 0, and 4 times 2^30."""
    rank = np.array([0, 0, 0, 0, 2**30, 2**30, 2**30, 2**30], np.int32)
    seq = np.array([1, 2, 3, 4, 1, 2, 3, 3], np.int64)
    assert _as_many_as_any(rank, seq).tolist() == [True, True, False, True, True, True, True, True]


LOSSES = {
    "nothing": {},
    "the first": {1: "a"},
    "the first of the first rank": {0: "a"},
    "in the middle": {1: "d"},
    "two in a row": {2: "de"},
    "the last": {1: "h"},
    "one each": {0: "b", 1: "e", 2: "g"},
    "as many on each, so that orders look complete": {0: "c", 1: "f"},
    "the first of one, the last of the other": {0: "a", 1: "h"},
    "the same on all": {0: "d", 1: "d", 2: "d"},
    "all but one rank's": {0: "d", 1: "d"},
    "half of a rank": {2: "aceg"},
}


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "by time"])
@pytest.mark.parametrize("lost", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("ranks", [(0, 1, 2), (1, 3, 2), (0, 1)], ids=str)
def test_a_lost_record_leaves_a_hole(ranks: tuple[int, ...], lost: dict[int, str], numbered: bool) -> None:
    here = {rank: names for rank, names in lost.items() if rank in ranks}
    found = without(whole(ranks, numbered=numbered), here).meetings()
    assert ordered(found) == expected(sorted(ranks), here)


def test_calls_close_to_each_other_that_the_longest_sequence_misses() -> None:
    """Rank 0 has neither of d and e, which are 15 µs apart; ranks 1 and 2 have one each."""
    ends = np.cumsum([60, 70, 90, 30, 15, 80, 60, 75, 95, 65]) * 1_000
    lost = {0: "de", 1: "dfh", 2: "egi"}
    calls = [
        Call(rank, end - 5_000, end, name=name)
        for rank in (0, 1, 2)
        for name, end in zip("abcdefghij", ends.tolist(), strict=True)
        if name not in lost[rank]
    ]
    for hosts in ({}, dict.fromkeys((0, 1, 2), "host")):
        found = made(*calls).meetings(hosts=hosts)
        assert all(len(set(meeting.values())) == 1 for meeting in found)
        assert len(found) == 8


def test_numbers_decide_against_time() -> None:
    """Ends that coincide by chance are no evidence where numbers tell."""
    found = made(
        Call(0, 0, 100, seq=1, name="a"),
        Call(0, 200, 300, seq=2, name="b"),
        Call(1, 200, 300, seq=1, name="a"),
        Call(1, 400, 500, seq=2, name="b"),
    ).meetings()
    assert found == [{0: "a", 1: "a"}, {0: "b", 1: "b"}]


def test_rows_may_come_in_any_order_of_ranks_and_groups() -> None:
    both = [Call(rank, 10, 20, seq=1, group="one" if rank in (0, 3) else "two", name="x") for rank in range(4)]
    assert ordered(made(*reversed(both)).meetings()) == ordered([{0: "x", 3: "x"}, {1: "x", 2: "x"}])
    groups = {tuple(channel.members.tolist()) for channel in match(made(*both).calls, {}, {}).channels}
    assert groups == {(0, 3), (1, 2)}


def numbers(rank: int, seqs: Iterable[int], names: str, **more: object) -> list[Call]:
    listed = enumerate(zip(seqs, names, strict=True))
    return [
        Call(rank, 1_000_000 * place, 1_000_000 * place + 50, seq=seq, name=name).but(**more)
        for place, (seq, name) in listed
    ]


class TestNumbers:
    def test_calls_of_one_number_are_told_apart_by_order(self) -> None:
        found = made(*numbers(0, (1, 2, 2, 2, 3), "abcde"), *numbers(1, (1, 2, 2, 2, 3), "abcde")).meetings()
        assert found == [{0: name, 1: name} for name in "abcde"]

    @pytest.mark.parametrize("lost", [1, 2, 3])
    def test_one_of_a_coalesced_call_is_lost(self, lost: int) -> None:
        """Which of the three is not told, and a wrong partner would bound the clocks wrongly."""
        all_five = numbers(1, (1, 2, 2, 2, 3), "abcde")
        found = made(*numbers(0, (1, 2, 2, 2, 3), "abcde"), *all_five[:lost], *all_five[lost + 1 :]).meetings()
        assert all(set(meeting.values()) == {meeting[0]} for meeting in found)
        assert {0: "a", 1: "a"} in found
        assert {0: "e", 1: "e"} in found

    @pytest.mark.parametrize(
        ("seqs", "complete"),
        [
            ((1, -1, 3, 4, 5), True),
            ((1, -1, -1, 4, 5), True),
            ((1, 2, -1, -1, 5), True),
            ((-1, 2, 3, 4, 5), False),
            ((1, 2, 3, 4, -1), False),
        ],
    )
    def test_numbers_that_were_lost_are_filled_between_neighbours(self, seqs: tuple[int, ...], complete: bool) -> None:
        found = made(*numbers(0, (1, 2, 3, 4, 5), "abcde"), *numbers(1, seqs, "abcde")).meetings()
        names = "abcde" if complete else [n for n, seq in zip("abcde", seqs, strict=True) if seq > 0]
        assert found == [{0: name, 1: name} for name in names]

    def test_numbers_that_do_not_fit_between_neighbours_are_not_guessed(self) -> None:
        """Of two calls in between one was not recorded at all."""
        found = made(*numbers(0, (1, 2, 3, 4), "abcd"), *numbers(1, (1, -1, 4), "abd")).meetings()
        assert found == [{0: "a", 1: "a"}, {0: "d", 1: "d"}]

    def test_neighbours_of_another_rank_tell_nothing(self) -> None:
        first = numbers(0, (1, 2, 3), "abc")
        second = numbers(1, (-1, 5, 6), "def")
        third = numbers(2, (1, 2, 3, 4, 5, 6), "abcdef")
        found = made(*first, *second, *third).meetings()
        assert all(len(set(meeting.values())) == 1 for meeting in found)
        assert len(found) == 5

    def test_too_few_numbers_decide_nothing(self) -> None:
        calls = whole((0, 1))
        calls[0] = calls[0].but(seq=9)
        calls[10] = calls[10].but(seq=9)
        assert ordered(made(*calls).meetings()) == expected((0, 1), {})

    def test_a_number_of_two_operations_ties_no_ranks(self) -> None:
        """Most ranks know what it was."""
        calls = [
            Call(0, 0, 10, seq=1, op="all_gather", name="a"),
            Call(1, 0, 10, seq=1, op="reduce_scatter", name="x"),
            Call(2, 0, 10, seq=1, op="all_gather", name="a"),
        ]
        both = [Call(rank, 50, 60, seq=2, name="b") for rank in range(3)]
        assert made(*calls, *both).meetings() == [{0: "a", 2: "a"}, {0: "b", 1: "b", 2: "b"}]

    def test_sizes_of_an_all_to_all_may_differ(self) -> None:
        for seq in (5, -1):
            calls = [Call(rank, 0, 50 + rank, seq=seq, op="all_to_all", size=-1, name="a") for rank in range(3)]
            assert made(*calls).meetings() == [{0: "a", 1: "a", 2: "a"}]


class TestMembers:
    def test_no_calls(self) -> None:
        matched = match(made().calls, {}, {0: None, 1: None})
        assert (matched.channels, matched.alone.size) == ((), 0)

    def test_one_rank(self) -> None:
        matched = match(made(*whole((1,), numbered=True)).calls, {"g": 8}, {})
        assert (matched.channels, matched.alone.size) == ((), 0)

    def test_members_outside_the_run_are_expected(self) -> None:
        (channel,) = match(made(*whole((1, 3))).calls, {"g": 8, "h": 4}, {}).channels
        assert (channel.expected, channel.members.tolist(), channel.rows.shape) == (8, [1, 3], (2, 8))
        (channel,) = match(made(*whole((1, 3))).calls, {}, {}).channels
        assert channel.expected < 0

    @pytest.mark.parametrize("numbered", [True, False])
    def test_calls_that_no_other_rank_recorded_are_named(self, numbered: bool) -> None:
        listed = without(whole((0, 1, 2), numbered=numbered), {0: "d", 1: "df", 2: "f"})
        matched = match(listed.calls, {}, {})
        assert sorted((int(listed.calls.rank[row]), listed.names[row]) for row in matched.alone) == [(0, "f"), (2, "d")]

    def test_groups_of_one_rank_are_not_alone(self) -> None:
        matched = match(made(Call(0, 0, 9, group="a"), Call(1, 0, 9, group="b")).calls, {}, {})
        assert (matched.channels, matched.alone.size) == ((), 0)

    def test_calls_of_no_length(self) -> None:
        calls = [call.but(start=call.stop) for call in whole((0, 1, 2))]
        assert ordered(made(*calls).meetings()) == expected((0, 1, 2), {})

    def test_broadcasts_that_end_apart(self) -> None:
        """The root is done long before the others receive: only order tells."""
        ends = {0: (10_000, 20_000, 30_000), 1: (3_000_000, 9_000_000, 9_500_000)}
        calls = [
            Call(rank, end - 5_000, end, op="broadcast", name=name)
            for rank, own in ends.items()
            for name, end in zip("abc", own, strict=True)
        ]
        assert made(*calls).meetings() == [{0: name, 1: name} for name in "abc"]


def transfers(source: int, target: int, names: str, **more: object) -> list[Call]:
    """Both ends of transfers that finish together, by the clocks of their ranks."""
    ends = dict(zip(NAMES, ENDS, strict=True))
    out = [
        Call(source, AHEAD[source] + ends[n] - 20_000, AHEAD[source] + ends[n], op="send", peer=target, name=n)
        for n in names
    ]
    back = [
        Call(target, AHEAD[target] + ends[n] - 30_000, AHEAD[target] + ends[n], op="recv", peer=source, name=n)
        for n in names
    ]
    return [call.but(**more) for call in out + back]


class TestTransfers:
    @pytest.mark.parametrize("lost", LOSSES.values(), ids=LOSSES)
    def test_a_lost_end_shifts_nothing(self, lost: dict[int, str]) -> None:
        found = without(transfers(1, 0, NAMES), lost).meetings()
        met = [{rank: n for rank in (0, 1) if n not in lost.get(rank, "")} for n in NAMES]
        assert ordered(found) == [meeting for meeting in met if meeting]

    def test_directions_are_apart(self) -> None:
        forth, back = transfers(0, 1, "ace"), transfers(1, 0, "bdf")
        (first, second) = match(made(*forth, *back).calls, {}, {}).channels
        assert (first.members.tolist(), second.members.tolist()) == ([0, 1], [1, 0])
        assert first.is_p2p
        assert first.expected == 2
        assert ordered(made(*forth, *back).meetings()) == [{0: n, 1: n} for n in "abcdef"]

    def test_groups_are_apart(self) -> None:
        calls = transfers(0, 1, "ab") + [call.but(group="h", lane=9) for call in transfers(0, 1, "cd")]
        assert len(match(made(*calls).calls, {}, {}).channels) == 2
        assert ordered(made(*calls).meetings()) == [{0: n, 1: n} for n in "abcd"]

    def test_numbers_of_transfers_are_ignored(self) -> None:
        """Each end counts what it called itself."""
        calls = [call.but(seq=ENDS[NAMES.index(call.name)] * (1 + call.rank)) for call in transfers(0, 1, "abcd")]
        assert made(*calls).meetings() == [{0: n, 1: n} for n in "abcd"]

    def test_an_end_outside_the_run(self) -> None:
        calls = [call for call in transfers(0, 1, "abc") if call.rank == 0]
        assert match(made(*calls).calls, {}, {}).channels == ()

    def test_a_receive_is_posted_long_before(self) -> None:
        calls = [
            call.but(start=call.stop - 2_000_000) if call.op == "recv" else call for call in transfers(0, 1, NAMES)
        ]
        found = without(calls, {0: "c", 1: "f"}).meetings()
        assert ordered(found) == [{r: n for r in (0, 1) if (r, n) not in ((0, "c"), (1, "f"))} for n in NAMES]

    def test_transfers_that_end_together_keep_their_order(self) -> None:
        """Two stages of one rank send to the same peer at once, as with interleaved pipelines."""
        ends = {"a": (100, 110), "b": (900, 905), "c": (903, 980), "d": (1_700, 1_740), "e": (2_500, 2_501)}
        out = [
            Call(0, end * 1_000 - 90_000, end * 1_000, op="send", peer=1, name=name) for name, (end, _) in ends.items()
        ]
        back = [
            Call(1, end * 1_000 - 50_000, end * 1_000, op="recv", peer=0, name=name) for name, (_, end) in ends.items()
        ]
        calls = [*out, *back]
        assert ordered(made(*calls).meetings(hosts={0: "host", 1: "host"})) == [{0: n, 1: n} for n in ends]
        lost = [call for call in calls if (call.rank, call.name) != (1, "b")]
        found = ordered(made(*lost).meetings(hosts={0: "host", 1: "host"}))
        assert {0: "a", 1: "a"} in found
        assert {0: "d", 1: "d"} in found


def unnamed(call: Call) -> Call:
    return call.but(group=None, seq=-1, size=-1)


class TestWithoutGroup:
    def test_the_lane_tells_the_group(self) -> None:
        calls = whole((0, 1, 2))
        calls = [unnamed(call) if (call.rank, call.name) in ((0, "c"), (1, "c"), (2, "h")) else call for call in calls]
        other = [Call(rank, AHEAD[rank], AHEAD[rank] + 9, group="h", lane=8, name="z") for rank in (0, 1, 2)]
        assert ordered(made(*calls, *other).meetings()) == [*expected((0, 1, 2), {}), {0: "z", 1: "z", 2: "z"}]

    def test_a_lane_of_two_groups_tells_nothing(self) -> None:
        calls = [Call(0, 0, 5, group="g"), Call(0, 10, 15, group="h"), Call(0, 20, 25, group=None)]
        groups = match(made(*calls).calls, {}, {}).calls.group
        assert groups.tolist() == [0, 1, -1]

    def test_lanes_of_other_ranks_tell_nothing(self) -> None:
        calls = [Call(0, 0, 5, group="g"), Call(1, 0, 5, group=None), Call(0, 20, 25, group=None, lane=8)]
        groups = match(made(*calls).calls, {}, {}).calls.group
        assert groups.tolist() == [0, -1, -1]

    def test_a_transfer_without_metadata(self) -> None:
        """It is named like any kernel of transfers; its lane tells direction and peer."""
        calls = transfers(0, 1, NAMES)
        calls = [
            call.but(group=None, op="send_recv", peer=-1) if (call.rank, call.name) == (1, "d") else call
            for call in calls
        ]
        assert ordered(made(*calls).meetings()) == [{0: n, 1: n} for n in NAMES]

    def test_a_lane_that_sends_and_receives_tells_no_direction(self) -> None:
        calls = transfers(0, 1, "abc") + transfers(1, 0, "efg")
        calls = [
            call.but(group=None, op="send_recv", peer=-1) if (call.rank, call.name) == (1, "b") else call
            for call in calls
        ]
        found = ordered(made(*calls).meetings())
        assert found == [{0: n, 1: n} if n != "b" else {0: n} for n in "abcefg"]

    @pytest.mark.parametrize("lost", LOSSES.values(), ids=LOSSES)
    def test_lanes_with_other_numbers_on_each_rank(self, lost: dict[int, str]) -> None:
        """Two lanes per rank, of other calls; nobody says which is which."""
        lanes = {0: (7, 9), 1: (9, 7), 2: (20, 13)}
        first = [unnamed(call).but(lane=lanes[call.rank][0]) for call in whole((0, 1, 2))]
        second = [
            unnamed(call).but(
                op="all_gather",
                lane=lanes[call.rank][1],
                start=call.start + 21_000,
                stop=call.stop + 21_000,
                name=f"{call.name}'",
            )
            for call in first
        ]
        found = without(first + second, lost).meetings()
        seconds = [dict.fromkeys((0, 1, 2), f"{name}'") for name in NAMES]
        assert ordered(found) == ordered(expected((0, 1, 2), lost) + seconds)

    def test_a_lane_has_one_partner(self) -> None:
        """Two lanes of rank 0 do the same nearly at once; rank 1 has one."""
        calls = [unnamed(call) for call in whole((0, 1))]
        again = [call.but(lane=8, start=call.start + 3_000, stop=call.stop + 3_000) for call in calls if call.rank == 0]
        found = made(*calls, *again).meetings()
        assert [meeting[1] for meeting in found] == list(NAMES)

    def test_lanes_that_do_not_fit_are_not_one_group(self) -> None:
        calls = [unnamed(call) for call in whole((0, 1))]
        other = [call.but(op="all_gather", lane=8) if call.rank == 1 else call for call in calls]
        assert made(*other).meetings() == []

    def test_host_and_device_are_apart(self) -> None:
        calls = [unnamed(call) for call in whole((0, 1))]
        assert made(*(call.but(on_host=call.rank == 1) for call in calls)).meetings() == []
        assert len(made(*(call.but(on_host=True, lane=call.rank) for call in calls)).meetings()) == 8


def test_every_row_is_used_once() -> None:
    calls = whole((0, 1, 2, 3)) + transfers(0, 1, NAMES) + transfers(1, 0, "ace")
    matched = match(without(calls, {0: "b", 1: "cd", 3: "h"}).calls, {}, {})
    rows = np.concatenate([channel.rows[channel.rows >= 0] for channel in matched.channels])
    assert np.unique(rows).size == rows.size

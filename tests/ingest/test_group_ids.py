import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.ingest.common.group_ids import group_id, parse_ranks

rank_lists = st.lists(st.integers(0, 5000), min_size=1, max_size=40, unique=True)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (range(8), "0@0-7"),
        ([1, 3, 5, 7], "0@1-7/2"),
        ([3], "0@3"),
        ([0, 1], "0@0-1"),
        ([0, 8], "0@0-8/8"),
        ([0, 3, 4], "0@0,3,4"),
        ([4, 0, 3], "0@0,3,4"),
        ([0, 1, 4, 5, 8, 9, 12, 13], "0@0,1,4,5,8,9,12,13"),
    ],
)
def test_members_are_written_compactly(ranks, expected):
    assert group_id("0", ranks) == expected


def test_long_irregular_lists_are_hashed():
    assert re.fullmatch(r"7@0\.\.100#[0-9a-f]{12}", group_id("7", [n * n for n in range(11)]))


@given(rank_lists, rank_lists, st.randoms())
def test_the_id_tells_groups_apart_whatever_the_order(one, other, random):
    shuffled = one.copy()
    random.shuffle(shuffled)
    assert group_id("0", one) == group_id("0", shuffled)
    assert (group_id("0", one) == group_id("0", other)) == (set(one) == set(other))


def test_a_group_without_members_is_a_mistake():
    with pytest.raises(ValueError, match="member"):
        group_id("0", [])


@given(rank_lists)
def test_ranks_are_read_back(ranks):
    assert parse_ranks(str(ranks)) == ranks


@pytest.mark.parametrize(
    "text", ["", "[]", "[0, 1, ...]", "[0, 1", "{}", "3", "[true]", "[-1]", '["0"]', "[" * 100_000]
)
def test_what_is_not_a_whole_list_of_ranks_is_none(text):
    assert parse_ranks(text) is None

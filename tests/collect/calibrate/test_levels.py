from lostflops.collect.calibrate.levels import by_host, levels, uneven


def groups(places: str) -> dict[str, tuple[tuple[int, ...], ...]]:
    return {level.name: level.groups for level in levels(by_host(places))}


def test_ranks_need_not_be_placed_in_order() -> None:
    assert groups("abab") == {
        "world": ((0, 1, 2, 3),),
        "host": ((0, 2), (1, 3)),
        "across": ((0, 1), (2, 3)),
        "ring": ((0, 1, 2, 3),),
        "pair.host": ((0, 2),),
        "pair.across": ((0, 1),),
    }


def test_one_host_is_no_world() -> None:
    assert groups("aaa") == {"host": ((0, 1, 2),), "ring": ((0, 1, 2),), "pair.host": ((0, 1),)}


def test_one_rank_per_host_is_no_world() -> None:
    assert groups("abc") == {"across": ((0, 1, 2),), "ring": ((0, 1, 2),), "pair.across": ((0, 1),)}


def test_a_rank_alone_has_nobody_to_talk_to() -> None:
    assert groups("a") == {}


def test_uneven_hosts_are_measured_by_their_first_ranks() -> None:
    found = groups("aaabbc")
    assert found["world"] == ((0, 1, 2, 3, 4, 5),)
    assert found["host"] == ((0, 1), (3, 4))
    assert found["across"] == ((0, 3, 5),)
    assert uneven(by_host("aaabbc")) == (
        "hosts have 1 to 3 ranks: host and across use only the first ranks of each host, and world is uneven"
    )
    assert uneven(by_host("aabb")) is None


def test_all_groups_of_a_level_have_one_shape() -> None:
    for places in ("aaabbc", "abcabc", "aab", "aaaabbbb"):
        for level in levels(by_host(places)):
            assert {len(group) for group in level.groups} == {level.ranks}
            assert {len({places[rank] for rank in group}) for group in level.groups} == {level.hosts}


def test_who_takes_part() -> None:
    (pair,) = [level for level in levels(by_host("aabb")) if level.name == "pair.across"]
    assert (pair.members(2), pair.members(1), pair.ops) == ((0, 2), None, ("send_recv",))

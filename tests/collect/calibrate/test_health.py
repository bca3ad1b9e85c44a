"""Who exchanges with whom in a health check, against the rules that make a slow rank visible."""

import pytest

pytest.importorskip("torch")

from collections import Counter

from lostflops.collect.calibrate.health import rounds

LAYOUTS = (
    [[tuple(range(count))] for count in range(1, 10)]
    + [
        [tuple(range(host * width, (host + 1) * width)) for host in range(count)]
        for count in range(2, 7)
        for width in (1, 2, 3, 8)
    ]
    + [[(0, 1, 2), (3,), (4, 5)]]
)


@pytest.mark.parametrize("hosts", LAYOUTS, ids=str)
@pytest.mark.parametrize("level", ["inside", "across"])
def test_ranks_meet_each_other_at_most_once_and_never_two_at_a_time(hosts: list[tuple[int, ...]], level: str) -> None:
    host_of = {rank: number for number, ranks in enumerate(hosts) for rank in ranks}
    met: Counter[tuple[int, int]] = Counter()
    for pairs in rounds(hosts, level):
        assert pairs
        assert max(Counter(rank for pair in pairs for rank in pair).values()) == 1
        met.update(pairs)
    assert all(count == 1 for count in met.values())
    assert all((host_of[a] == host_of[b]) == (level == "inside") for a, b in met)


@pytest.mark.parametrize("hosts", LAYOUTS, ids=str)
def test_with_three_hosts_every_rank_has_two_partners(hosts: list[tuple[int, ...]]) -> None:
    """Then the best pair of a healthy rank is one without a slow partner."""
    partners = Counter(rank for pairs in rounds(hosts, "across") for pair in pairs for rank in pair)
    width = min(map(len, hosts))
    expected = {rank for ranks in hosts for rank in ranks[:width]} if len(hosts) > 1 else set()
    assert set(partners) >= expected
    if len(hosts) > 2:
        assert all(partners[rank] >= 2 for rank in expected)

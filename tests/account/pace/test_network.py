"""Rates of interfaces and of the job's connections, from counters made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from lostflops.account.pace.network import table
from memory_run import MemoryRun

S = 1_000_000_000
GB = 1_000_000_000


def reading(  # noqa: PLR0917
    rank: int, at: float, scope: str, interface: str | None, received: float, sent: float
) -> dict[str, Any]:
    counters = {"received": int(received * GB), "sent": int(sent * GB), "resent": int(sent * GB / 10)}
    if scope == "host":
        counters["resent"] = None  # type: ignore[assignment]
    row = {"rank": rank, "attempt": 0, "time": int(at * S), "scope": scope, "interface": interface}
    return {**row, **counters}


HOST = [
    *(reading(0, at, "host", "eth0", 3 * at, 2 * at) for at in (0, 1, 2)),
    reading(0, 4, "host", "eth0", 20, 10),
    *(reading(0, at, "host", "lo", 0, 0) for at in (0, 4)),
]
OWN = [
    *(reading(0, at, "process", None, at, 0.5 * at) for at in (0, 4)),
    *(reading(1, at, "process", None, at, 1.0 * at) for at in (1, 3)),
    *(reading(rank, 2, "process", "lo", 0, 0) for rank in (0, 1)),
]
PLACES = [{"rank": rank, "attempt": 0, "host": "a"} for rank in (0, 1)]


def rows(network: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with MemoryRun(network=network, attempts=PLACES) as run:
        return table(run).to_json()


def test_rates_are_of_the_time_that_all_ranks_recorded() -> None:
    """From 1 s to 3 s: the interface receives 3 and then half of 14 GB, the job sends 1 and 2 GB."""
    [row] = rows(HOST + OWN)
    assert (row["host"], row["interface"], row["span_ns"], row["job_ranks"]) == ("a", "eth0", 2 * S, 2)
    assert row["received_gbs"] == pytest.approx((13 - 3) / 2)
    assert row["sent_gbs"] == pytest.approx((7 - 2) / 2)
    assert row["job_sent_gbs"] == pytest.approx(1.5)
    assert row["resent_share"] == pytest.approx(0.1)
    assert row["busiest_gbs"] == pytest.approx(14 / 2), "between the last two readings"


def test_with_two_interfaces_nobody_knows_which_one_the_job_uses() -> None:
    found = rows([*HOST, *OWN, *(reading(0, at, "host", "eth1", at, at) for at in (0, 4))])
    assert {row["interface"]: row["job_sent_gbs"] for row in found} == {"eth0": None, "eth1": None}


def test_without_connections_the_job_is_unknown_and_one_reading_is_no_rate() -> None:
    [row] = rows(HOST)
    assert (row["span_ns"], row["job_sent_gbs"], row["resent_share"]) == (4 * S, None, None)
    assert rows(HOST[:1]) == []
    assert rows([]) == []


def test_an_idle_interface_is_not_one_that_the_job_may_use() -> None:
    [row] = rows([*HOST, *OWN, *(reading(0, at, "host", "docker0", 7, 7) for at in (0, 4))])
    assert (row["interface"], row["job_ranks"]) == ("eth0", 2)


def test_an_interface_that_was_made_again_has_no_rate() -> None:
    """Its counters begin at 0: the difference would be a negative rate."""
    falling = [reading(0, at, "host", "eth1", left, left) for at, left in ((0, 9), (2, 0), (4, 1))]
    found = rows([*HOST, *OWN, *falling])
    assert {row["interface"]: row["job_sent_gbs"] for row in found} == {"eth0": None}


def on_two_nodes(second: float) -> list[dict[str, Any]]:
    """Ranks 0 and 1, and 2 and 3, on two nodes of one name; the counters of the second begin at another height."""
    return [
        row
        for first, more in ((0, 0.0), (2, second))
        for row in (
            *(reading(first, at, "host", "eth0", more + 3 * at, more + 2 * at) for at in (0, 1, 2, 4)),
            *(reading(first + local, at, "process", None, at, 0.5 * at) for local in (0, 1) for at in (0, 4)),
        )
    ]


def rows_of_nodes(network: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    places = [{"rank": rank, "attempt": 0, "host": "localhost", "local_rank": rank % 2} for rank in range(4)]
    with MemoryRun(network=network, attempts=places) as run:
        return [(row["host"], row["sent_gbs"], row["job_sent_gbs"], row["job_ranks"]) for row in table(run).to_json()]


def test_hosts_of_one_name_differ_in_their_counters() -> None:
    """Containers may all be called localhost: each has its own interfaces, and only its own ranks use them."""
    assert rows_of_nodes(on_two_nodes(500)) == [
        ("localhost (rank 0)", 2.0, 1.0, 2),
        ("localhost (rank 2)", 2.0, 1.0, 2),
    ]


def test_two_launchers_on_one_host_read_the_same_interfaces() -> None:
    assert rows_of_nodes(on_two_nodes(0)) == [("localhost", 2.0, 2.0, 4)]

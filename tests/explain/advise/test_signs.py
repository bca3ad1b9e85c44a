"""What rules read, on values whose truth is plain."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.predict.graph.tiny import L, M, T, graph

from lostflops.explain.advise.signs.extra_time import saving_of_first_steps
from lostflops.explain.advise.signs.hand_made import in_hooks
from lostflops.explain.advise.signs.slow_host import slow_host
from lostflops.explain.advise.signs.traffic import traffic_of
from lostflops.explain.advise.signs.uneven import _follows
from lostflops.predict.graph.tasks import LaneKind, TaskKind

SHARES = np.array([[1.0], [2.0], [3.0], [4.0]]) * np.ones((1, 5))
ONE_KIND = np.zeros(4, np.int64)


@pytest.mark.parametrize(
    ("time", "is_found"),
    [
        pytest.param(SHARES * 10, True, id="time follows the work"),
        pytest.param(SHARES[::-1] * 10, False, id="it does not"),
        pytest.param(np.ones_like(SHARES), False, id="all take as long"),
    ],
)
def test_work_that_is_dealt_out_unevenly_for_good(time: np.ndarray, is_found: bool) -> None:
    found = _follows("tokens", SHARES, time, ONE_KIND, for_good=True)
    assert (found is not None and found.for_good) == is_found
    assert _follows("tokens", SHARES, time, ONE_KIND) is None, "nothing changes from step to step"


@pytest.mark.parametrize(
    ("calls", "size", "is_ddp", "is_hooked"),
    [
        pytest.param(20, 4_000, False, True, id="many small ones"),
        pytest.param(20, 4_000, True, False, id="of DDP"),
        pytest.param(4, 4_000, False, False, id="few"),
        pytest.param(20, 40_000_000, False, False, id="large ones"),
    ],
)
def test_gradients_that_hooks_reduce(calls: int, size: int, is_ddp: bool, is_hooked: bool) -> None:
    tasks = [T(f"x{at}", kind=TaskKind.COMM, meets=f"m{at}") for at in range(calls)]
    made = graph([L(0, LaneKind.STREAM, tasks)], meetings={f"m{at}": M(1) for at in range(calls)})
    every = np.ones(calls, np.bool_)
    traffic = SimpleNamespace(
        graph=made,
        in_backward=every,
        is_ddp=is_ddp,
        is_sharded=False,
        of=lambda meetings: meetings,
        a_step=lambda rows: int(rows.sum()),
        size=np.full(calls, size),
    )
    case: Any = SimpleNamespace(answers={traffic_of: traffic})
    assert bool(in_hooks(case).any()) == is_hooked


PAIRS = ((0, 1), (2, 3), (0, 2), (1, 3))


def exchanged(groups: tuple[tuple[int, ...], ...], hosts: list[str | None], slow: dict[int, int]) -> Any:
    """Each group all-reduces a megabyte eight times, in a millisecond; with ranks in `slow` so many times longer."""
    calls = [(group, f"m{at}.{number}") for at, group in enumerate(groups) for number in range(8)]
    lanes = [
        L(
            rank,
            LaneKind.STREAM,
            [T(f"{name}.{rank}", kind=TaskKind.COMM, meets=name) for own, name in calls if rank in own],
        )
        for rank in range(len(hosts))
    ]
    made = graph(lanes, meetings={name: M(1, ranks=len(group)) for group, name in calls})
    meeting = made.tasks.meeting.astype(np.int64)
    took = np.array([1_000_000 * max(slow.get(rank, 1) for rank in calls[at][0]) for at in meeting.tolist()])
    size = made.meetings.size[meeting]
    traffic = SimpleNamespace(graph=made, rank=made.rank.astype(np.int64), meeting=meeting, took=took, size=size)
    rows = [(rank, host) for rank, host in enumerate(hosts) if host is not None]
    run = SimpleNamespace(rows=lambda _: rows)
    return SimpleNamespace(run=run), traffic


@pytest.mark.parametrize(
    ("groups", "hosts", "slow", "host"),
    [
        pytest.param(PAIRS, ["a", "b", "c", "d"], {3: 4}, "d", id="one host of four"),
        pytest.param(PAIRS, ["a", "b", "c", "d"], {}, None, id="none is slow"),
        pytest.param(PAIRS, ["a", "b", "c", "d"], {1: 4, 2: 4}, None, id="all pairs have a slow host"),
        pytest.param(((0, 1, 2),), ["a", "b", "c"], {2: 4}, None, id="all hosts in every transfer"),
        pytest.param(PAIRS, ["a", "a", "a", "a"], {3: 4}, None, id="one host"),
        pytest.param(PAIRS, ["a", "b", "c", None], {3: 4}, None, id="a host without a name"),
    ],
)
def test_the_host_whose_transfers_are_slow(groups: Any, hosts: Any, slow: dict[int, int], host: str | None) -> None:
    case, traffic = exchanged(groups, hosts, slow)
    found = slow_host(case, traffic)
    assert (found and found.host) == host
    if found is not None:
        assert found.others / found.rate == pytest.approx(4)
        assert len(found.meetings) == 16


def test_long_steps_now_and_then_are_no_growth() -> None:
    """Steps grow by a tenth, and every tenth takes ten times as long: growth costs about 3%, and not half."""
    growing = np.linspace(100.0, 110.0, 120) * np.where(np.arange(120) % 10 == 9, 10.0, 1.0)
    found = saving_of_first_steps(growing)
    assert found.value == pytest.approx(0.032, abs=0.01)

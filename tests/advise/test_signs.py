"""What rules read, on values whose truth is plain."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.graph.tiny import L, M, T, graph

from lostflops.advise.signs.hand_made import in_hooks
from lostflops.advise.signs.uneven import _follows
from lostflops.graph.tasks import Kind, LaneKind

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
    tasks = [T(f"x{at}", kind=Kind.COMM, meets=f"m{at}") for at in range(calls)]
    made = graph([L(0, LaneKind.STREAM, tasks)], meetings={f"m{at}": M(1) for at in range(calls)})
    every = np.ones(calls, np.bool_)
    traffic = SimpleNamespace(
        graph=made,
        in_backward=every,
        is_ddp=is_ddp,
        of=lambda meetings: meetings,
        a_step=lambda rows: int(rows.sum()),
        size=np.full(calls, size),
    )
    case: Any = SimpleNamespace(traffic=traffic)
    assert bool(in_hooks(case).any()) == is_hooked

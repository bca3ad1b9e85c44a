"""A late rank becomes like the others, not quicker than they are."""

from __future__ import annotations

import pytest
from tests.predict.graph.tiny import L, M, T, graph

from lostflops.predict.graph.tasks import LaneKind, TaskKind
from lostflops.predict.whatif.graph_edits.late_ranks import cap_late_ranks


def lane(rank, durations):
    tasks = [T(f"{rank}.{at}", ns, kind=TaskKind.KERNEL, step=0) for at, ns in enumerate(durations)]
    return L(rank, LaneKind.STREAM, [*tasks, T(f"{rank}.x", kind=TaskKind.COMM, meets="x", step=0)])


@pytest.mark.parametrize(
    ("late", "after"),
    [((30, 10, 30, 110), 80), ((10, 30, 10, 130), 80), ((10, 10, 10, 40), 70), ((20, 20, 20, 20), 80)],
)
def test_what_it_did_quicker_by_chance_is_not_gained_too(late, after):
    """The other takes 10, 30, 10 and 30: 80 in all."""
    steps = [(rank, 0, "", "") for rank in (0, 1)]
    before = graph([lane(0, (10, 30, 10, 30)), lane(1, late)], [], {"x": M(5)}, steps)
    found = cap_late_ranks(before, [1], [0])
    assert found.tasks.duration[found.rank == 1].sum() == pytest.approx(after, abs=2)

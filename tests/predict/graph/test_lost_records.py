"""The saving of a late rank is the same whether records of collectives are lost or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lostflops import Run
from lostflops.predict.graph.tasks import TaskKind
from lostflops.predict.whatif.answer import answer
from lostflops.predict.whatif.baseline import baseline
from lostflops.testing import LostRecords, Straggler, SyntheticCluster, store

LATE = (Straggler(1, "late_data", delay=2_000_000),)
JOBS = {
    "first collective lost": SyntheticCluster(ranks=4, steps=6, stragglers=LATE, lost=LostRecords(0.01), seed=1),
    "groups of two": SyntheticCluster(
        ranks=8, steps=6, tensor_parallel=2, stragglers=LATE, lost=LostRecords(0.03, 0.03), seed=1
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_lost_members_wait_for_the_late_rank(name: str, tmp_path: Path) -> None:
    made = JOBS[name].generate()
    with Run.open(store(made, tmp_path / "run")) as run:
        before = baseline(run)
        saving = answer(before, [("straggler", "1")]).saving.value
    tasks = before.graph.tasks
    assert ((tasks.kind == TaskKind.COMM) & (tasks.event < 0)).any(), "something was restored"
    assert before.graph.meetings.whole.all()
    assert abs(before.error) < 1e-3
    assert saving == pytest.approx(made.truth.stragglers[0].cost / made.truth.wall, abs=0.005)

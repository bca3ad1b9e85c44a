"""Replayed unedited, a run stands on the lines of the ledger as its ledger has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.partition import partition
from lostflops.account.ledger.record import records
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.predict.graph.build import build
from lostflops.predict.graph.critical import critical_of
from lostflops.predict.graph.lines import mean_lines
from lostflops.predict.graph.replay import Schedule, replay
from lostflops.store.run import Run
from lostflops.testing import Losses, Straggler, SyntheticCluster, store

MS = 1_000_000
EXACT = {
    "data": SyntheticCluster(ranks=2, losses=Losses(data=3 * MS)),
    "sync": SyntheticCluster(ranks=2, losses=Losses(sync=True)),
    "alloc": SyntheticCluster(ranks=2, losses=Losses(alloc=2 * MS)),
    "host": SyntheticCluster(ranks=2, losses=Losses(launch_factor=20)),
    "straggler": SyntheticCluster(ranks=4, stragglers=(Straggler(2, "slow_kernels", factor=1.5),)),
}
NEAR = {
    "python": SyntheticCluster(ranks=2, losses=Losses(python=2 * MS)),
    "all": SyntheticCluster(
        ranks=4,
        losses=Losses(data=MS, sync=True, alloc=MS, python=MS, launch_factor=10, copy_bytes=1_000_000),
        stragglers=(Straggler(2, "slow_kernels", factor=1.5),),
    ),
}


def both(cluster: SyntheticCluster, folder: Path) -> tuple[Schedule, np.ndarray, np.ndarray]:
    """The schedule, and mean lines of the replay and of the ledger as parts of a step."""
    with Run.open(store(cluster.generate(), folder / "run")) as run:
        done = replay(build(run))
        held = [partition(record, window(record, WindowKind.STEPS)) for record in records(run, done.graph.ranks)]
    told = np.array([[one.ns()[line] for line in LINES] for one in held]).sum(axis=0)
    found = np.array([mean_lines(done)[line] for line in LINES])
    assert found.sum() == pytest.approx(done.mean_step, rel=1e-12)
    told = told / sum(len(one.window.number) for one in held)
    return done, found / told.sum(), told / told.sum()


def runs_through_the_straggler(told: dict[str, Any]) -> None:
    first = told["ranks"][0]
    assert first["rank"] == 2
    assert first["own_share"] > 0.9 * sum(row["own_share"] for row in told["ranks"])
    assert told["lines"]["lines"][0]["line"] == "compute"


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.few(2)
def test_lines_are_the_ledgers(name: str, tmp_path: Path) -> None:
    done, found, told = both(EXACT[name], tmp_path)
    assert np.abs(found - told).max() < 1e-5
    if name == "straggler":
        runs_through_the_straggler(critical_of(done).to_json())


@pytest.mark.parametrize("name", NEAR)
def test_short_dispatch_beside_python_goes_with_it(name: str, tmp_path: Path) -> None:
    """The graph makes one task of a long time between two calls, so that an op's first microseconds go with it: 0.09%
    and 0.53% of a step, as measured."""
    _, found, told = both(NEAR[name], tmp_path)
    assert np.abs(found - told).max() < 0.006

"""A stored cluster holds what ingesting its traces gives, row for row."""

from dataclasses import replace
from pathlib import Path

import pytest

from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.store.tables import TABLES
from lostflops.testing import Clock, Losses, LostRecords, SyntheticCluster, store

CLUSTER = SyntheticCluster(
    ranks=8,
    ranks_per_host=2,
    steps=2,
    tensor_parallel=2,
    pipeline_parallel=2,
    losses=Losses(data=10_000, sync=True),
    clocks={1: Clock(10**9, 50.0)},
    lost=LostRecords(0.05, 0.05, 0.05),
)
SOURCE = "source"
"""Of `ranks`: where the traces lay while they were read."""


def contents(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    with Run.open(folder) as run:
        found = {}
        for table in TABLES:
            names = [f'"{name}"' for name in table.column_names() if table.name != "ranks" or name != SOURCE]
            found[table.name] = sorted(run.sql(f"select {', '.join(names)} from {table.name}").fetchall(), key=repr)
        return found


@pytest.mark.parametrize("host_names", [False, True])
@pytest.mark.parametrize("cluster", [CLUSTER, replace(CLUSTER, ranks=4, record_seq=False)])
@pytest.mark.few(1)
def test_the_same_rows_as_by_ingest(cluster: SyntheticCluster, host_names: bool, tmp_path: Path) -> None:
    generated = cluster.generate()
    ingest(generated.traces.write(tmp_path / "traces", host_names=host_names), tmp_path / "ingested", workers=1)
    stored = contents(store(generated, tmp_path / "stored", host_names=host_names))
    assert stored == contents(tmp_path / "ingested")
    assert len(stored["ranks"]) == cluster.ranks
    assert len(stored["events"]) > 100 * cluster.ranks


def test_hosts_are_known_only_by_name(tmp_path: Path) -> None:
    generated = CLUSTER.generate()
    for host_names, expected in ((True, [f"host{rank // 2}" for rank in range(8)]), (False, [None] * 8)):
        with Run.open(store(generated, tmp_path / str(host_names), host_names=host_names)) as run:
            assert run.sql("select host from ranks order by rank").fetchall() == [(host,) for host in expected]

"""Time in communication hooks of DDP, against hooks that sleep for a known time in a real job of two ranks."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from lostflops.explain.analyze.comm import comm
from lostflops.ingest import ingest
from lostflops.store.run import Run
from tests.collect.jobs import PYTHON, plain_environment, recorded

pytest.importorskip("torch")

STEPS = 12
SLEEP = {0: 20_000_000, 1: 50_000_000}
JOB = """
import pickle, sys, time
import torch, torch.distributed as dist
store, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))

def sleeping_hook(state, bucket):
    time.sleep(state)
    halved = bucket.buffer().div_(2)
    return dist.all_reduce(halved, async_op=True).get_future().then(lambda future: future.value()[0])

model.register_comm_hook((0.02, 0.05)[rank], sleeping_hook)
assert model._comm_hooks == [(sleeping_hook, (0.02, 0.05)[rank])], "DDP has the program's own hook"
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    optimizer.zero_grad()
    if step == 6:
        with model.no_sync():
            model(torch.ones(2, 8)).sum().backward()
    else:
        model(torch.full((2, 8), float(rank))).sum().backward()
    if step == 0:
        assert model.module.weight.grad[0, 0].item() == 1.0, "the hook averages ones and zeros"
    optimizer.step()
del model
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hooks")
    environment = recorded(folder / "run" / "capture", plain_environment(WORLD_SIZE="2"))
    words = [PYTHON, "-c", JOB, str(folder / "store")]
    jobs = [subprocess.Popen([*words, str(rank)], env={**environment, "RANK": str(rank)}) for rank in range(2)]
    try:
        assert [job.wait(300) for job in jobs] == [0, 0]
    finally:
        for job in jobs:
            job.kill()
    ingest([folder / "run" / "capture"], folder / "run", workers=1)
    return folder / "run"


def test_each_step_has_the_time_that_its_hook_slept(run_folder: Path) -> None:
    with Run.open(run_folder) as run:
        rows = run.rows("select rank, step, comm_hook from timings order by rank, step")
    for rank, planted in SLEEP.items():
        found = [spent for of, _, spent in rows if of == rank]
        assert len(found) == STEPS
        assert found[6] is None, "no hook ran without synchronisation"
        ran = [spent for spent in found if spent is not None]
        assert len(ran) == STEPS - 1
        assert min(ran) >= planted
        assert min(ran) < planted + 5_000_000, "the collective is not part of it"
        assert max(ran) < 2 * planted + 50_000_000, "no step has the hook of another"


def test_comm_shows_it_by_rank(run_folder: Path) -> None:
    with Run.open(run_folder) as run:
        result = comm(run)
        data: dict[str, Any] = result.to_json()
    [table] = [block for block in result.blocks if block.name == "comm_hooks"]
    assert table.title.endswith("(sleeping_hook)")
    by_rank = {row["rank"]: row for row in data["comm_hooks"]}
    for rank, planted in SLEEP.items():
        assert by_rank[rank]["steps"] == STEPS - 4, (
            "neither the one without a hook, nor the first two, whose forward pass is not timed, nor the one in which "
            "the job was described"
        )
        assert planted <= by_rank[rank]["median_ns"] < planted + 30_000_000
        assert 0 < by_rank[rank]["share"] < 1
    assert "on rank 1 (median)" in data["verdict"]

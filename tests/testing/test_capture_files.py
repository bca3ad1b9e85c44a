"""Captures of synthetic jobs: they read back as what was declared."""

from pathlib import Path

import pytest

from lostflops import Run
from lostflops.account.memory.owners import CODE, Owner
from lostflops.account.memory.read import memories
from lostflops.ingest import ingest
from lostflops.testing import Kernel, Losses, Model, SyntheticCluster, write_captured
from lostflops.testing.capture_files import INTERVAL, phases

MODEL = Model(layers=2, kernels=(Kernel(40_000, (64, 32, 16)), Kernel(10_000, shape=(64, 16))))
WEIGHT, OUTPUT = 2 * 32 * 16, 2 * 64 * 16
CLUSTER = SyntheticCluster(
    ranks=2, steps=2, model=MODEL, microbatches=2, annotations=True, memory=True, losses=Losses(data=3 * INTERVAL)
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("captured")
    write_captured(CLUSTER, folder / "capture")
    ingest([folder / "capture"], folder)
    with Run.open(folder) as run:
        yield run


def test_owners_of_memory_hold_what_the_model_has(run: Run) -> None:
    for memory in memories(run):
        blocks = memory.blocks
        held = {owner: int(blocks.bytes[blocks.owner == CODE[owner]].sum()) for owner in Owner}
        assert held[Owner.PARAMETERS] == MODEL.layers * WEIGHT
        assert held[Owner.OPTIMIZER] == 2 * MODEL.layers * WEIGHT
        assert held[Owner.GRADIENTS] == CLUSTER.steps * MODEL.layers * WEIGHT
        kept = len(MODEL.kernels) * MODEL.layers
        assert held[Owner.ACTIVATIONS] == CLUSTER.steps * CLUSTER.microbatches * kept * OUTPUT
        assert held[Owner.UNATTRIBUTED] == 0


def test_all_that_is_taken_in_steps_is_given_back() -> None:
    for trace in CLUSTER.generate().traces:
        allocated = [change.allocated for change in trace.allocated]
        assert allocated[-1] == 3 * MODEL.layers * WEIGHT
        assert sum(change.bytes for change in trace.allocated) == 0
        assert min(allocated) >= allocated[-1]


def test_samples_tell_what_the_thread_did(run: Run) -> None:
    [(in_loader,)] = run.sql("select count(*) from samples where rank = 0 and stack like '%decode%'").fetchall()
    assert in_loader in (6, 7)  # two steps that wait for three intervals
    record = CLUSTER.generate().traces[0].record
    first, last = record.data_spans[0]
    assert dict(phases(record, range(first, last, INTERVAL))) == dict.fromkeys(range(first, last, INTERVAL), "data")


def test_memory_of_what_is_not_modelled_is_refused() -> None:
    with pytest.raises(ValueError, match="without recomputation"):
        SyntheticCluster(ranks=1, recompute=True, memory=True).generate()

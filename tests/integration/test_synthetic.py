"""Synthetic clusters through ingest: the store holds what the cluster declares as its truth."""

from dataclasses import asdict

import pytest

from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.testing import Clock, Losses, LostRecords, Model, Straggler, SyntheticCluster
from lostflops.testing.kineto import BASE_TIME, TRUE_TIME_ZERO
from tests.integration.test_truth import device_window

WRITTEN_ZERO = BASE_TIME + TRUE_TIME_ZERO

CLUSTERS = {
    "data parallel": SyntheticCluster(ranks=4, steps=3),
    "losses and a straggler": SyntheticCluster(
        ranks=4,
        losses=Losses(data=2_000_000, copy_bytes=1_000_000, sync=True, alloc=300_000, python=200_000, steps=(11,)),
        stragglers=(Straggler(2, "slow_kernels", factor=1.5),),
    ),
    "tensor parallel, two hosts, two clocks": SyntheticCluster(
        ranks=4, ranks_per_host=2, tensor_parallel=2, clocks={1: Clock(offset=-987_654_321, drift_ppm=37.5)}
    ),
    "pipeline": SyntheticCluster(ranks=4, pipeline_parallel=2, microbatches=4, model=Model(layers=4)),
    "lost records": SyntheticCluster(ranks=4, lost=LostRecords(kernels=0.05, launches=0.1, metadata=0.2), seed=3),
}


@pytest.fixture(scope="module", params=CLUSTERS.values(), ids=CLUSTERS.keys())
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("synthetic")
    generated = request.param.generate()
    ingest(generated.traces.write(folder / "traces", gzip=True), folder / "run", workers=1)
    with Run.open(folder / "run") as run:
        yield generated.truth, run


class OneRank:
    """The same questions to one rank of a run."""

    def __init__(self, run: Run, rank: int) -> None:
        self._run, self._rank = run, rank

    def sql(self, query: str):
        return self._run.sql(f"with events as (from main.events where rank = {self._rank}) {query}")


@pytest.mark.few(2)
def test_device_windows(made):
    truth, run = made
    for rank, expected in enumerate(truth.ranks):
        assert device_window(OneRank(run, rank)) == asdict(expected.device_window)


def test_collectives(made):
    truth, run = made
    rows = run.sql("select rank, start, stop, bytes_in, seq from collectives where metadata <> 'name'").fetchall()
    expected = set()
    for collective in truth.collectives:
        for rank, arrival in collective.arrivals.items():
            clock = truth.ranks[rank].clock
            start, stop = (WRITTEN_ZERO + clock.read(true) for true in (arrival, collective.ends[rank]))
            expected.add((rank, start, stop, collective.bytes, collective.seqs[rank]))
    assert set(rows) == expected if not truth.lost else set(rows) < expected


def test_steps_of_kernels_are_those_of_their_launches(made):
    truth, run = made
    steps = {step.step for rank in truth.ranks for step in rank.steps}
    found = {step for (step,) in run.sql("select distinct step from events where kind = 'kernel'").fetchall()}
    assert found - {None} == steps
    unlaunched = run.sql("select coalesce(sum(count), 0) from stats where what = 'kernels_without_launch'").fetchall()
    assert (None in found) == (unlaunched[0][0] > 0)

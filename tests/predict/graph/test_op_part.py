"""Op traces as graphs: replayed against the recording, and against the published results of recorded jobs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from tests.integration.real_runs import real_runs

from lostflops.ingest import ingest
from lostflops.predict.graph.build import build
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import LaneKind
from lostflops.predict.whatif.changes.imbalance import balance_ops, slowdowns
from lostflops.store.run import Run
from shared_data import TRACES, needs_traces

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "op_replay.py"
PUBLISHED = TRACES / "ByteDance-Seed__StragglerAnalysis"
JOBS = ["ST", *(pytest.param(name, marks=pytest.mark.slow) for name in ("SE", "AR"))]


@pytest.fixture(scope="session")
def benchmark():
    spec = importlib.util.spec_from_file_location("op_replay", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def job(tmp_path_factory, benchmark):
    made = real_runs(tmp_path_factory)
    known = {}

    def load(name):
        if name not in known:
            with Run.open(made(PUBLISHED / f"trace-{name}.parquet")) as run:
                graph = build(run)
                known[name] = graph, benchmark.groups(run, graph)
        return *known[name], json.loads((PUBLISHED / f"result-{name}.json").read_text())

    return load


@needs_traces
@pytest.mark.parametrize("name", JOBS)
def test_steps_are_as_published(name, job, benchmark):
    graph, _, published = job(name)

    def worst(changed, against):
        return np.abs(benchmark.errors(benchmark.step_times(replay(changed)), published[against])).max()

    eager = benchmark.without_delays(graph)
    assert worst(graph, "step_t_base") < 0.001
    assert worst(graph, "step_t_nodelay") < 0.02
    assert worst(eager, "step_t_nodelay") < 0.008
    assert worst(balance_ops(eager), "step_t_noblk") < 0.002


@needs_traces
@pytest.mark.parametrize("by", ["dp_rank", "stage", "optype"])
@pytest.mark.parametrize("name", JOBS)
def test_the_same_are_to_blame(name, by, job, benchmark):
    graph, split, published = job(name)
    ours = slowdowns(benchmark.without_delays(graph), *split[by])
    theirs = published[f"blocking_decompose_by_{by}"]
    assert next(iter(ours)) == next(iter(theirs))
    assert max(abs(ours.get(one, 1.0) - theirs[one]) for one in theirs) < 0.015
    clear = [one for one in theirs if theirs[one] > 1.02]
    if by == "optype":
        assert list(ours)[: len(clear)] == clear


@needs_traces
@pytest.mark.parametrize("name", ["pp8", "pp8_vpp2"])
def test_passes_without_transfers_are_tied_together(name, tmp_path):
    ingest([TRACES / "AMD-AGI__Primus" / "pp_vis" / "gpu8_layer64_gbs16" / name], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        graph = build(run)
    done = replay(graph)
    assert np.abs(done.step_times / graph.steps.measured - 1).max() < 0.005
    assert abs(done.mean_step / graph.steps.measured.mean() - 1) < 0.0001
    assert bool(graph.meetings.whole.all())


@needs_traces
def test_steps_of_ranks_are_as_recorded(job):
    graph, *_ = job("ST")
    done = replay(graph)
    off = np.abs(done.step_times - graph.steps.measured)
    assert off.max() < 0.01 * graph.steps.measured.mean()
    assert abs(done.mean_step / graph.steps.measured.mean() - 1) < 0.0005
    assert set(graph.lanes.kind.tolist()) == {LaneKind.STREAM}
    assert {word for word in graph.words if word.startswith("stage")} == {f"stage {i} chunk 0" for i in range(4)}

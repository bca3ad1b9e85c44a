"""Slow loaders, slow dispatch, Python of the loop: planted in synthetic clusters, on all ranks or on one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.explain.advise.rules.made_loops import Loop, case_of, claims, findings

from lostflops.core.errors import UnknownCost
from lostflops.explain.advise.rules import checkpoint, gc, host_bound, host_python, input_pipeline
from lostflops.testing import HostCosts, Kernel, Losses, Model, SyntheticCluster, store
from shared_data import TRACES, needs_traces

MS = 1_000_000
LOG = "main train.py:10;log metrics.py:7;dumps json/__init__.py:231"
READ = "main train.py:3;Lines.__next__ data.py:9;split re/__init__.py:3"
TORCH = "main train.py:12;Module.__call__ torch/nn/modules/module.py:9"
SAVE = "main train.py:20;save torch/serialization.py:967;_save torch/serialization.py:1268"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
HERE = (input_pipeline.RULE, host_bound.RULE, host_python.RULE, gc.RULE, checkpoint.RULE)
SLOW_HOST = HostCosts(dispatch=12_000, launch_call=8_000)
SMALL = Model(layers=8, kernels=(Kernel(5_000), Kernel(5_000, (64, 64, 64))))


def cluster(folder: Path, **planted: object) -> Path:
    return store(SyntheticCluster(ranks=4, steps=4, **planted).generate(), folder / "run")


@pytest.mark.parametrize(
    ("planted", "cause"),
    [
        ({"losses": Losses(data=4 * MS)}, "input_pipeline"),
        ({"losses": Losses(python=4 * MS)}, "host_python"),
        ({"host": SLOW_HOST, "model": SMALL}, "host_bound"),
    ],
)
@pytest.mark.few(1)
def test_what_all_ranks_lose_is_named_and_priced(tmp_path: Path, planted: dict[str, object], cause: str) -> None:
    with case_of(cluster(tmp_path, **planted)) as case:
        (found,) = findings(case, *HERE)
        line = {"input_pipeline": "idle.data", "host_python": "idle.python", "host_bound": "idle.host"}[cause]
        assert found.cause == cause
        lost = case.total.lines[line] + (case.total.lines["idle.python"] if cause == "host_bound" else 0)
        assert found.lost_ns == pytest.approx(lost, rel=0.02)
        assert found.prediction is not None
        assert found.saving.value == pytest.approx(found.lost_share, abs=0.12)
        assert found.evidence[0].events


@pytest.mark.parametrize("what", ["data", "python"])
@pytest.mark.few(1)
def test_what_one_rank_loses_is_not_the_jobs(tmp_path: Path, what: str) -> None:
    with case_of(cluster(tmp_path, losses=Losses(**{what: 4 * MS}, ranks=(2,)))) as case:
        assert findings(case, *HERE) == []


def test_a_healthy_job(tmp_path: Path) -> None:
    with case_of(cluster(tmp_path)) as case:
        assert findings(case, *HERE) == []


def test_a_cpu_is_never_host_bound(tmp_path: Path) -> None:
    with case_of(Loop(ranks=1).write(tmp_path)) as case:
        assert claims(case, host_bound.RULE) == []


def test_the_lines_of_the_loop_are_named(tmp_path: Path) -> None:
    """Of 40 ms Python a step, three quarters are the program's."""
    with case_of(Loop(stacks=(LOG, LOG, LOG, TORCH)).write(tmp_path)) as case:
        (found,) = findings(case, *HERE)
        assert found.cause == "host_python"
        assert "metrics.py:7: log" in found.what
        assert found.evidence[1].sources == ("metrics.py:7: log",)
        assert found.lost_share == pytest.approx(0.3)
        assert found.prediction is not None
        assert found.prediction.change == "python=0.25x"
        assert found.saving.value == pytest.approx(0.3, abs=0.001)


def test_what_pytorch_runs_is_not_the_loops(tmp_path: Path) -> None:
    with case_of(Loop(stacks=(TORCH,) * 4).write(tmp_path)) as case:
        assert findings(case, *HERE) == []
        assert claims(case, host_python.RULE) == []


def test_the_line_that_runs_the_whole_training_is_not_to_be_moved(tmp_path: Path) -> None:
    """A framework's loop is below one line of the program, which nobody can run only every n steps."""
    train = "<module> hf.py:10;Trainer.train transformers/trainer.py:2206"
    passes = (f"{train};f torch/nn/modules/module.py:9", f"{train};step torch/optim/sgd.py:2")
    logs = f"{train};Trainer.log transformers/trainer.py:300;dumps json/__init__.py:231"
    with case_of(Loop(stacks=(*passes, logs, logs)).write(tmp_path / "framework")) as case:
        assert claims(case, host_python.RULE) == []
    called = f"{train};on_step_end hf.py:5;dumps json/__init__.py:231"
    with case_of(Loop(stacks=(*passes, called, called)).write(tmp_path / "program")) as case:
        (found,) = claims(case, host_python.RULE)
        assert found.evidence[1].sources == ("hf.py:5: on_step_end",)
        assert "hf.py:10" not in found.fix


def test_python_that_is_spread_over_the_lines_of_a_model_is_the_dispatch_of_its_ops(tmp_path: Path) -> None:
    """40% of the step in 20 lines is 2% for each; in 8 lines it is 5%."""

    def lines(count: int) -> tuple[str, ...]:
        return tuple(f"main train.py:10;Block.forward model.py:{line}" for line in range(count))

    with case_of(Loop(stacks=lines(20)).write(tmp_path / "spread")) as case:
        assert claims(case, host_python.RULE) == []
    with case_of(Loop(stacks=lines(8)).write(tmp_path / "few")) as case:
        assert len(claims(case, host_python.RULE)) == 1


def test_too_few_samples(tmp_path: Path) -> None:
    made = Loop(ranks=1, profiled=28, stacks=(LOG, LOG))
    with case_of(made.write(tmp_path)) as case, pytest.raises(UnknownCost, match="too few stack samples"):
        claims(case, host_python.RULE)


def test_batches_made_in_the_loop(tmp_path: Path) -> None:
    with case_of(
        Loop(stacks=("main train.py:3;Lines.__next__ data.py:9;split re/__init__.py:3", LOG)).write(tmp_path)
    ) as case:
        first, second = findings(case, *HERE)
        assert {first.cause, second.cause} == {"input_pipeline", "host_python"}
        assert (first.lost_share, second.lost_share) == (pytest.approx(0.2), pytest.approx(0.2))
        loading = first if first.cause == "input_pipeline" else second
        assert "data.py:9: Lines.__next__" in loading.fix


def test_saving_is_a_checkpoint_and_not_the_loops(tmp_path: Path) -> None:
    with case_of(Loop(stacks=(SAVE, SAVE, SAVE, SAVE, LOG)).write(tmp_path)) as case:
        first, second = findings(case, *HERE)
        assert (first.cause, second.cause) == ("checkpoint", "host_python")
        assert (first.lost_share, second.lost_share) == (pytest.approx(0.32), pytest.approx(0.08))
        assert first.evidence[0].sources == ("train.py:20: main",)
        assert "train.py:20" in first.fix
        assert first.saving is not None
        assert first.saving.value == pytest.approx(0.32, abs=0.001)


def test_garbage_collection_is_counted_and_taken_from_the_loops(tmp_path: Path) -> None:
    """30 of 40 ms are the collector's; samples, which wait for it to end, see the program behind it."""
    made = Loop(stacks=(LOG,) * 4, more=lambda rank, number: {"gc": 30 * MS, "gc_count": 2})
    with case_of(made.write(tmp_path)) as case:
        first, second = findings(case, *HERE)
        assert (first.cause, second.cause) == ("gc", "host_python")
        assert (first.lost_share, second.lost_share) == (pytest.approx(0.3), pytest.approx(0.1))
        assert first.evidence[0].what.startswith("on a typical rank, 2 collections per step take 30.0% of it")
        assert first.saving is not None
        assert first.saving.value == pytest.approx(0.3, abs=0.001)


def test_collections_that_the_window_missed(tmp_path: Path) -> None:
    made = Loop(stacks=(TORCH,) * 4, more=lambda rank, number: {"gc": 60 * MS * (number == 20), "gc_count": 1})
    with case_of(made.write(tmp_path)) as case:
        assert claims(case, gc.RULE) == []
    made = Loop(more=lambda rank, number: {"gc": 30 * MS * (number < 24), "gc_count": 1})
    with case_of(made.write(tmp_path / "often")) as case:
        (found,) = claims(case, gc.RULE)
        assert found.saving is not None
        assert found.saving.value == pytest.approx(0.3)


def test_collections_of_one_rank_are_not_the_jobs(tmp_path: Path) -> None:
    made = Loop(ranks=3, more=lambda rank, number: {"gc": 30 * MS * (rank == 1), "gc_count": 1})
    with case_of(made.write(tmp_path)) as case:
        assert claims(case, gc.RULE) == []


def test_a_capture_that_does_not_count_collections(tmp_path: Path) -> None:
    with case_of(Loop().write(tmp_path)) as case, pytest.raises(UnknownCost, match="not recorded"):
        claims(case, gc.RULE)


@needs_traces
@pytest.mark.parametrize(
    ("batches", "queued", "is_found"),
    [(1, 0, True), (1, 40 * MS, False), (8, 40 * MS, True)],
    ids=["a quiet machine", "workers that lack cores", "slow workers that lack cores"],
)
def test_workers_that_wait_for_cores_are_not_a_slow_loader(
    tmp_path: Path, batches: int, queued: int, is_found: bool
) -> None:
    """A batch is waited for 3 or 24% of the step; with `queued`, each ms of work takes three."""
    ops = (WORKERS,) * batches + ("aten::mm",) * (20 - batches)
    made = Loop(ops=ops, more=lambda rank, number: {"cpu": 20 * MS, "queued": queued})
    with case_of(made.write(tmp_path)) as case:
        assert bool(claims(case, input_pipeline.RULE)) == is_found


@pytest.mark.parametrize(("workers", "first"), [(0, "input_pipeline"), (4, "host_bound")])
def test_a_loader_with_and_without_workers(tmp_path: Path, workers: int, first: str) -> None:
    from lostflops.ingest import ingest

    (trace,) = (TRACES / "pytorch__kineto").glob(f"*num_workers_{workers}*")
    ingest([trace], tmp_path / "run", workers=1)
    with case_of(tmp_path / "run") as case:
        found = [one.cause for one in findings(case, *HERE)]
        assert found[0] == first
        assert ("input_pipeline" in found) == (workers == 0)

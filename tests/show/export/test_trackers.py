"""A run in W&B, MLflow and TensorBoard, read back with the packages themselves."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import lostflops as lf
from lostflops.core.errors import UsageError
from lostflops.show.export.trackers import PREFIX
from lostflops.testing import Straggler, SyntheticCluster, store
from made_timed_runs import recorded

STEPS = 12


@pytest.fixture(scope="module")
def timed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps that were timed, without a trace."""
    return recorded(tmp_path_factory.mktemp("runs") / "timed", [100.0] * (STEPS - 1), world=2)


@pytest.fixture(scope="module")
def late_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with a straggler, without timings."""
    late = SyntheticCluster(ranks=4, steps=6, stragglers=(Straggler(1, "slow_kernels", factor=1.4),))
    return store(late.generate(), tmp_path_factory.mktemp("runs") / "late")


def events_of(folder: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return events


@pytest.mark.slow
def test_tensorboard_reads_the_series(timed_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with lf.open(timed_run) as run:
        assert run.log_to("tensorboard", str(tmp_path)) == f"tensorboard --logdir {tmp_path}"
    series = events_of(tmp_path / "timed").Scalars(f"{PREFIX}step_ms")
    assert [(one.step, one.value) for one in series][1:] == [(step, pytest.approx(100.0)) for step in range(1, STEPS)]


@pytest.mark.slow
def test_tensorboard_shows_the_card(late_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with lf.open(late_run) as run:
        run.log_to("tensorboard", str(tmp_path))
        first = run.report().findings[0]
    events = events_of(tmp_path / "late")
    assert events.Scalars(f"{PREFIX}first_finding_saves")[0].value == pytest.approx(first.saving.value)
    card = events.Tensors(f"{PREFIX}card/text_summary")[0].tensor_proto.string_val[0].decode()
    assert f"Fixing it saves {first.saving}" in card
    assert "<html" in (tmp_path / "late" / "lostflops-report.html").read_text()


@pytest.mark.slow
def test_wandb_keeps_it_offline(timed_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    with lf.open(timed_run) as run:
        run.log_to("wandb", "lostflops-test")
    (logged,) = tmp_path.rglob("run-*.wandb")
    assert b"lostflops/step_ms" in logged.read_bytes()
    pages = list(tmp_path.rglob("*.html"))
    assert any("lostflops" in page.read_text() and page.stat().st_size > 100_000 for page in pages)


@pytest.mark.slow
def test_mlflow_serves_what_was_logged(timed_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    import mlflow

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
            *("--backend-store-uri", f"sqlite:///{tmp_path}/m.db"),
            *("--artifacts-destination", str(tmp_path / "artifacts")),
        ],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{address}/health", timeout=2)
                break
            except OSError:
                assert time.monotonic() < deadline, "mlflow did not start within 120 s"
                time.sleep(1)
        with lf.open(timed_run) as run:
            run.log_to("mlflow", address)
        client = mlflow.MlflowClient(tracking_uri=address)
        (experiment,) = [one for one in client.search_experiments() if one.name == "lostflops"]
        (logged,) = client.search_runs([experiment.experiment_id])
        assert len(client.get_metric_history(logged.info.run_id, f"{PREFIX}step_ms")) == STEPS
        assert {one.path for one in client.list_artifacts(logged.info.run_id)} == {
            "lostflops.md",
            "lostflops-report.html",
        }
    finally:
        os.killpg(server.pid, 15)
        server.wait(30)


def test_a_tracker_that_is_not_installed_is_named(timed_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "lostflops.show.export.trackers.to_wandb", raising=False)
    with lf.open(timed_run) as run, pytest.raises(UsageError, match="pip install wandb"):
        run.log_to("wandb", "x")

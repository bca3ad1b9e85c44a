"""The report on real traces: it closes, equals the known truth to the nanosecond, and says what is known of them."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.total import RunLedger
from lostflops.account.ledger.windows import WindowKind
from lostflops.explain.analyze.report import report
from lostflops.store.run import Run
from tests.integration.real_runs import RealRun, real_runs
from tests.integration.test_truth import ROWS
from tests.report_checks import COMM, IDLE, LISTED, check_report, line_sums
from tests.shared_data import TRACES, needs_traces

pytestmark = needs_traces

MOST_UNEXPLAINED = 0.02
NO_LAUNCH = "is unexplained: the kernels after these gaps have no launch in the trace"
UNEXPLAINED = {
    # A trace of the device alone: nothing tells what the host did.
    ("AMD-AGI__TraceLens/mi210_gpu_only_trace_gpu_only_trace.json.gz", "trace"),
    # Its first 30 ms were launched before the recording began; its steps are explained in full.
    ("AMD-AGI__TraceLens/mi300_resnet_act_checkpoint.json.gz", "trace"),
}
# Training that truth.csv does not list.
MORE_TRAINING = (
    "AMD-AGI__TraceLens/mi300_resnet_act_checkpoint.json.gz",
    "facebookresearch__HolisticTraceAnalysis/critical_path__alexnet__benchmark_result_2869224_1695835535_trace.json.gz",
    "facebookresearch__HolisticTraceAnalysis/cpu_only__rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    "facebookresearch__HolisticTraceAnalysis/rank_unavailable__rank_not_found.json.gz",
)

NANOGPT = "KellerJordan__modded-nanogpt/2025-12-11_NorMuonOptimsAndFixes/*-rank?-*.json.gz"
TORCHREC = (
    "sst_long_a2a_optimizer",
    "sst_long_a2a_optimizer_2",
    "sst_long_a2a_optimizer_4",
    "sst_long_a2a_optimizer_5",
    "sst_long_a2a_optimizer_qcomm_trace",
    "sst_sleep_pl_dense_after_backward_2",
)
ASTRA = "astra-sim__astra-sim/megatron-tp8/megatron_kineto_?.json.gz"
SETS = {NANOGPT: 8, **{f"meta-pytorch__torchrec/{name}/*.json.gz": 4 for name in TORCHREC}, ASTRA: 8}
RESNET = "pytorch__kineto/tb_plugin__samples__resnet50_num_workers_{}__*.json.gz"


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    return real_runs(tmp_path_factory)


@cache
def made(folder: Path, kind: WindowKind) -> dict[str, Any]:
    with Run.open(folder) as run:
        found = report(run, window=kind).to_json()
        check_report(found)
        if len(found["annotations"]) == LISTED:
            total = RunLedger.of(ledgers(run, scope(run, kind)))
            assert sum(lines.total() for lines in total.annotations.values()) == found["ledger"]["total_ns"]
    return found


def windows_of(folder: Path) -> list[WindowKind]:
    with Run.open(folder) as run:
        (stepped,) = run.sql("select count(*) > 0 from steps").fetchall()[0]
    return [WindowKind.TRACE, WindowKind.STEPS] if stepped else [WindowKind.TRACE]


def share(found: dict[str, Any], rank: int, *lines: str) -> float:
    (own,) = (each for each in found["ranks"] if each["rank"] == rank)
    return sum(own["lines"][line] for line in lines) / own["wall_ns"]


def matching(pattern: str) -> list[Path]:
    return sorted(TRACES.glob(pattern))


def in_a_set_behind_its_first(trace: str) -> bool:
    """Five columns of those are compared in one run below; of the first of a set all are."""
    return any(TRACES / trace in matching(pattern)[1:] for pattern in SETS)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=pytest.mark.slow if in_a_set_behind_its_first(row["trace"]) else (), id=row["trace"])
        for row in ROWS
    ],
)
@pytest.mark.few(14)
def test_report_equals_truth(row: dict[str, str], real_run: RealRun) -> None:
    folder = real_run(TRACES / row["trace"])
    found = made(folder, WindowKind.TRACE)
    lines, overlap = line_sums(found), found["overlap"]
    assert {
        "window_ns": found["ledger"]["total_ns"],
        "compute_ns": lines["compute"],
        "exposed_comm_ns": sum(lines[line] for line in COMM),
        "exposed_copy_ns": lines["copy"],
        "idle_ns": sum(lines[line] for line in IDLE),
        "comm_ns": overlap["comm_ns"],
        "hidden_comm_ns": overlap["hidden_ns"],
        "kernels": found["quality"]["kernels"],
    } == {name: int(row[name]) for name in row if name not in {"trace", "copies", "comm_kernels", "busy_ns"}}
    assert overlap["compute_ns"] == int(row["compute_ns"])
    assert overlap["exposed_ns"] == int(row["exposed_comm_ns"])
    check_explained(row["trace"], folder)


@pytest.mark.parametrize("trace", MORE_TRAINING)
def test_training_without_a_row_of_truth(trace: str, real_run: RealRun) -> None:
    check_explained(trace, real_run(TRACES / trace))


def check_explained(trace: str, folder: Path) -> None:
    """Each window of the trace closes, and what of it is unexplained is little, or the report says why."""
    for kind in windows_of(folder):
        found = made(folder, kind)
        told = [note for note in found["notes"] if NO_LAUNCH in note]
        unexplained = found["quality"]["unexplained"] > MOST_UNEXPLAINED
        assert unexplained == ((trace, kind.value) in UNEXPLAINED) == bool(told)


@pytest.mark.parametrize(("pattern", "size"), SETS.items())
@pytest.mark.few(2)
def test_a_set_is_one_run(pattern: str, size: int, real_run: RealRun) -> None:
    sources = matching(pattern)
    known = [row for row in ROWS if TRACES / row["trace"] in sources]
    folder = real_run(*sources)
    for kind in windows_of(folder):
        found = made(folder, kind)
        assert found["window"]["ranks"] == list(range(size))
        assert found["quality"]["ranks_seen"] == found["quality"]["world_size"] == len(known) == size
        assert found["ledger"]["total_ns"] == sum(rank["wall_ns"] for rank in found["ranks"])
    found = made(folder, WindowKind.TRACE)
    for column, of_rank in (
        ("window_ns", lambda rank: rank["wall_ns"]),
        ("compute_ns", lambda rank: rank["lines"]["compute"]),
        ("exposed_comm_ns", lambda rank: sum(rank["lines"][line] for line in COMM)),
        ("exposed_copy_ns", lambda rank: rank["lines"]["copy"]),
        ("idle_ns", lambda rank: sum(rank["lines"][line] for line in IDLE)),
    ):
        assert sorted(map(of_rank, found["ranks"])) == sorted(int(row[column]) for row in known)


def test_nanogpt_rank_6_is_hardly_idle(real_run: RealRun) -> None:
    """Kernels launched before the recording began are kernels: who drops them finds 17.8% idle here."""
    found = made(real_run(*matching(NANOGPT)), WindowKind.TRACE)
    assert share(found, 6, *IDLE) == pytest.approx(0.0244, abs=0.0005)
    assert found["quality"]["kernels_without_launch"] > 1000


def test_more_loader_workers_end_the_wait_for_data(real_run: RealRun) -> None:
    shares = []
    for workers in (0, 4):
        folder = real_run(*matching(RESNET.format(workers)))
        shares.append([share(made(folder, kind), 0, "idle.data") for kind in WindowKind])
    without, with_workers = shares
    assert without == pytest.approx([0.187, 0.187], abs=0.01)
    assert with_workers == pytest.approx([0, 0], abs=0.001)


@pytest.mark.parametrize(
    ("name", "python"),
    [("sst_long_a2a_optimizer", 0.9156), ("sst_long_a2a_optimizer_2", 0.8215),
     ("sst_sleep_pl_dense_after_backward_2", 0.9153)],
)  # fmt: skip
def test_the_torchrec_straggler_is_in_python(name: str, python: float, real_run: RealRun) -> None:
    found = made(real_run(*matching(f"meta-pytorch__torchrec/{name}/*.json.gz")), WindowKind.TRACE)
    assert share(found, 2, "idle.python") == pytest.approx(python, abs=0.001)
    for peer in (0, 1, 3):
        assert share(found, peer, *COMM) > 0.8
        assert share(found, peer, "idle.python") < 0.002


def test_two_ranks_of_megatron_are_bound_by_their_host(real_run: RealRun) -> None:
    found = made(real_run(*matching(ASTRA)), WindowKind.TRACE)
    bound = {rank: share(found, rank, "idle.host") for rank in range(8)}
    assert {rank for rank, part in bound.items() if part > 0.25} == {0, 6}
    assert max(part for rank, part in bound.items() if rank not in {0, 6}) < 0.1


def test_the_command_says_the_same(real_run: RealRun) -> None:
    row = next(row for row in ROWS if "rank6" in row["trace"])
    folder = real_run(TRACES / row["trace"])
    words = ["report", str(folder), "--window", "trace", "--json"]
    script = "from lostflops.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == made(folder, WindowKind.TRACE)
    assert done.stderr == ""


@pytest.mark.parametrize(
    "model",
    [
        "Falconsai_nsfw_image_detection__1016002",
        "Qwen_Qwen1.5-0.5B-Chat__1016005",
        "facebook_timesformer-base-finetuned-k400__1016002",
        "gaunernst_bert-small-uncased__1016001",
        "google_owlv2-large-patch14-ensemble__1016001",
    ],
)
def test_a_model_has_the_same_flops_on_two_vendors_devices(model: str, real_run: RealRun) -> None:
    """MFU x peak x time is the FLOPs of a step: those of the model, whoever made the device."""
    flops = {}
    for machine, peak_tflops in (("h100", 989), ("mi300", 1307)):
        found = made(real_run(TRACES / f"AMD-AGI__TraceLens/{machine}_{model}.json.gz"), WindowKind.STEPS)
        assert 0 < found["mfu"]["value"] < 1, found["mfu"]["reason"]
        flops[machine] = found["mfu"]["value"] * peak_tflops * found["ledger"]["total_ns"]
    assert flops["h100"] == pytest.approx(flops["mi300"], rel=1e-6)

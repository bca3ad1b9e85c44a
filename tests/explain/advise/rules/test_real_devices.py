"""What rules about kernels say of traces whose truth is plain from their kernels and calls."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rules import allocator, copies, matmul_shapes, optimizer, precision, recompute, unfused
from lostflops.explain.advise.signs.compiled import advise_compiling
from lostflops.ingest import ingest
from lostflops.store.run import Run
from shared_data import TRACES, needs_traces

pytestmark = [needs_traces, pytest.mark.slow]

RULES = (
    allocator.RULE,
    copies.RULE,
    matmul_shapes.RULE,
    optimizer.RULE,
    precision.RULE,
    recompute.RULE,
    unfused.RULE,
)
AMD = "AMD-AGI__TraceLens"
HTA = "facebookresearch__HolisticTraceAnalysis"
NANOGPT = "KellerJordan__modded-nanogpt/2025-10-31_AdamSyncGradientHook"


@contextmanager
def case(folder: Path, trace: str) -> Iterator[Case]:
    ingest([TRACES / trace], folder, workers=1)
    with Run.open(folder) as run:
        yield Case(run)


def claims(folder: Path, trace: str) -> dict[str, Claim]:
    with case(folder, trace) as opened:
        return {claim.cause: claim for rule in RULES for claim in rule.find(opened)}


def test_a_resnet_that_frees_memory_all_the_time(tmp_path: Path) -> None:
    """hipFree runs 1,298 times in the accounted time, for 3.35 of 3.39 s, in every op: the caching allocator is off, so
    no setting of it helps. Nothing in the trace empties a cache, and products are in bf16 already."""
    with case(tmp_path, f"{AMD}/HIST_mi300_ddp_resnet18_train.json.gz") as opened:
        found = {claim.cause: claim for rule in RULES for claim in rule.find(opened)}
        assert sum(found["allocator"].taken.values()) / opened.wall == pytest.approx(0.835, abs=0.01)
    assert "hipFree 1,298 times in the accounted time" in found["allocator"].evidence[0].what
    assert "unset PYTORCH_NO_CUDA_MEMORY_CACHING" in found["allocator"].fix
    assert not {"expandable_segments", "empty_cache"} & {*found["allocator"].fix.replace("(", " ").split()}
    assert "precision" not in found


def test_a_compiled_program_is_not_told_to_compile(tmp_path: Path) -> None:
    with case(tmp_path / "compiled", f"{NANOGPT}/modded-nanogpt-current-gpu-rank-00-chrome-trace.json.gz") as opened:
        advice = advise_compiling(opened, "Use torch.compile(model).", graphs=True)
    assert "torch.compile(model)" not in advice
    assert "compiled already" in advice
    with case(tmp_path / "eager", f"{AMD}/HIST_mi300_ddp_resnet18_train.json.gz") as opened:
        assert advise_compiling(opened, "Use torch.compile(model).") == "Use torch.compile(model)."


def test_a_language_model_with_its_norms_written_out(tmp_path: Path) -> None:
    """RMSNorm as pow, mean, add, rsqrt, mul and rotary embeddings as mul, neg, cat: half of the device's time."""
    found = claims(tmp_path, f"{AMD}/h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
    assert set(found) == {"unfused"}
    told = " ".join(evidence.what for evidence in found["unfused"].evidence)
    assert "pow, mean, add, rsqrt" in told
    assert "mul, neg, cat, mul, add" in told


def test_a_volta_in_fp32(tmp_path: Path) -> None:
    found = claims(tmp_path, f"{HTA}/ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz")
    assert "V100" in found["precision"].what
    assert "fp16" in found["precision"].what
    assert "sgemm" in found["precision"].evidence[0].what


def test_checkpointed_layers(tmp_path: Path) -> None:
    found = claims(tmp_path, f"{AMD}/mi300_resnet_act_checkpoint.json.gz")
    assert "recomputes 93.5% of the forward pass" in found["recompute"].what
    assert "precision" not in found


def test_a_tuned_job_has_none(tmp_path: Path) -> None:
    """Compiled, in bf16 and fp8, with padded sizes, on an H100."""
    assert not claims(tmp_path, f"{NANOGPT}/modded-nanogpt-current-gpu-rank-00-chrome-trace.json.gz")

"""Parameters, gradients, states, FLOPs and activations against models that torch builds, trains and counts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.predict.estimate import plain_models  # noqa: E402
from tests.predict.estimate.hugging_face_models import CONFIGS, build  # noqa: E402
from tests.predict.estimate.plain_models import PLAIN, count, kept  # noqa: E402

from lostflops.core.errors import UsageError  # noqa: E402
from lostflops.predict.estimate import factory  # noqa: E402
from lostflops.predict.estimate.demand import estimate_counted_demand, estimate_demand  # noqa: E402
from lostflops.predict.estimate.description import ModelDescription, PlannedJob, convert  # noqa: E402
from lostflops.predict.estimate.estimate import estimate  # noqa: E402
from lostflops.predict.estimate.huggingface import model_of  # noqa: E402
from lostflops.predict.estimate.machine import machine  # noqa: E402
from lostflops.predict.estimate.memory import activations, memory  # noqa: E402
from lostflops.predict.estimate.rates import LAUNCH_NS  # noqa: E402
from lostflops.predict.estimate.request import demand_of, request  # noqa: E402
from lostflops.predict.estimate.work import model_flops  # noqa: E402


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "sgd-momentum"])
@pytest.mark.parametrize("name", PLAIN)
def test_plain_models(name: str, optimizer: str) -> None:
    made, fields = PLAIN[name]
    job = PlannedJob(sequence=24, microbatch=3, dtype="fp32", optimizer=optimizer)
    model = convert(fields, ModelDescription, name)
    found, held = count(made(), 3, 24, optimizer), memory(model, job, 0)
    assert (held.parameters, held.gradients) == (found.parameters, found.gradients)
    assert held.optimizer == found.optimizer
    assert model_flops(model, job) == found.flops


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONFIGS)
def test_hugging_face(name: str) -> None:
    model, made = model_of(CONFIGS[name], "config.json"), build(name)
    job = PlannedJob(sequence=24, microbatch=3, dtype="fp32")
    found, held = count(made, 3, 24), memory(model, job, 0)
    assert (held.parameters, held.gradients) == (found.parameters, found.gradients)
    assert held.optimizer == found.optimizer
    assert model_flops(model, job) == pytest.approx(found.flops, rel=0.01)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("name", PLAIN)
def test_what_autograd_keeps_lies_in_the_range_of_eager_models(name: str, dtype: str) -> None:
    made, fields = PLAIN[name]
    job = PlannedJob(sequence=64, microbatch=4, dtype=dtype, precision="pure", compiled=False)
    found = activations(convert(fields, ModelDescription, name), job, 0)
    assert found.low <= kept(made().to({"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]), 4, 64) <= found.high


def whole(job: PlannedJob, name: str) -> tuple[int, int]:
    """Parameters of rank 0 as torch shards them in this process, and as we say."""
    model = convert(PLAIN[name][1], ModelDescription, name)
    return memory(model, job, 0).parameters, sum(held for held in plain_models.sharded(PLAIN[name][0](), job.dp))


@pytest.mark.parametrize("ranks", [2, 7, 8, 64])
@pytest.mark.parametrize("name", ["llama", "gpt"])
def test_fsdp_shards_as_zero_3(name: str, ranks: int) -> None:
    ours, torchs = whole(PlannedJob(sequence=1, dp=ranks, zero=3, dtype="fp32"), name)
    assert ours == torchs


@pytest.mark.parametrize("ranks", [1, 2])
def test_tensor_parallel_plans_shard_as_tp(ranks: int) -> None:
    model = convert(PLAIN["llama"][1], ModelDescription, "llama")
    ours = memory(model, PlannedJob(sequence=1, tp=ranks, dtype="fp32"), 0).parameters
    assert ours == plain_models.tensor_parallel(PLAIN["llama"][0](), ranks)


@pytest.mark.parametrize("name", PLAIN)
def test_a_factory_counts_as_its_description(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"made_{name}.py").write_text(
        "import torch\nfrom predict.estimate.plain_models import PLAIN\n"
        f"def model():\n    return PLAIN[{name!r}][0](), torch.zeros(3, 24, dtype=torch.int64)\n"
    )
    found = factory.count(f"{tmp_path}/made_{name}.py:model")
    job = PlannedJob(sequence=24, microbatch=3, dtype="fp32", dp=4, batch=24, zero=2)
    ours, theirs = (
        estimate_demand(convert(PLAIN[name][1], ModelDescription, name), job, 8),
        estimate_counted_demand(found, job, 8),
    )
    assert (theirs.parameters, theirs.flops) == (ours.parameters, ours.flops)
    assert theirs.stages[0].memory.parameters == ours.stages[0].memory.parameters
    if name != "bert":  # torch's encoder has queries, keys and values in one tensor, which shards at other rows
        assert theirs.stages[0].memory.gradients == ours.stages[0].memory.gradients
        assert theirs.stages[0].memory.optimizer == ours.stages[0].memory.optimizer
    within = activations(
        convert(PLAIN[name][1], ModelDescription, name), PlannedJob(sequence=24, microbatch=3, dtype="fp32"), 0
    )
    assert within.low <= (found.kept or 0) <= within.high
    monkeypatch.chdir(tmp_path)
    assert factory.count(f"made_{name}:model").elements == found.elements


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 5", "returned int"),
        ("return torch.nn.Linear(4, 4), torch.zeros(2, 3)", "cannot run on meta tensors"),
        ("return torch.nn.Identity()", "are in no dtype"),
        ("raise KeyError('size')", r"failed \(KeyError: 'size'\)"),
        ("raise SystemExit(0)", r"failed \(SystemExit: 0\)"),
        ("return torch.nn.Linear(4, 4), 1, 2", "returned 3 values"),
        ("return torch.nn.Linear(4, 4), [None]", "cannot run on meta tensors"),
    ],
)
def test_factories_that_cannot_be_counted(body: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(f"import torch\ndef model():\n    {body}\n")
    with pytest.raises(UsageError, match=message):
        factory.count(f"{tmp_path}/broken.py:model")
    with pytest.raises(UsageError, match="has no function other"):
        factory.count(f"{tmp_path}/broken.py:other")


def test_what_is_frozen_has_no_gradients(tmp_path: Path) -> None:
    (tmp_path / "frozen.py").write_text(
        "import torch\ndef model():\n    return torch.nn.Linear(8, 8).requires_grad_(False)\n"
    )
    stage = estimate_counted_demand(
        factory.count(f"{tmp_path}/frozen.py:model"), PlannedJob(sequence=1, dp=8), 8
    ).stages[0]
    assert (stage.memory.parameters, stage.memory.gradients, stage.memory.optimizer) == (72 * 4, 0, 0)
    assert stage.transfers == []


def test_a_module_keeps_its_dtypes(tmp_path: Path) -> None:
    (tmp_path / "mixed.py").write_text(
        "import torch\ndef model():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(8, 8, dtype=torch.bfloat16), torch.nn.LayerNorm(8))\n"
    )
    found = factory.count(f"{tmp_path}/mixed.py:model")
    held = estimate_counted_demand(found, PlannedJob(sequence=1, dtype="bf16", precision="pure"), 8).stages[0].memory
    assert (held.parameters, held.gradients, held.optimizer) == (72 * 2 + 16 * 4,) * 2 + (2 * (72 * 2 + 16 * 4),)
    assert found.flops is None


def test_states_of_a_module_in_fp32_are_in_fp32(tmp_path: Path) -> None:
    (tmp_path / "linear.py").write_text("import torch\ndef model():\n    return torch.nn.Linear(8, 8)\n")
    found = factory.count(f"{tmp_path}/linear.py:model")
    held = estimate_counted_demand(found, PlannedJob(sequence=1, precision="master"), 8).stages[0].memory
    assert (held.parameters, held.gradients, held.optimizer) == (72 * 4, 72 * 4, 72 * 8)


def test_a_small_module_is_limited_by_launches_and_prints_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.py").write_text(
        "import torch\nprint('imported')\ndef model():\n    print('made')\n"
        "    return torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(10)]), torch.zeros(2, 8)\n"
    )
    asked = request(f"{tmp_path}/small.py:model", {})
    assert capsys.readouterr().out == ""
    known = machine("bf16", device="H100-SXM5", topology=None, calibration=None, memory=None)
    found = estimate(demand_of(asked, 8), known).step
    assert found
    assert found.limiter == "launches"
    assert found.total.high >= 3 * 10 * LAUNCH_NS
    with pytest.raises(UsageError, match="leave out --seq and --microbatch"):
        request(f"{tmp_path}/small.py:model", {"sequence": 8, "microbatch": 2})
    with pytest.raises(UsageError, match="--batch cannot be split: leave it out, return one microbatch as inputs"):
        request(f"{tmp_path}/small.py:model", {"batch": 8})

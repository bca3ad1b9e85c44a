"""What is read of a job once: parameters, DDP buckets, FSDP units and meshes, against what the job itself was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from lostflops.collect.model_facts import environment, outermost_modules, records  # noqa: E402


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of one rank."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def told(*roots: Any) -> dict[str, Any]:
    found = list(records(list(roots)))
    facts = {record["key"]: record["value"] for record in found if record["kind"] == "job"}
    (parameters,) = (record["parameters"] for record in found if record["kind"] == "parameters")
    return {"parameters": parameters, **facts}


def layers(count: int, width: int = 256) -> Any:
    return torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(count)))


def train(model: Any, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(torch.ones(2, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_parameters_stand_in_the_order_of_the_model_and_once_each() -> None:
    model = torch.nn.ModuleDict({"first": torch.nn.Linear(3, 2), "tied": torch.nn.Linear(3, 2, bias=False)})
    model["tied"].weight = model["first"].weight
    model["first"].bias.requires_grad_(False)
    assert told(model)["parameters"] == [
        {
            "name": name, "module": "Linear", "shape": shape, "local_shape": shape, "dtype": "float32", "bytes": size,
            "trainable": trainable, "bucket": None, "unit": None,
        }
        for name, shape, size, trainable in (("first.weight", [2, 3], 24, True), ("first.bias", [2], 8, False))
    ]  # fmt: skip


def test_the_outermost_trained_modules_are_found_and_no_others() -> None:
    trained, beside = torch.nn.Sequential(layers(2)), layers(1)
    found = outermost_modules([torch.optim.SGD(trained[0][1].parameters(), lr=0.1)])
    assert [module for module in found if module is trained or module is beside] == [trained]
    assert trained[0] not in found


def test_a_module_is_found_if_its_optimizer_updates_a_flat_copy() -> None:
    trained, teacher = layers(2), layers(1).eval()
    flat = torch.nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in trained.parameters()]))
    found = outermost_modules([torch.optim.SGD([flat], lr=0.1)])
    assert [module for module in found if module is trained or module is teacher] == [trained]


def test_a_parameter_that_zero_emptied_has_its_whole_and_its_local_shape() -> None:
    model = torch.nn.Linear(3, 2, bias=False)
    model.weight.ds_shape, model.weight.ds_tensor = torch.Size([2, 3]), torch.zeros(3)
    model.weight.data = torch.empty(0)
    (parameter,) = told(model)["parameters"]
    assert (parameter["shape"], parameter["local_shape"], parameter["bytes"]) == ([2, 3], [3], 12)


def test_buckets_are_those_that_ddp_says_it_reduces(alone: None) -> None:
    model = torch.nn.parallel.DistributedDataParallel(layers(8), bucket_cap_mb=1)
    train(model, 4)
    found = told(model)
    sizes: Counter[int] = Counter()
    for parameter in found["parameters"]:
        sizes[parameter["bucket"]] += parameter["bytes"]
    logged = [int(size) for size in found["ddp"][0]["rebuilt_bucket_sizes"].split(",")]
    assert len(logged) > 1
    assert [sizes[bucket] for bucket in range(len(logged))] == logged
    assert [parameter["name"] for parameter in found["parameters"]][:2] == ["0.weight", "0.bias"]
    assert found["groups"]["0"]["ranks"] == [0]


def test_a_bucket_is_not_guessed_before_ddp_has_rebuilt_them(alone: None) -> None:
    model = torch.nn.parallel.DistributedDataParallel(layers(2))
    assert {parameter["bucket"] for parameter in told(model)["parameters"]} == {None}


def test_units_and_meshes_are_those_of_the_program(alone: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    model = layers(3)
    for inner in (model[0], model[1]):
        fully_shard(inner, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    found = told(model)
    units = {parameter["name"]: parameter["unit"] for parameter in found["parameters"]}
    assert units == {
        "0.weight": "0", "0.bias": "0", "1.weight": "1", "1.bias": "1", "2.weight": "(root)", "2.bias": "(root)",
    }  # fmt: skip
    assert found["fsdp"] == ["(root)", "0", "1"]
    assert {"names": ["dp", "tp"], "ranks": [[0]]} in found["mesh"]


def test_variables_that_are_not_on_the_list_are_not_read() -> None:
    asked: set[str] = set()

    class Watched(dict[str, str]):
        def __getitem__(self, name: str) -> str:
            asked.add(name)
            return super().__getitem__(name)

    variables = Watched(RANK="3", NCCL_ALGO="Ring" * 100, AWS_SECRET_ACCESS_KEY="canary", HOME="/home/me")
    assert environment(variables) == {"RANK": "3", "NCCL_ALGO": ("Ring" * 100)[:100]}
    assert asked == {"RANK", "NCCL_ALGO"}

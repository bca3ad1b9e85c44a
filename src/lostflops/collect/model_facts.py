"""Facts about a job for later predictions, read once: modules, parameters, DDP buckets, FSDP units and mesh.

Modules are found among the objects that Python's garbage collector tracks, because nothing passes them to us. That
takes some ten ms once, in the first step, which is not measured.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch

from lostflops.collect.flight_ring import process_groups
from lostflops.collect.labels import describe_program

_DDP_PREFIX: Final = "module."
_WRAPPERS: Final = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
ENVIRONMENT: Final = (
    "RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS", "OMP_NUM_THREADS", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_AVOID_RECORD_STREAMS", "TORCH_NCCL_ENABLE_TIMING",
    "TORCH_DISTRIBUTED_DEBUG", "NCCL_DEBUG", "NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL", "NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",
    "NCCL_NTHREADS", "NCCL_BUFFSIZE", "NCCL_CROSS_NIC",
)  # fmt: skip
"""The environment variables that are recorded; no other is ever read."""
_LONGEST_VALUE: Final = 100
_DDP: Final = (
    "bucket_sizes", "rebuilt_bucket_sizes", "bucket_cap_bytes", "find_unused_parameters", "gradient_as_bucket_view",
    "static_graph", "broadcast_buffers", "has_rebuilt_buckets", "num_parameter_tensors", "total_parameter_size_bytes",
    "comm_hook", "unused_parameter_size",
)  # fmt: skip


def outermost_modules(optimizers: Iterable[Any]) -> list[torch.nn.Module]:
    """Return the modules that are inside no other module and hold a parameter that an optimizer updates.

    ZeRO and optimizers with master weights update copies or flat shards. If no module holds what they update, the
    modules in training mode with a trainable parameter are returned.
    """
    trained = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    modules = [found for found in gc.get_objects() if issubclass(type(found), torch.nn.Module)]
    inside = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    tops = [module for module in modules if id(module) not in inside and "_parameters" in module.__dict__]
    updated = [module for module in tops if any(id(parameter) in trained for parameter in module.parameters())]
    if updated or not trained:
        return updated
    return [module for module in tops if module.training and any(p.requires_grad for p in module.parameters())]


def plain_name(name: str) -> str:
    """Return a qualified name without the parts that wrappers add.

    >>> plain_name("module._orig_mod.layers.0.weight"), plain_name("_orig_mod.module.layers.0.weight")
    ('layers.0.weight', 'layers.0.weight')
    """
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name.removeprefix(_DDP_PREFIX)


def records(roots: list[torch.nn.Module]) -> Iterator[dict[str, Any]]:
    """Yield a record of the parameters, then one for each known fact of the job."""
    buckets, units = _ddp_buckets(roots), _fsdp_units(roots)
    yield {
        "kind": "parameters",
        "parameters": [_parameter(*found, buckets, units) for found in _walk_parameters(roots)],
    }
    facts = {
        "settings": _settings(),
        "environment": environment(os.environ),
        "groups": process_groups(),
        "ddp": [_ddp(module) for module in _ddp_modules(roots)],
        "fsdp": sorted(set(units.values())),
        "mesh": _meshes(),
    }
    for key, value in facts.items():
        if value:
            yield {"kind": "job", "key": key, "value": value}
    yield from describe_program()


def environment(variables: Any) -> dict[str, str]:
    return {name: variables[name][:_LONGEST_VALUE] for name in ENVIRONMENT if name in variables}


def _settings() -> dict[str, Any]:
    return {
        "threads": torch.get_num_threads(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
    }


def _walk_parameters(roots: list[torch.nn.Module]) -> Iterator[tuple[str, torch.nn.Module, Any]]:
    """Yield every parameter once, with its qualified name and the module that holds it."""
    seen: set[int] = set()
    for root in roots:
        for prefix, module in root.named_modules():
            for name, parameter in module._parameters.items():  # noqa: SLF001 - own ones, without a copy
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield plain_name(f"{prefix}.{name}" if prefix else name), module, parameter


def _parameter(
    name: str, module: torch.nn.Module, parameter: Any, buckets: dict[int, int], units: dict[int, str]
) -> dict[str, Any]:
    # Between its uses, DeepSpeed's ZeRO-3 leaves a parameter empty and keeps its shard beside it.
    local = getattr(parameter, "_local_tensor", getattr(parameter, "ds_tensor", parameter))
    return {
        "name": name,
        "module": type(module).__name__,
        "shape": list(getattr(parameter, "ds_shape", parameter.shape)),
        "local_shape": list(local.shape),
        "dtype": str(parameter.dtype).removeprefix("torch."),
        "bytes": local.numel() * local.element_size(),
        "trainable": parameter.requires_grad,
        "bucket": buckets.get(id(parameter)),
        "unit": units.get(id(parameter)),
    }


def _ddp_modules(roots: list[torch.nn.Module]) -> list[Any]:
    ddp = getattr(torch.nn.parallel, "DistributedDataParallel", None)
    return [module for root in roots for module in root.modules() if ddp is not None and isinstance(module, ddp)]


def _ddp(module: Any) -> dict[str, Any]:
    """Return what DDP logs about itself, limited to the keys in `_DDP`, and the size of its buffers."""
    logged = module._get_ddp_logging_data()  # noqa: SLF001 - the documented way to read it
    found = {key: json.loads(json.dumps(logged[key], default=str)) for key in _DDP if key in logged}
    buffers = list(module.module.buffers())
    return {**found, "buffers": len(buffers), "buffer_bytes": sum(b.numel() * b.element_size() for b in buffers)}


def _ddp_buckets(roots: list[torch.nn.Module]) -> dict[int, int]:
    """Return the bucket by identity of a parameter, from indices that DDP logs once it has rebuilt its buckets."""
    found: dict[int, int] = {}
    for module in _ddp_modules(roots):
        logged = module._get_ddp_logging_data()  # noqa: SLF001
        rebuilt = logged.get("rebuilt_per_bucket_param_indices", "")
        parameters = [p for p in module.module.parameters() if p.requires_grad]
        for bucket, members in enumerate(_index_lists(rebuilt)):
            found |= {id(parameters[i]): bucket for i in members if i < len(parameters)}
    return found


def _index_lists(text: str) -> list[list[int]]:
    """Read lists of numbers that are separated by commas.

    >>> _index_lists("3 2, 1 0"), _index_lists("")
    ([[3, 2], [1, 0]], [])
    """
    return [[int(word) for word in part.split()] for part in text.split(",") if part.strip()]


def _fsdp_units(roots: list[torch.nn.Module]) -> dict[int, str]:
    """Return, by identity of a parameter, the qualified name of the innermost FSDP unit that holds it."""
    units: dict[int, str] = {}
    for root in roots:
        for name, module in root.named_modules():
            if any(kind.__name__ in ("FSDPModule", "FullyShardedDataParallel") for kind in type(module).__mro__):
                units |= {id(parameter): plain_name(name) or "(root)" for parameter in module.parameters()}
    return units


def _meshes() -> list[dict[str, Any]]:
    kind = getattr(getattr(torch.distributed, "device_mesh", None), "DeviceMesh", None)
    if kind is None or not torch.distributed.is_initialized():  # to look at all objects takes tens of ms
        return []
    found = [mesh for mesh in gc.get_objects() if type(mesh) is kind]
    shapes = {json.dumps({"names": list(mesh.mesh_dim_names or ()), "ranks": mesh.mesh.tolist()}) for mesh in found}
    return [json.loads(text) for text in sorted(shapes)]

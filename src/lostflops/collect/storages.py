"""Storages of tensors, examined without keeping one alive and without running code of the program.

A tensor of a class with its own dispatch has no memory of its own: it is made of ordinary tensors. Of these classes,
only DTensor is opened here.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_DEEPEST: Final = 4
_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)
_NOTHING: Final = getattr(torch._C, "_disabled_torch_dispatch_impl", None)  # noqa: SLF001 - what plain tensors have
_is_shared_until_written = getattr(torch._C, "_is_cow_tensor", lambda _: False)  # noqa: SLF001

without_overrides = torch._C.DisableTorchFunction  # noqa: SLF001
"""A context in which neither classes nor modes of the program see what is read from a tensor."""


class Block(NamedTuple):
    """The memory of a storage."""

    key: int
    """The same for all tensors of the storage, as long as there is a weak reference to it."""
    device_type: int
    device_index: int
    """Number of the device as torch's profiler has it: -1 on a CPU."""
    address: int
    bytes: int
    reference: StorageWeakRef


def storage_of(tensor: Any) -> Any:
    """Return the storage of a tensor, None if it has no readable storage; call this inside `without_overrides`."""
    if _is_distributed(type(tensor)):
        tensor = tensor._local_tensor  # noqa: SLF001
    if not is_plain(type(tensor)):
        return None
    try:
        return torch.Tensor.untyped_storage(tensor) if not _is_shared_until_written(tensor) else None
    except (RuntimeError, NotImplementedError):  # sparse, or of a transformation
        return None


def block_of(storage: Any) -> Block | None:
    """Return the memory of a storage; None if it has no memory."""
    try:
        address, size = storage.data_ptr(), storage.nbytes()
    except RuntimeError:  # functional, or fake
        return None
    device = storage.device
    kind = _device_type(device.type)
    if not address or not size or kind is None:
        return None
    index = -1 if kind == 0 else device.index or 0
    return Block(storage._cdata, kind, index, address, size, StorageWeakRef(storage))  # noqa: SLF001


def bytes_left(reference: StorageWeakRef) -> int:
    """Return the current size of a storage in bytes; 0 if it is gone, or was emptied."""
    storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)  # noqa: SLF001
    return 0 if storage is None else int(storage.nbytes())


def is_plain(kind: type) -> bool:
    return kind in _PLAIN or (issubclass(kind, torch.Tensor) and getattr(kind, "__torch_dispatch__", None) is _NOTHING)


def list_tracked_objects(*bases: type) -> list[Any]:
    """Return all objects of these classes and their subclasses that Python's garbage collector knows."""
    kinds: set[type] = set()
    new = list(bases)
    while new:
        kind = new.pop()
        if kind not in kinds:
            kinds.add(kind)
            new += type.__subclasses__(kind)
    return [thing for thing in gc.get_objects() if type(thing) in kinds]


def tensors_in(value: Any, deepest: int = _DEEPEST) -> Iterator[Any]:
    """Yield the tensors of nested dicts, lists and tuples.

    Other containers are not opened: one of the program's own class may do anything when it is read.
    """
    if issubclass(type(value), torch.Tensor):
        yield value
    elif deepest and type(value) in (list, tuple):
        for member in value:
            yield from tensors_in(member, deepest - 1)
    elif deepest and issubclass(type(value), dict):
        for member in list(dict.values(value)):
            yield from tensors_in(member, deepest - 1)


def _is_distributed(kind: type) -> bool:
    return kind.__name__ == "DTensor" and kind.__module__.startswith("torch.distributed.")


@lru_cache
def _device_type(name: str) -> int | None:
    """Return the number of a type of device as torch has it; None if it has no memory, as `meta`.

    >>> _device_type("cpu"), _device_type("cuda"), _device_type("meta")
    (0, 1, None)
    """
    if name == "meta":
        return None
    kinds = torch.autograd.DeviceType.__members__
    found = kinds.get(name.upper(), kinds.get("PrivateUse1"))
    return None if found is None else int(found.value)

"""Number of samples and tokens in a batch, if its shape shows it."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from typing import Any, Final

import torch

_DEPTH: Final = 3
_TOKENS: Final = ("input_ids", "tokens", "token_ids")


def batch_size(batch: Any) -> tuple[int | None, int | None]:
    """Return the number of samples and of tokens; None for what the batch does not show.

    Tokens are counted in a matrix that is named like tokens (`input_ids`), or in a matrix of integers that comes first.
    """
    found = list(_tensors(batch, "", _DEPTH))
    if not found:
        return None, None
    named = [tensor for name, tensor in found if name in _TOKENS]
    first = named[0] if named else found[0][1]
    samples = int(first.shape[0]) if first.dim() else None
    is_tokens = first.dim() == 2 and first.shape[1] > 1 and (named or _is_integer(first))
    return samples, int(first.numel()) if is_tokens else None


def tensors(batch: Any) -> list[Any]:
    return [tensor for _, tensor in _tensors(batch, "", _DEPTH)]


def _tensors(value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of nested dicts, lists and tuples with their names.

    Other types are not opened: a batch of the user's own type may load its members when they are read.
    """
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth and isinstance(value, (dict, UserDict)):
        for key, member in value.items():
            yield from _tensors(member, str(key), depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for member in value[:8]:
            yield from _tensors(member, name, depth - 1)


def _is_integer(tensor: Any) -> bool:
    return not (tensor.dtype.is_floating_point or tensor.dtype.is_complex) and tensor.element_size() >= 4

"""The accelerator that the program uses. Asking must not initialise it: a context takes memory and forbids forks."""

from __future__ import annotations

from typing import Any

import torch


def accelerator() -> str | None:
    """Return the kind of accelerator, such as `cuda`; None if there is none, or the program has not used it."""
    found = getattr(torch, "accelerator", None)
    if found is None:  # before torch 2.6
        kind = "cuda" if torch.cuda.is_available() else None
    else:
        kind = found.current_accelerator().type if found.is_available() else None
    is_initialized = getattr(module_of(kind), "is_initialized", None)
    return kind if is_initialized is None or is_initialized() else None


def module_of(kind: str | None) -> Any:
    """Return torch's module for a kind of accelerator, such as `torch.cuda`; None if it has none."""
    return getattr(torch, kind, None) if kind else None

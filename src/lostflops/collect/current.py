"""The recorder of this process, if there is one. It imports nothing, so that any module can use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lostflops.collect.recorder import Recorder

recorder: Recorder | None = None
import_began: int | None = None
"""When this process began to import torch, as Unix time in ns; None if nobody saw it."""

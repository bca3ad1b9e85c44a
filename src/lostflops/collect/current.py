"""The recorder of this process, if there is one. It imports nothing, so that any module can use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lostflops.collect.recorder import Recorder

recorder: Recorder | None = None

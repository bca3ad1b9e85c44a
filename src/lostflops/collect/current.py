"""The recorder of this process, where there is one. Imports nothing, so that anybody may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lostflops.collect.recorder import Recorder

recorder: Recorder | None = None

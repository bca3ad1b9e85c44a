"""Who may do the work."""

from enum import StrEnum
from typing import Final

ENGINE: Final = "LOSTFLOPS_ENGINE"
WORKERS: Final = "LOSTFLOPS_WORKERS"
"""Variables of the environment that say so where no option does."""


class EngineName(StrEnum):
    LOCAL = "local"
    RAY = "ray"

"""Names of the engines, and the environment variables that choose one."""

from enum import StrEnum
from typing import Final

ENGINE: Final = "LOSTFLOPS_ENGINE"
WORKERS: Final = "LOSTFLOPS_WORKERS"
"""Environment variables that choose the engine and its number of workers, if no option does."""


class EngineName(StrEnum):
    LOCAL = "local"
    RAY = "ray"

"""Who may do the work."""

from enum import StrEnum


class EngineName(StrEnum):
    LOCAL = "local"
    RAY = "ray"

"""One check: what was found, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "limited", "no"]
"""`limited`: measured in part or with a doubt; `no`: not measured at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    name: str
    state: State
    finding: str
    consequence: str = ""
    remedy: str = ""
    is_needed: bool = False
    """Whether nothing can be recorded without it."""

    def __post_init__(self) -> None:
        assert self.state == "ok" or self.consequence, f"{self.name} is {self.state} without a consequence"

"""Totals over all steps that were shown."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Protocol

_RECENT: Final = 20


class Shown(Protocol):
    """The parts of a step's line that are summed."""

    @property
    def time(self) -> int: ...
    @property
    def samples(self) -> int | None: ...
    @property
    def tokens(self) -> int | None: ...
    @property
    def missing(self) -> tuple[int, ...]: ...


@dataclass(slots=True)
class _Counted:
    """A count over the steps that report it, and the time of these steps."""

    count: int = 0
    ns: int = 0

    def add(self, count: int | None, ns: int) -> None:
        if count is not None:
            self.count += count
            self.ns += ns

    @property
    def per_second(self) -> float | None:
        return self.count * 1e9 / self.ns if self.ns else None


@dataclass(slots=True)
class Totals:
    times: array[int] = field(default_factory=lambda: array("q"))
    incomplete: int = 0
    """Steps in which a rank was missing."""
    samples: _Counted = field(default_factory=_Counted)
    tokens: _Counted = field(default_factory=_Counted)

    def add(self, line: Shown) -> None:
        self.times.append(line.time)
        self.incomplete += bool(line.missing)
        self.samples.add(line.samples, line.time)
        self.tokens.add(line.tokens, line.time)

    def quantile(self, share: float) -> int | None:
        """Return the smallest step time in ns that this share of the steps does not exceed; None without steps."""
        if not self.times:
            return None
        ordered = sorted(self.times)
        return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]

    def recent_median(self) -> float:
        return median(self.times[-_RECENT:]) if self.times else 0.0

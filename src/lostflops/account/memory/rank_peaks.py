"""Peak memory of ranks compared: the peak of each, their difference, and the owner that makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lostflops.account.memory.owners import OWNERS, Owner
from lostflops.account.memory.peak import Peak
from lostflops.core.results import Field, Pair, Pairs, Table, Value
from lostflops.core.units import format_bytes

UNEVEN: Final = 0.01
"""Part of the highest peak by which ranks must differ to be mentioned."""
_MOST_SHOWN: Final = 8


def ranks(peaks: Sequence[Peak]) -> Table:
    """Return each rank and device at its own peak, the fullest first."""
    fields = (
        Field("rank"),
        Field("device"),
        Field("bytes", "bytes", "peak"),
        Field("at_ns", "time", shown=False),
        Field("phase"),
        Field("step"),
        Field("mostly"),
        Field("unattributed_share", "share", "unattributed"),
        Field("reserved_bytes", "bytes", shown=False),
        *(Field(owner.value, "bytes", within="owners", shown=False) for owner in OWNERS),
    )
    ordered = sorted(peaks, key=lambda one: (-one.bytes, one.rank, one.device))
    title = "Ranks compared, each at its own peak"
    return Table("ranks", title, fields, tuple(map(_row, ordered)), most_shown=_MOST_SHOWN)


def _row(one: Peak) -> tuple[Value, ...]:
    mostly = one.largest[0][0].value if one.largest else None
    when = (one.at, one.phase, one.step)
    return one.rank, one.device, one.bytes, *when, mostly, one.unattributed_share, one.reserved, *one.owners.values()


@dataclass(frozen=True, slots=True)
class PeakSpread:
    """The highest and the lowest peak; differences of owners, each at the peak of its rank, sum to that of peaks."""

    highest: Peak
    lowest: Peak

    @classmethod
    def of(cls, peaks: Sequence[Peak]) -> PeakSpread:
        return cls(
            highest=max(peaks, key=lambda one: (one.bytes, -one.rank)),
            lowest=min(peaks, key=lambda one: (one.bytes, one.rank)),
        )

    @property
    def bytes(self) -> int:
        return self.highest.bytes - self.lowest.bytes

    @property
    def owner(self) -> tuple[Owner, int] | None:
        """Owner of most of the difference, and how much; None if there is no difference."""
        gaps = {owner: self.highest.owners[owner] - self.lowest.owners[owner] for owner in OWNERS}
        return max(gaps.items(), key=lambda item: item[1]) if self.bytes else None

    def pairs(self) -> Pairs:
        owner, by = self.owner or (None, None)
        items = (
            Pair("highest_rank", self.highest.rank, label="highest rank"),
            Pair("highest_bytes", self.highest.bytes, "bytes", "its peak"),
            Pair("lowest_rank", self.lowest.rank, label="lowest rank"),
            Pair("lowest_bytes", self.lowest.bytes, "bytes", "its peak"),
            Pair("bytes", self.bytes, "bytes", "difference"),
            Pair("owner", owner, label="most of it"),
            Pair("owner_bytes", by, "bytes", "by"),
        )
        return Pairs("spread", "Highest and lowest", items)

    def in_words(self) -> str:
        """Describe the difference; empty if ranks are alike."""
        if self.owner is None or self.bytes <= UNEVEN * self.highest.bytes:
            return ""
        owner, by = self.owner
        return (
            f"Rank {self.highest.rank} holds {format_bytes(self.bytes)} more than rank {self.lowest.rank}: "
            f"{owner} {format_bytes(by)} more."
        )

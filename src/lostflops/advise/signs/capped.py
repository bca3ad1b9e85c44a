"""A gain that is far more than what its cause takes is that of another cause, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.advise.claim import Gain
from lostflops.units import format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case

_MOST: Final = 1.5
"""Times what is lost that a what-if may gain."""


def capped(case: Case, change: str, lost: float, what: str) -> Gain | None:
    """What is lost, where the what-if gains far more: a host that launches for nothing has time for what else holds
    the device up, such as loading; and what a what-if takes from all ranks, it takes from a late one as well. None
    where it does not."""
    found = case.price(change)
    if found is None or found.gain <= _MOST * lost:
        return None
    basis = f"what {what} takes; with {change} a replay gains {format_share(found.gain)}, the rest of it elsewhere"
    doubt = found.doubt * lost / found.gain
    return Gain(lost, max(lost - doubt, 0.0), min(lost + doubt, 1.0), basis)

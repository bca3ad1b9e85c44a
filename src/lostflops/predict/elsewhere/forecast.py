"""The step of a run on one device, and what all devices of a run have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.devices import Device
from lostflops.core.results import Pairs
from lostflops.predict.estimate.rates import capacity

if TYPE_CHECKING:
    from lostflops.account.ledger.bound import Bound
    from lostflops.store.run import Run


INSTEAD: Final = "describe the job instead: lostflops estimate --help"
"""What to do if a run cannot be predicted on other devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """A run on a device; times are means per step, in ns."""

    device: Device
    step: float
    low: float
    """Lower end of the range of the step."""
    high: float
    own: float
    """Half the width of the range from errors that no other device shares."""
    bound: Bound
    floor: float = 0.0
    """Step if kernels took no time there: no error of kernels makes it shorter."""
    notes: tuple[str, ...] = ()
    is_now: bool = False
    """Whether the run was recorded on this device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A device that cannot be compared, and why in a few words."""

    device: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts:
    """A run on all known devices."""

    measured: float
    """The step of the run as it was recorded, in ns."""
    now: str
    """Where the run was recorded, in words."""
    ranks: int
    """Ranks of the job."""
    made: tuple[Forecast, ...]
    refused: tuple[Refused, ...]
    peak: int | None
    """Peak memory of the fullest rank in bytes; None if it is not known."""
    memory_note: str
    baseline: Pairs
    notes: tuple[str, ...]
    """Notes about the run, not about a device."""
    is_guess: bool = False
    """Whether the replay does not match the run."""


def count_ranks(run: Run) -> int:
    """Return the number of ranks of the job, recorded or not."""
    recorded = run.rows("select coalesce(max(world_size), 0) from ranks")[0][0]
    return max(int(recorded), len(run.ranks))


def fits(peak: int | None, device: Device) -> bool | None:
    """Return whether the memory of a device holds the peak; None if either is not known."""
    held = capacity(device)
    return None if peak is None or held is None else peak <= held

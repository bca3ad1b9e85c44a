"""From a claim to a finding: its price, whether it is worth naming, and what it costs a day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.results import Finding, Prediction
from lostflops.units import format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case
    from lostflops.advise.claim import Claim, Place
    from lostflops.advise.price import Price
    from lostflops.predict.answers.predictions import StoredPrediction

SMALLEST: Final = 0.03
"""Part of the step that a fix must gain to be named."""
_AT_MOST: Final = 1.5
"""Times what it takes of the ledger that a cause which is everywhere can gain, waits for it among that."""
_HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class Priced:
    """A claim with what its fix gains; `stored` is the what-if that says so, where one does."""

    claim: Claim
    prediction: Prediction
    doubt: float
    stored: StoredPrediction | None = None
    is_bound: bool = False
    """The gain is the most that can be, and nothing says how much it is."""

    @property
    def is_worth_it(self) -> bool:
        """A warning stands for itself."""
        gain = self.prediction.gain
        return self.claim.is_warning or (gain >= SMALLEST and gain > self.doubt)

    @property
    def is_uncertain(self) -> bool:
        """Whether it would be worth it, were it not for the doubt of its price."""
        return SMALLEST <= self.prediction.gain <= self.doubt

    @property
    def says(self) -> str:
        doubt = f", give or take {format_share(self.doubt)}" if self.is_uncertain else ""
        return f"{self.claim.what} (a gain of {format_share(self.prediction.gain)}{doubt})"


def priced(case: Case, claim: Claim) -> Priced:
    if claim.gain is not None:
        own = claim.gain
        doubt = (own.high - own.low) / 2 if own.doubt is None else own.doubt
        return Priced(claim, Prediction(own.share, own.low, own.high, own.basis), doubt)
    found = case.price(*claim.changes)
    if found is None:
        return _by_ledger(case, claim)
    doubt = found.doubt_in_each if claim.in_each_step else found.doubt
    share = sum(claim.taken.values()) / (case.wall or 1)
    if claim.taken and not claim.ranks and found.gain > _AT_MOST * share:
        return _capped(claim, found, share, doubt * share / found.gain)
    stored = found.prediction
    predicted = Prediction(
        gain=found.gain,
        gain_low=found.low,
        gain_high=found.high,
        basis=f"replaying the run with {stored.text}",
        id=stored.id,
        change=stored.text,
        predicted_ns=stored.predicted_ns,
        low_ns=stored.interval[0],
        high_ns=stored.interval[1],
        replay_error=stored.baseline.replay_error,
    )
    return Priced(claim, predicted, doubt, stored)


def _capped(claim: Claim, found: Price, share: float, doubt: float) -> Priced:
    """What is taken, where the what-if gains far more: a host that launches for nothing has time for what else holds
    the device up, such as loading; and what a what-if takes from all ranks, it takes from a late one as well."""
    basis = (
        f"its share of the ledger; with {', '.join(claim.changes)} a replay gains {format_share(found.gain)}, the rest "
        "of it elsewhere"
    )
    return Priced(claim, Prediction(share, max(share - doubt, 0.0), min(_AT_MOST * share, 1.0), basis), doubt)


def _by_ledger(case: Case, claim: Claim) -> Priced:
    """Where nothing can be replayed: all that is claimed, at most."""
    share = sum(claim.taken.values()) / (case.wall or 1)
    why = case.refused.get(claim.changes, "")
    basis = "its share of the ledger, which is the most that can be gained" + (f" ({why})" if why else "")
    return Priced(claim, Prediction(share, 0.0, share, basis), 0.0, is_bound=True)


def finding(case: Case, one: Priced, taken: Mapping[Place, int], usd_per_hour: float | None) -> Finding:
    claim, lost = one.claim, sum(taken.values())
    share = lost / (case.wall or 1)
    hours = share * len(case.total.ranks) * _HOURS
    return Finding(
        cause=claim.cause,
        what=claim.what,
        lost_ns=lost,
        lost_share=share,
        rank_hours=hours,
        usd=None if usd_per_hour is None else hours * usd_per_hour,
        ranks=claim.ranks,
        evidence=claim.evidence,
        confidence=claim.confidence,
        certain_if=claim.certain_if,
        fix=claim.fix,
        prediction=one.prediction,
    )

"""Turn a claim into a finding: price it, decide how sure it is, and say what it costs a day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import hypot
from typing import TYPE_CHECKING, Final

from lostflops.core.results import Finding, Prediction
from lostflops.core.units import format_interval, format_percent, format_share
from lostflops.explain.advise.diagnosis import SMALLEST
from lostflops.predict.whatif.interval import BETWEEN_RUNS_ON_HOSTS

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Claim, Gain, Place
    from lostflops.explain.advise.price import Price
    from lostflops.predict.whatif.predictions import StoredPrediction

SURE: Final = 0.5
"""A claim with a lower confidence than this is only suspected."""
MORE_STEPS: Final = "--steps 8:20"
"""Flags that record a longer window, if it was too short to be sure."""
_AT_MOST: Final = 1.5
"""A cause on all ranks can save at most this many times its own time on the ledger, including waits for it."""
_CHANCE: Final = 3.0
"""If the interval of a saving reaches more than this many times the saving to both sides, the evidence points no way:
three of ten such savings are losses (if errors are normal)."""
_HOURS: Final = 24
_MISREAD: Final = "The replay does not reproduce the recorded steps, so this time may have another cause."


@dataclass(frozen=True, slots=True)
class Priced:
    """A claim with what its fix saves."""

    claim: Claim
    prediction: Prediction
    stored: StoredPrediction | None = None
    """The what-if that prices it, or None."""

    @property
    def is_small(self) -> bool:
        return not self.claim.is_warning and (self.prediction.gain < SMALLEST or self.is_chance)

    @property
    def is_chance(self) -> bool:
        one = self.prediction
        return min(one.gain - one.gain_low, one.gain_high - one.gain) > _CHANCE * one.gain

    @property
    def doubt(self) -> str:
        """Why it is suspected and not found; empty if the evidence is enough."""
        claim, expected = self.claim, self.prediction
        if claim.suspected:
            return claim.suspected
        if not claim.is_warning and expected.may_be_zero:
            interval = format_interval(expected.gain_low, expected.gain_high)
            return f"The saving may be zero: its 90% interval is {interval} of the step."
        if claim.confidence < SURE:
            return f"The rule expects to be right in only {format_percent(claim.confidence)} of such cases."
        return ""

    @property
    def record(self) -> str:
        """Flags that record what is needed to be sure; more steps narrow an interval."""
        return self.claim.record or (MORE_STEPS if self.doubt else "")


def price_claim(case: Case, claim: Claim) -> Priced:
    """Price a claim by the rule's own gain, or by replaying the run with its changes; otherwise by its time as an upper
    limit."""
    if claim.gain is not None:
        own = _between_runs(case, claim.gain)
        return Priced(claim, Prediction(own.share, own.low, own.high, own.basis))
    found = case.price(*claim.changes)
    if found is None:
        return _by_ledger(case, claim)
    share = sum(claim.taken.values()) / (case.wall or 1)
    if claim.taken and not claim.ranks and found.gain > _AT_MOST * share:
        return _by_own_time(claim, found, share)
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
        measured_ns=stored.baseline.measured_ns,
    )
    return Priced(claim, predicted, stored)


def _between_runs(case: Case, gain: Gain) -> Gain:
    """Widen a rule's own interval by the usual difference between the steps of two runs, as the interval of a what-if
    is. Limits stay: a saving that may be zero, and one that is the largest possible."""
    if gain.low <= 0:
        return gain
    between = BETWEEN_RUNS_ON_HOSTS if case.baseline is None else case.baseline.between
    differs = between * (1 - gain.share)
    below, above = hypot(gain.share - gain.low, differs), hypot(gain.high - gain.share, differs)
    high = gain.high if gain.high == gain.share else min(gain.share + above, 1.0)
    return replace(gain, low=gain.share - below, high=high)


def _by_own_time(claim: Claim, found: Price, share: float) -> Priced:
    """Price a claim by its time on the ledger, because its what-if removes much more than this cause: a host that
    launches for free also has time for whatever else holds up the device, such as loading."""
    basis = (
        f"the time attributed to this cause ({', '.join(claim.changes)} would save {format_share(found.gain)}, but "
        "mostly from other causes)"
    )
    reach = (found.high - found.low) / 2 * share / found.gain
    return Priced(claim, Prediction(share, max(share - reach, 0.0), min(_AT_MOST * share, 1.0), basis))


def _by_ledger(case: Case, claim: Claim) -> Priced:
    """Price a claim by its time on the ledger as an upper limit, because the run cannot be replayed."""
    if case.replay_differs and not claim.suspected:
        claim = replace(claim, suspected=_MISREAD)
    share = sum(claim.taken.values()) / (case.wall or 1)
    why = case.refused.get(claim.changes, "")
    basis = "the time attributed to this cause, as an upper limit" + (f" ({why})" if why else "")
    return Priced(claim, Prediction(share, 0.0, share, basis, is_bound=True))


def finding(case: Case, one: Priced, taken: Mapping[Place, int], usd_per_hour: float | None) -> Finding:
    claim, lines = one.claim, _by_line(taken)
    lost = sum(lines.values())
    share = lost / (case.wall or 1)
    hours = max(one.prediction.gain, 0.0) * len(case.total.ranks) * _HOURS
    ranks = f":{','.join(map(str, claim.ranks))}" if claim.ranks else ""
    return Finding(
        id=f"{claim.cause}{ranks}",
        level="suspected" if one.doubt else "found",
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
        lines=lines,
        prediction=one.prediction,
        doubt=one.doubt,
        record=one.record,
    )


def _by_line(taken: Mapping[Place, int]) -> dict[str, int]:
    lines: dict[str, int] = {}
    for (_, line), ns in taken.items():
        lines[line] = lines.get(line, 0) + ns
    return lines

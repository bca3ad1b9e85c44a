"""Turn a claim into a finding: price it, decide how sure it is, and say what it costs a day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.lines import WAIT_LINES
from lostflops.core.estimate import Estimate, Kind, Strength
from lostflops.core.results import Finding, Prediction
from lostflops.core.units import format_percent
from lostflops.explain.advise.calibration import calibrated, probability_right
from lostflops.explain.advise.diagnosis import SMALLEST

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Claim, Place
    from lostflops.predict.whatif.predictions import StoredPrediction
    from lostflops.store.run import Run

FOUND_FROM: Final = 0.9
"""A cause is found if such findings were right at least this often; a wrong cause costs a user more than a late one."""
_CHANCE: Final = 3.0
"""If the range of a saving reaches more than this many times the saving to both sides, the evidence points no way:
three of ten such savings are losses (if errors are normal)."""
_HOURS: Final = 24
_MISREAD: Final = "The replay does not reproduce the recorded steps, so this time may have another cause."
_AND_WAITS: Final = ", and all waits for other ranks"
_OWN_TIME: Final = "the time attributed to this cause, as an upper limit"


@dataclass(frozen=True, slots=True)
class Priced:
    """A claim with what its fix saves."""

    claim: Claim
    estimate: Estimate | None = None
    """The saving before its range is calibrated; None if it costs no time yet."""
    stored: StoredPrediction | None = None
    """The what-if that prices it, or None."""
    waits: float = 0.0
    """Share of the time that is waits for other ranks which the claim does not include: they may end with its cause."""

    @property
    def saving(self) -> Estimate | None:
        """What is printed: ranges are as wide, and limits as high, as outcomes of other jobs say; what a what-if prices
        is shown as every verb shows it."""
        found = self.with_waits
        return found if found is None or self.stored is not None else calibrated(found, self.claim.cause)

    @property
    def with_waits(self) -> Estimate | None:
        """The saving before it is calibrated; a limit includes all waits."""
        found = self.estimate
        if found is None or found.kind is not Kind.BOUND:
            return found
        return Estimate.bound(found.value + self.waits, found.source + (_AND_WAITS if self.waits else ""))

    @property
    def is_small(self) -> bool:
        return self.estimate is not None and (self.estimate.value < SMALLEST or self.is_chance)

    @property
    def is_chance(self) -> bool:
        found = self.estimate
        if found is None or found.low is None or found.high is None:
            return False
        return min(found.value - found.low, found.high - found.value) > _CHANCE * found.value

    @property
    def value(self) -> float:
        """The saving by which findings are ranked; a limit that was raised to hold does not rank higher."""
        return 0.0 if self.estimate is None else self.estimate.value

    @property
    def strength(self) -> Strength:
        """The strength of the evidence: what the rule itself doubts is weak."""
        return Strength.WEAK if self.claim.suspected else self.claim.strength

    @property
    def probability(self) -> float | None:
        return probability_right(self.claim.cause, self.strength, self.estimate)

    @property
    def doubt(self) -> str:
        """Why it is suspected and not found; empty if the evidence is enough."""
        claim, saving, probability = self.claim, self.saving, self.probability
        if claim.suspected:
            return claim.suspected
        if saving is not None and saving.kind is Kind.GUESS:
            return "What the fix saves is a guess: nothing measured it."
        if self.is_vague:
            return "The fix may save nothing: the range of its saving includes zero."
        if probability is None:
            return "How often such findings are right is unknown: no job with this cause was scored."
        if probability >= FOUND_FROM:
            return ""
        return f"About {format_percent(probability)} of such findings are right, by outcomes of other jobs."

    @property
    def is_vague(self) -> bool:
        """Whether its range includes zero: more steps make it narrower."""
        return self.saving is not None and self.saving.low is not None and not self.saving.is_gain


def price_claim(case: Case, claim: Claim) -> Priced:
    """Price a claim by replaying the run with its changes, else by the rule's own estimate, else by its time as an
    upper limit."""
    found = case.price(*claim.changes) if claim.changes else claim.saving
    if found is None and claim.costs_time:
        return _price_by_ledger(case, claim)
    if found is None or not claim.changes:
        return Priced(claim, found, waits=_other_waits(case, claim))
    limited = _limit(case, claim, found)
    stored = case.predictions[claim.changes] if limited.source == found.source else None
    return Priced(claim, limited, stored)


def _other_waits(case: Case, claim: Claim) -> float:
    """Return the share of waits that the claim does not include."""
    taken = sum(ns for (_, line), ns in claim.taken.items() if line in WAIT_LINES)
    return max(sum(case.total.lines[line] for line in WAIT_LINES) - taken, 0) / (case.wall or 1)


def _limit(case: Case, claim: Claim, found: Estimate) -> Estimate:
    """Limit what a what-if saves to the time of the claim and all waits, because it may remove more than this cause: a
    host that launches for free also has time for whatever else holds up the device, such as loading."""
    waits = sum(case.total.lines[line] for line in WAIT_LINES)
    own = sum(ns for (_, line), ns in claim.taken.items() if line not in WAIT_LINES)
    limit = (own + waits) / (case.wall or 1)
    low, high = found.ends
    if claim.ranks or not claim.taken or high <= limit:
        return found
    least = found.value if found.kind is Kind.BOUND else low
    if least > limit + SMALLEST:
        more = f"{', '.join(claim.changes)} would save {format_percent(found.value)}, but also from other causes"
        return Estimate.bound(limit, f"the time attributed to this cause and all waits, as an upper limit ({more})")
    return replace(found, value=min(found.value, limit), low=min(low, limit), high=limit)


def _price_by_ledger(case: Case, claim: Claim) -> Priced:
    """Price a claim by its time on the ledger as an upper limit: it has no what-if, or the run cannot be replayed."""
    if claim.changes and case.replay_differs and not claim.suspected:
        claim = replace(claim, suspected=_MISREAD)
    why = case.refused.get(claim.changes, "")
    share = sum(claim.taken.values()) / (case.wall or 1)
    limit = Estimate.bound(share, _OWN_TIME + (f" ({why})" if why else ""))
    return Priced(claim, limit, waits=_other_waits(case, claim))


def _describe_prediction(stored: StoredPrediction) -> Prediction:
    return Prediction(
        id=stored.id,
        change=stored.text,
        measured_ns=stored.baseline.measured_ns,
        predicted_ns=stored.predicted_ns,
        low_ns=stored.interval[0],
        high_ns=stored.interval[1],
        replay_error=stored.baseline.replay_error,
    )


def finding(case: Case, one: Priced, taken: Mapping[Place, int], usd_per_hour: float | None) -> Finding:
    claim, lines = one.claim, _by_line(taken)
    lost = sum(lines.values())
    share = lost / (case.wall or 1)
    hours = max(one.saving.value if one.saving else 0.0, 0.0) * case.run.world_size * _HOURS
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
        strength=one.strength,
        probability=one.probability,
        certain_if=claim.certain_if,
        fix=claim.fix,
        lines=lines,
        saving=one.saving,
        prediction=None if one.stored is None else _describe_prediction(one.stored),
        doubt=one.doubt,
        record=claim.record or (case.more_steps if one.is_vague else ""),
    )


def describe_job_hours(run: Run) -> Iterator[str]:
    """Say for how many ranks hours and money are, where that is not what was recorded."""
    if len(run.ranks) < run.world_size:
        yield f"Hours and money are for all {run.world_size:,} ranks of the job; {len(run.ranks):,} were recorded."


def _by_line(taken: Mapping[Place, int]) -> dict[str, int]:
    lines: dict[str, int] = {}
    for (_, line), ns in taken.items():
        lines[line] = lines.get(line, 0) + ns
    return lines

"""Checkpoints are saved inside steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.lines import HOST_LINES
from lostflops.account.ledger.samples import FEWEST
from lostflops.core.errors import UnknownCost
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.explain.advise.claim import Claim, Place
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.interludes import in_window, interlude
from lostflops.explain.advise.signs.python_share import FEW, LINE, change, is_saving
from lostflops.explain.advise.signs.where import Seen, match_samples

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_MOST_STEPS: Final = 10


def _find(case: Case) -> Iterator[Claim]:
    counted_claim = _claim_from_timings(case)
    if counted_claim is not None:
        yield counted_claim
    else:
        yield from _claim_from_samples(case)


def _claim_from_timings(case: Case) -> Claim | None:
    """Return a claim from what the collector timed inside functions that save, over all steps; None if it timed too
    little."""
    try:
        found = interlude(case, "saving", "saving checkpoints")
    except UnknownCost:
        return None
    if found is None or found.saving.value < FEW:
        return None
    held = {
        line: one for line in (*HOST_LINES, "copy") if (one := match_samples(case.total, line, is_saving)) is not None
    }
    places = [place for one in held.values() if one.samples for place in one.sources][:1]
    who = f"{'rank' if len(found.ranks) == 1 else 'ranks'} {', '.join(map(str, found.ranks[:8]))}"
    where = f"{who} while the others wait" if found.alone else "all ranks"
    at = f" ({places[0]})" if places else ""
    return Claim(
        cause="checkpoint",
        what=f"Saving checkpoints {found.often} on {where}{at} takes {format_share(found.saving.value)} of step time.",
        taken=in_window(case, "saving"),
        evidence=(
            Evidence(
                f"{who} saved in {len(found.steps):,} of {pluralise(found.of, 'step')}, for "
                f"{format_ns(round(found.each))} each time",
                ranks=found.ranks,
                steps=found.steps[:_MOST_STEPS],
                sources=tuple(places),
            ),
            *_evidence(case, {line: one for line, one in held.items() if one.samples}),
        ),
        strength=Strength.STRONG,
        certain_if="run some steps without saving: they must be as fast as the other steps of this run.",
        fix=_fix(places[0] if places else "torch.save"),
        saving=found.saving,
        ranks=found.ranks if found.alone else (),
        instead_of=("straggler", "warmup", "host_python", "allocation_churn"),
    )


def _fix(place: str) -> str:
    return (
        f"Save less often at {place}, for example every 30 minutes. Save in the background with "
        "torch.distributed.checkpoint.async_save(state_dict, checkpoint_id=path). If all ranks hold the same weights, "
        "save on one rank only."
    )


def _claim_from_samples(case: Case) -> Iterator[Claim]:
    """Yield a claim from the stack samples of the window."""
    found = {
        line: one for line in (*HOST_LINES, "copy") if (one := match_samples(case.total, line, is_saving)) is not None
    }
    held = {line: one for line, one in found.items() if one.samples}
    if sum(one.samples for one in held.values()) < FEWEST:
        return
    taken: dict[Place, int] = {
        (one.rank, line): int(one.lines[line] * held[line].share)
        for one in case.total.ranks
        for line in held
        if one.lines[line]
    }
    share = sum(taken.values()) / (case.wall or 1)
    if share < FEW:
        return
    python = held[LINE].share if LINE in held else 0.0
    is_python = python * case.total.lines[LINE] > 0.8 * share * case.wall
    place = next(iter(max(held.values(), key=lambda one: one.samples).sources))
    yield Claim(
        cause="checkpoint",
        what=f"Saving checkpoints inside steps ({place}) takes {format_share(share)} of the time of all ranks.",
        taken=taken,
        evidence=tuple(_evidence(case, held)),
        strength=Strength.STRONG,
        certain_if=f"skip the save at {place} in some steps: they must get shorter by the expected gain.",
        fix=_fix(place),
        changes=(change(python),) if is_python else (),
    )


def _evidence(case: Case, held: dict[str, Seen]) -> Iterator[Evidence]:
    for line, one in held.items():
        listed = ", ".join(f"{place} {format_share(part)}" for place, part in one.places[:2])
        yield Evidence(
            f"{format_share(one.share)} of {line} is spent saving ({one.samples:,} of "
            f"{pluralise(one.of, 'stack sample')}): {listed}",
            ranks=tuple(case.lines),
            steps=tuple(sorted(case.total.steps)),
            sources=one.sources,
        )


RULE: Final = Rule(
    cause="checkpoint",
    about=(
        "Training stops while a checkpoint is written: weights are copied to the host, pickled and written to shared "
        "storage. All other ranks wait for the saving rank, at the latest in the next collective."
    ),
    find=_find,
)

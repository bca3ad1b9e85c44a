"""Some ranks do more work than others, always or in changing steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.blame.sayings import cost_of
from lostflops.account.ledger.lines import WAIT_LINES
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.explain.advise.claim import Claim, Place
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.late import late_ranks
from lostflops.explain.advise.signs.uneven import Uneven, uneven
from lostflops.explain.advise.signs.waiting import attribute_lateness

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.late import LateRank


ABOUT: Final = (
    "The rank with the most work sets the step time. Ranks get unequal work if batches differ in samples, sequences in "
    "length, or embedding tables in popularity. If it is always the same rank, its share is too large; if "
    "it changes from step to step, batches are composed at random. No device is at fault: compute time follows the "
    "amount of work."
)
_MOST_STEPS: Final = 5
_EVEN: Final = "work=even"


def find(case: Case) -> Iterator[Claim]:
    loaded = [one for one in late_ranks(case) if one.more]
    changes = uneven(case)
    if loaded and not _take_turns(case, [one.found.rank for one in loaded]):
        yield _for_good(case, loaded)
    elif changes is not None and not np.isnan(case.judgement.comparison.by_step).all():
        yield _by_turns(case, changes)


def _take_turns(case: Case, ranks: Sequence[int]) -> bool:
    """Return whether the ranks that are late on average are the latest in less than half of the steps."""
    comparison = case.judgement.comparison
    known = np.nan_to_num(comparison.by_step, nan=-np.inf)
    most = comparison.ranks[known.argmax(axis=0)]
    return bool(np.isin(most, ranks).mean() < 0.5)


def _for_good(case: Case, loaded: Sequence[LateRank]) -> Claim:
    ranks = tuple(sorted(one.found.rank for one in loaded))
    first = loaded[0]
    named = f"Rank {ranks[0]} has" if len(ranks) == 1 else f"Ranks {', '.join(map(str, ranks))} have"
    unit = first.done.unit if first.done is not None else "work"
    lost = attribute_lateness(case, ranks)
    waited = sum(ns for (_, line), ns in lost.items() if line in WAIT_LINES)
    return Claim(
        cause="work_imbalance",
        what=(
            f"{named} {format_share(first.more)} more {unit} than other ranks in every step: waits take "
            f"{format_share(waited / (case.wall or 1))} of the time of all ranks."
        ),
        taken=lost,
        evidence=tuple(_cite_extra_work(case, one) for one in loaded),
        strength=first.strength,
        certain_if=f"count the {unit} of each rank in the training loop.",
        fix=(
            "Give every rank the same work: the same batch_size, and batches of similar length (sort by length, pack "
            "sequences, or fill batches up to a number of tokens). "
            "Embedding tables: shard popular tables by rows."
        ),
        changes=(_EVEN,),
        ranks=ranks,
    )


def _cite_extra_work(case: Case, one: LateRank) -> Evidence:
    found = one.found
    unit = one.done.unit if one.done is not None else "kernels or FLOPs"
    return Evidence(
        f"Rank {found.rank} has {format_share(one.more)} more {unit} than the median of its peers and computes "
        f"{format_ns(round(found.line_excess / found.steps))} longer per step, in {found.slow_steps} of "
        f"{pluralise(found.steps, 'step')} (last in {found.last.times:,} of "
        f"{pluralise(found.last.of, 'collective')}, p = {found.p_value:.2g}).",
        ranks=(found.rank,),
        steps=tuple(sorted(case.total.steps)),
    )


def _by_turns(case: Case, found: Uneven) -> Claim:
    comparison = case.judgement.comparison
    share, often, rank = cost_of(comparison)
    assert share is not None
    assert often is not None
    excess = np.nan_to_num(comparison.by_step)
    worst = comparison.steps[np.argsort(-excess.max(axis=0))][:_MOST_STEPS]
    slow = [f"rank {comparison.ranks[excess[:, at].argmax()]}" for at in np.searchsorted(comparison.steps, worst)]
    places = "always in the same order" if found.for_good else "and the slowest rank changes"
    return Claim(
        cause="work_imbalance",
        what=(
            f"Ranks get unequal work, {places}: {found.unit} per step differ by {format_share(found.apart)} between "
            "ranks."
        ),
        taken=_turns(case),
        evidence=(
            Evidence(
                f"Compute time follows {found.unit}: correlation {found.alike:.2f} over "
                f"{pluralise(found.pairs, 'pair')} of rank and step."
                if found.unit != "microbatches"
                else f"Microbatches with long forward passes have long backward passes, on all stages: correlation "
                f"{found.alike:.2f} over {found.pairs:,} passes.",
                ranks=tuple(comparison.ranks.tolist()),
            ),
            Evidence(
                f"The slowest rank of each step computes {format_share(share)} of the step longer than its peers; most "
                f"often it is rank {rank} (in {format_share(often)} of {pluralise(comparison.steps.size, 'step')}). "
                f"Worst: {', '.join(f'step {step} ({who})' for step, who in zip(worst.tolist(), slow, strict=True))}.",
                steps=tuple(worst.tolist()),
            ),
        ),
        strength=Strength.STRONG,
        certain_if="log the tokens and the forward time of each rank and step: they must rise together.",
        fix=(
            "Batch samples of similar length: use a batch sampler that sorts by length, or pack sequences to a fixed "
            "number of tokens (Hugging Face: group_by_length=True, DataCollatorWithFlattening; Megatron: "
            "--reset-position-ids with packed samples)."
        ),
        changes=(_EVEN,),
    )


def _turns(case: Case) -> dict[Place, int]:
    """Attribute the waits that the slowest ranks of the steps explain, and their extra time compared with the
    others."""
    comparison, lines = case.judgement.comparison, case.lines
    excess = np.maximum(np.nan_to_num(comparison.by_step), 0.0)
    most = float(excess.max(axis=0).sum())
    found: dict[Place, int] = {}
    for at, rank in enumerate(comparison.ranks.tolist()):
        found[rank, "compute"] = round(float(excess[at].sum()))
        room = max(most - float(excess[at].sum()), 0.0)
        for line in WAIT_LINES:
            ns = min(lines[rank][line], round(room))
            found[rank, line] = ns
            room -= ns
    return found


RULE: Final = Rule("work_imbalance", ABOUT, find)

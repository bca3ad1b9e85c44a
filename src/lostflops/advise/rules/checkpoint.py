"""Checkpoints are saved inside steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.advise.claim import Claim, Gain, Place, Rule
from lostflops.advise.signs.python_share import FEW, LINE, change, is_saving
from lostflops.advise.signs.traced import in_each_step
from lostflops.advise.signs.where import Seen, seen
from lostflops.ledger.lines import HOST_LINES
from lostflops.ledger.samples import FEWEST
from lostflops.results import Evidence
from lostflops.units import counted, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case


def _find(case: Case) -> Iterator[Claim]:
    found = {line: one for line in (*HOST_LINES, "copy") if (one := seen(case.total, line, is_saving)) is not None}
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
        what=f"Saving checkpoints inside steps takes {format_share(share)} of the time, at {place}.",
        taken=taken,
        evidence=tuple(_evidence(case, held)),
        confidence=0.9,
        certain_if=f"skip the save at {place} in some steps: they must be shorter by the expected gain.",
        fix=(
            f"Save less often at {place}, by time instead of by step, and in the background: "
            "torch.distributed.checkpoint.async_save(state_dict, checkpoint_id=path). If ranks hold the same weights, "
            "let only one save."
        ),
        changes=(change(python),) if is_python else (),
        in_each_step=in_each_step(case, LINE),
        gain=None if is_python else Gain(share, share / 2, min(share * 1.2, 1.0), "its share of the ledger"),
    )


def _evidence(case: Case, held: dict[str, Seen]) -> Iterator[Evidence]:
    for line, one in held.items():
        listed = ", ".join(f"{place} {format_share(part)}" for place, part in one.places[:2])
        yield Evidence(
            f"{format_share(one.share)} of {line} is spent saving (by {counted(one.samples, 'stack sample')} of "
            f"{one.of:,}): {listed}",
            ranks=tuple(case.lines),
            steps=tuple(sorted(case.total.steps)),
            sources=one.sources,
        )


RULE: Final = Rule(
    cause="checkpoint",
    about=(
        "Training stops while a checkpoint is written: weights are copied to the host, pickled and written to a disk "
        "that others use as well. All ranks wait for the rank that saves, in the next collective at the latest."
    ),
    find=_find,
)

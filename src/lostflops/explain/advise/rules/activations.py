"""Memory is nearly full, mostly with activations that are kept for the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.account.memory.owners import Owner
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.fullness import fullness

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_MOST: Final = 0.5
"""Activations must be at least this share of the peak memory."""


def _find(case: Case) -> Iterator[Claim]:
    found = fullness(case)
    share = found.share(Owner.ACTIVATIONS)
    if share < _MOST or not found.is_short():
        return
    named = [part for part in found.parts if part.name and not part.name.startswith("(")]
    block = named[0].name if named else "block"
    largest = ", ".join(f"{part.name} {format_bytes(part.bytes)}" for part in named[:3])
    yield Claim(
        cause="activations",
        what=f"Memory is nearly full; {format_share(share)} of it is activations kept for the backward pass.",
        taken={},
        evidence=(
            Evidence(found.says, ranks=(found.rank,), steps=() if found.step is None else (found.step,)),
            *([Evidence(f"layers with the most activations: {largest}", ranks=(found.rank,))] if largest else []),
        ),
        strength=Strength.STRONG if found.parts else Strength.FAIR,
        certain_if="halve the batch for some steps: the peak must fall by about half of the activations.",
        fix=(
            f"Call torch.utils.checkpoint.checkpoint(self.{block}, x, use_reentrant=False) instead of self.{block}(x) "
            "(lostflops memory RUN --frontier shows which blocks save the most memory for the least time). Or halve "
            "the batch and accumulate gradients over two microbatches."
        ),
    )


RULE: Final = Rule(
    cause="activations",
    about=(
        "The forward pass stores the tensors that the backward pass needs: layer outputs, masks, statistics. These "
        "activations grow with batch size and sequence length, and peak when the backward pass starts. They are a "
        "problem only if the device is nearly full."
    ),
    find=_find,
)

"""Memory is nearly full, mostly with activations that are kept for the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.advise.claim import Claim, Gain, Rule
from lostflops.advise.signs.fullness import fullness
from lostflops.memory.owners import Owner
from lostflops.results import Evidence
from lostflops.units import format_bytes, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case

_MOST: Final = 0.5
"""Share of the peak from which they are what memory is short of."""


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
        what=f"Memory is nearly full, and {format_share(share)} of it is activations kept for the backward pass.",
        taken={},
        evidence=(
            Evidence(found.says, ranks=(found.rank,), steps=() if found.step is None else (found.step,)),
            *([Evidence(f"most of the activations are of {largest}", ranks=(found.rank,))] if largest else []),
        ),
        confidence=0.9 if found.parts else 0.6,
        certain_if="record some steps with half the batch: the peak must fall by about half of the activations.",
        fix=(
            f"Call torch.utils.checkpoint.checkpoint(self.{block}, x, use_reentrant=False) instead of self.{block}(x), "
            "and so for similar blocks (lostflops memory RUN --frontier shows which save most memory for the least "
            "time). Or halve the batch and accumulate gradients over two."
        ),
        gain=Gain(0.0, 0.0, 0.0, "it costs no time until memory runs out"),
        is_warning=True,
    )


RULE: Final = Rule(
    cause="activations",
    about=(
        "The forward pass keeps what the backward pass needs: outputs of layers, masks, statistics. These activations "
        "grow with the batch and the sequence length, and reach their peak when the backward pass begins. They matter "
        "if the device is nearly full."
    ),
    find=_find,
)

"""Memory is short, and most of it is what the forward pass keeps for the backward pass."""

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
        what=f"Memory is short, and {format_share(share)} of it is activations that wait for the backward pass.",
        taken={},
        evidence=(
            Evidence(found.says, ranks=(found.rank,), steps=() if found.step is None else (found.step,)),
            *([Evidence(f"most of the activations are of {largest}", ranks=(found.rank,))] if largest else []),
        ),
        confidence=0.9 if found.parts else 0.6,
        certain_if="the peak of some steps with half the batch, which halves activations and nothing else",
        fix=(
            f"torch.utils.checkpoint.checkpoint(self.{block}, x, use_reentrant=False) in place of self.{block}(x), and "
            "so on for its siblings: what they keep is computed again in the backward pass (lostflops memory RUN "
            "--frontier tells which modules save most for the least time); or half the batch, with gradients "
            "accumulated over two"
        ),
        gain=Gain(0.0, 0.0, 0.0, "it costs no time until memory runs out"),
        is_warning=True,
    )


RULE: Final = Rule(
    cause="activations",
    about=(
        "The forward pass keeps what the backward pass will need: outputs of layers, masks, statistics. That grows "
        "with the batch and the sequence, and is all there when the backward pass begins. It matters where the device "
        "is nearly full."
    ),
    find=_find,
)

"""Gradients are reduced in every microbatch of an accumulated step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.core.errors import NotApplicable
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, pluralise
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.traffic import sources, traffic_of
from lostflops.predict.whatif.graph_edits.each_microbatch import repeated_reductions

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case


def _find(case: Case) -> Iterator[Claim]:
    made = traffic_of(case)
    try:
        found = repeated_reductions(made.graph)
    except NotApplicable:
        return
    early = made.of(found.early)
    passes, calls = found.passes, made.a_step(made.of(made.in_backward))
    yield Claim(
        cause="missing_no_sync",
        what=f"Gradients are reduced in each of the {passes} microbatches of a step; once per step is enough.",
        taken=made.attribute(early),
        evidence=(
            Evidence(
                f"per step: {passes} backward passes with {calls / passes:.3g} reductions of the same sizes in each "
                f"({calls:.3g} in total); {format_bytes(made.bytes_a_step(early))} per rank are reduced needlessly",
                events=made.examples(early),
                steps=made.steps(early),
                sources=sources(case.run, made, early),
            ),
            *_cite_backward_passes(case),
        ),
        strength=Strength.STRONG,
        certain_if="run with no_sync(): the loss must stay the same, and steps must get shorter by the expected gain.",
        fix=(
            f"Use model.no_sync() in all but the last of the {passes} microbatches: with (contextlib.nullcontext() if "
            "is_last else model.no_sync()): model(batch).backward(). FSDP2: model.set_requires_gradient_sync(is_last). "
            "accelerate: with accelerator.accumulate(model)."
        ),
        changes=("no_sync=on",),
    )


def _cite_backward_passes(case: Case) -> Iterator[Evidence]:
    rows = case.run.rows("select microbatches, count(*) from timings where microbatches > 1 group by all")
    for passes, count in rows:
        yield Evidence(
            f"the collector counted {passes} backward passes in {pluralise(count, 'step')} (summed over ranks)"
        )


RULE: Final = Rule(
    cause="missing_no_sync",
    about=(
        "A step accumulates the gradients of several microbatches before the optimizer uses them. DDP does not know "
        "this and reduces gradients over all ranks in each backward pass, although only the final sum matters. "
        "no_sync() skips the needless reductions."
    ),
    find=_find,
)

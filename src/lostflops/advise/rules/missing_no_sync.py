"""Gradients are reduced in every microbatch of an accumulated step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.advise.claim import Claim, Rule
from lostflops.advise.signs.traffic import sources
from lostflops.predict.change import NotApplicable
from lostflops.predict.edits.each_microbatch import repeated_reductions
from lostflops.results import Evidence
from lostflops.units import counted, format_bytes

if TYPE_CHECKING:
    from lostflops.advise.case import Case


def _find(case: Case) -> Iterator[Claim]:
    made = case.traffic
    try:
        found = repeated_reductions(made.graph)
    except NotApplicable:
        return
    early = made.of(found.early)
    passes, calls = found.passes, made.a_step(made.of(made.in_backward))
    yield Claim(
        cause="missing_no_sync",
        what=f"Gradients are reduced in each of the {passes} microbatches of a step; once per step is enough.",
        taken=made.taken(early),
        evidence=(
            Evidence(
                f"per step: {passes} backward passes with {calls / passes:.3g} reductions of the same sizes in each "
                f"({calls:.3g} in total); {format_bytes(made.bytes_a_step(early))} per rank are reduced needlessly",
                events=made.examples(early),
                steps=made.steps(early),
                sources=sources(case.run, made, early),
            ),
            *_timed(case),
        ),
        confidence=0.95,
        certain_if="run with no_sync(): the loss must stay the same, and steps must get shorter by the expected gain.",
        fix=(
            f"Use model.no_sync() in all but the last of the {passes} microbatches: with (contextlib.nullcontext() if "
            "is_last else model.no_sync()): model(batch).backward(). FSDP2: model.set_requires_gradient_sync(is_last). "
            "accelerate: with accelerator.accumulate(model)."
        ),
        changes=("no_sync=on",),
    )


def _timed(case: Case) -> Iterator[Evidence]:
    rows = case.run.sql("select microbatches, count(*) from timings where microbatches > 1 group by all").fetchall()
    for passes, count in rows:
        yield Evidence(
            f"the collector counted {passes} backward passes in {counted(count, 'step')} (summed over ranks)"
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

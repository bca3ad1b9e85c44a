"""Python code of the training loop runs between ops on most ranks: logging, metrics, string work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.explain.advise.claim import Claim, NotChecked
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs import spread
from lostflops.explain.advise.signs.compiled import advise_compiling
from lostflops.explain.advise.signs.python_share import (
    FEW,
    LINE,
    LONG,
    change,
    collecting,
    in_long_stretches,
    is_loading,
    is_saving,
)
from lostflops.explain.advise.signs.where import Seen, is_own, match_samples

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_UNSAMPLED: Final = 0.05
"""Without stack samples, at least this share of the time is needed: only long gaps separate the program's Python from
normal dispatch."""

_FEWEST: Final = 5
"""The cause is certain with at least this many stack samples in the program's own code."""
_SUSPECTED: Final = 2
"""With at least this many samples it is suspected."""
_ONE_PLACE: Final = 0.03
"""One line must take at least this share of the time: Python that is spread over many lines of a model is the normal
dispatch of its ops."""
_UPDATE: Final = re.compile(r"(?:Adam\w{0,3}|SGD|Adagrad|RMS[Pp]rop|Lion|Muon|[Oo]ptimizer)\.(?:step|update)$")
"""A method that updates parameters, by the name of its optimizer; it must run in every step."""

_FORWARD: Final = re.compile(r"(?:^|[\s.])forward$")
"""A forward pass, which must run in every step too."""


def _find(case: Case) -> Iterator[Claim]:
    share = spread.share(case, LINE)
    if share < FEW:
        return
    found = match_samples(
        case.total, LINE, lambda frames: is_own(frames) and not (is_saving(frames) or is_loading(frames))
    )
    yield from _claim_from_samples(case, share, found) if found is not None else _claim_without_samples(case, share)


def _claim_from_samples(case: Case, share: float, found: Seen) -> Iterator[Claim]:
    if not found.places:  # all samples are in PyTorch or a framework
        return
    part = max(found.share - (collecting(case) or 0.0), 0.0)
    place, largest = found.places[0]
    if share * part < FEW or share * largest < _ONE_PLACE or found.samples < _SUSPECTED:
        return
    is_sure = found.samples >= _FEWEST
    yield Claim(
        cause="host_python",
        what=f"Python code between ops takes {format_share(share * part)} of the time, most of it at {place}.",
        taken=spread.attribute_line(case, LINE, part),
        evidence=(
            _line(case, share),
            Evidence(
                f"{found.samples:,} of {found.of:,} stack samples between ops are in the program's own code "
                f"({format_share(found.share)} of that time); {format_share(largest)} at {place}",
                sources=found.sources,
            ),
        ),
        strength=Strength.STRONG,
        certain_if=f"skip {place} in some steps: they must get shorter by the expected gain.",
        fix=_fix(case, found),
        changes=(change(part),),
        suspected="" if is_sure else f"The evidence is only {pluralise(found.samples, 'stack sample')}.",
        record="" if is_sure else case.more_steps,
    )


def _fix(case: Case, found: Seen) -> str:
    if _UPDATE.search(found.places[0][0]):
        return (
            "Use torch.optim.AdamW(model.parameters(), ..., fused=True) or another PyTorch optimizer instead of "
            f"updating parameters in Python ({found.places[0][0]}). Or call torch._foreach_mul_, torch._foreach_add_ "
            "etc. on lists of all parameters."
        )
    if _FORWARD.search(found.places[0][0]):
        return (
            f"Remove Python work from the forward pass, mostly at {' and '.join(found.sources[:2])}: logging, string "
            "formatting, .item(), loops over elements. "
            f"{advise_compiling(case, 'Or use torch.compile(model).')} Or use fewer, larger microbatches."
        )
    return (
        f"If only logs need it, run {' and '.join(found.sources[:2])} only every n steps (if step % n == 0: ...), or "
        "in another process. Or make it cheaper: do not format strings that are not printed, do not loop over elements."
    )


def _claim_without_samples(case: Case, share: float) -> Iterator[Claim]:
    part = in_long_stretches(case)
    if share * part < _UNSAMPLED:
        return
    if case.total.samples:
        raise NotChecked("too few stack samples between ops to show which Python code runs", record=case.more_steps)
    parts = case.total.parts.get(LINE, Counter())
    named = ", ".join(f"{name} {format_share(ns / case.total.lines[LINE])}" for name, ns in parts.most_common(3))
    yield Claim(
        cause="host_python",
        what=f"Hosts run Python code between ops for {format_share(share * part)} of the time.",
        taken=spread.attribute_line(case, LINE, part),
        evidence=(
            _line(case, share),
            Evidence(
                f"{format_share(part)} of it is in gaps of more than {format_ns(LONG)}, too long for dispatching ops; "
                f"by annotation: {named}"
            ),
        ),
        strength=Strength.FAIR,
        certain_if="record stack samples (lostflops run does by default): they name the lines that run.",
        fix=(
            "Run logging, metrics and checks only every n steps, or in another thread. Stack samples, "
            "which lostflops run records by default, show which lines run."
        ),
        changes=(change(part),),
    )


def _line(case: Case, share: float) -> Evidence:
    ns, rank, event = case.total.longest.get(LINE, (0, -1, -1))
    return Evidence(
        f"idle.python is {format_share(share)} of a typical rank's time; the longest gap is {format_ns(ns)} on rank "
        f"{rank}",
        events=((rank, event),) if event >= 0 else (),
        ranks=tuple(case.lines),
        steps=tuple(sorted(case.total.steps)),
    )


RULE: Final = Rule(
    cause="host_python",
    about=(
        "Between ops the training loop runs Python: it logs, computes metrics, formats strings, checks values. During "
        "that time it launches nothing, and the device idles once its queue is empty. On a CPU nothing is queued, so "
        "all of this time is lost."
    ),
    find=_find,
)

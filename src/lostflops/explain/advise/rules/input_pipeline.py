"""Most ranks wait for the next batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs import spread
from lostflops.explain.advise.signs.machine import machine
from lostflops.explain.advise.signs.python_share import FEW, LINE, change, is_loading
from lostflops.explain.advise.signs.where import Seen, match_samples

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_LINE: Final = "idle.data"
_SMALLEST: Final = 0.02
"""If waits take a smaller share of a typical rank's time, batches were ready in time."""
_WORKERS: Final = "_MultiProcessingDataLoaderIter"
_TRIED: Final = ("1", "2", "4", "8")
_TIMES: Final = ("2x", "4x")
_NEAR: Final = 0.01
"""The fewest workers are suggested that save all but this part of the step that ready batches would save."""
_LOADERS: Final = "select distinct name from events where kind in ('op', 'annotation') and starts_with(name, '{start}')"


def _find(case: Case) -> Iterator[Claim]:
    share = spread.share(case, _LINE)
    if share < _SMALLEST:
        yield from _without_loader(case)
        return
    found = case.run.rows(_LOADERS.format(start="enumerate(DataLoader)#"))
    has_workers = any(_WORKERS in name for (name,) in found)
    where = match_samples(case.total, _LINE, lambda _: True)
    value = _change(case, has_workers)
    yield Claim(
        cause="input_pipeline",
        what=f"Ranks wait for the next batch {format_share(case.total.share(_LINE))} of their time.",
        taken=spread.attribute_line(case, _LINE),
        evidence=tuple(_evidence(case, where, has_workers)),
        strength=Strength.STRONG,
        certain_if="train on one cached batch, repeated: steps must get shorter by the expected gain.",
        fix=_fix(case, value, where, has_workers),
        changes=(f"data={value}",),
    )


def _without_loader(case: Case) -> Iterator[Claim]:
    """Yield a claim about batches that the training thread makes in the program's own Python code."""
    found = match_samples(case.total, LINE, is_loading)
    if found is None or found.share * spread.share(case, LINE) < FEW:
        return
    place, _ = found.places[0]
    part = format_share(found.share * spread.share(case, LINE))
    yield Claim(
        cause="input_pipeline",
        what=f"Ranks spend {part} of their time making batches in the training loop, most of it at {place}.",
        taken=spread.attribute_line(case, LINE, found.share),
        evidence=(
            Evidence(
                f"{format_share(found.share)} of the time between ops is in functions that make batches "
                f"({found.samples:,} of {found.of:,} stack samples)",
                ranks=tuple(case.lines),
                steps=tuple(sorted(case.total.steps)),
                sources=found.sources,
            ),
        ),
        strength=Strength.FAIR,
        certain_if="train on one cached batch, repeated: steps must get shorter by the expected gain.",
        fix=(
            f"Make batches in workers: move the code at {place} into a Dataset and read it with "
            "DataLoader(dataset, num_workers=2, prefetch_factor=2, persistent_workers=True)."
        ),
        changes=(change(found.share),),
    )


def _change(case: Case, has_workers: bool) -> str:
    """Return the fewest workers that gain about as much as ready batches would; `fixed`, which means ready batches, if
    unknown."""
    best = case.price("data=fixed")
    if best is None:
        return "fixed"
    for value in _TIMES if has_workers else _TRIED:
        found = case.price(f"data={value}")
        if found is not None and found.value >= best.value - _NEAR:
            return value
    return "fixed"


def _evidence(case: Case, where: Seen | None, has_workers: bool) -> Iterator[Evidence]:
    ns, rank, event = case.total.longest.get(_LINE, (0, -1, -1))
    own = sorted((one.lines[_LINE] / (one.wall or 1) for one in case.total.ranks), reverse=True)
    kind = "a DataLoader with workers" if has_workers else "a DataLoader without workers (on the training thread)"
    yield Evidence(
        f"idle.data is {format_share(own[-1])} to {format_share(own[0])} of a rank's time; the longest wait is "
        f"{format_ns(ns)} on rank {rank}, in {kind}",
        events=((rank, event),) if event >= 0 else (),
        ranks=tuple(case.lines),
        steps=tuple(sorted(case.total.steps)),
    )
    if where is not None and where.places:
        place, part = where.places[0]
        yield Evidence(
            f"{format_share(part)} of these waits are at {place} ({where.samples:,} stack samples)",
            sources=where.sources,
        )
    pace = case.timed_steps.pace if case.timed_steps is not None else None
    waited = pace.share("data") if pace is not None else None
    if pace is not None and waited is not None:
        yield Evidence(f"in {pace.settled:,} normal steps, waits for batches take {format_share(waited)} of the step")


def _fix(case: Case, value: str, where: Seen | None, has_workers: bool) -> str:
    pinned = machine(case).pick(gpu=", pin_memory=True")
    options = f"prefetch_factor=2, persistent_workers=True{pinned}"
    if has_workers:
        count = f"{value[:-1]} times as many workers" if value.endswith("x") else "more workers"
        return (
            f"Give the DataLoader {count} (num_workers), with {options} and one core per worker. If no cores are left, "
            "preprocess the data before training, or make reading a sample cheaper."
        )
    workers = value if value.isdecimal() else "8"
    place = f" Then {where.places[0][0]} runs in the workers." if where is not None and where.places else ""
    return f"Use DataLoader(..., num_workers={workers}, {options}), with one core per worker.{place}"


RULE: Final = Rule(
    cause="input_pipeline",
    about=(
        "The model is ready for the next batch, but the batch is not: reading, decoding and collating samples takes "
        "longer than a training step, or runs on the training thread. A faster device would only wait longer."
    ),
    find=_find,
)

"""The device has memory for a larger batch, which would spread the fixed costs of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_share
from lostflops.explain.advise.claim import Claim, NotChecked
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.fullness import device_memory

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_FAR: Final = 0.4
"""The job may use at most this part of the device memory."""
_FIXED: Final = 0.25
"""At least this share of a step must not grow with the batch."""
_MORE_THAN: Final = 4
"""A step must have more samples than this; otherwise `small_batch` applies."""
_FIXED_LINES: Final = ("comm.transfer", "idle.host", "idle.python")
_FILLED: Final = 0.85


def _find(case: Case) -> Iterator[Claim]:
    peak, size = _room(case)
    rows = case.run.rows("select median(samples) from timings where samples is not null")
    samples = rows[0][0]
    if samples is None:
        raise NotChecked("the number of samples in a step was not recorded: record with lostflops run")
    if not case.wall or samples <= _MORE_THAN or peak > _FAR * size:
        return
    update = case.total.phases.get("optimizer", Counter())["compute"]
    fixed = (update + sum(case.total.lines[line] for line in _FIXED_LINES)) / case.wall
    if fixed < _FIXED:
        return
    times = int(_FILLED * size / peak)
    yield Claim(
        cause="larger_batch",
        what=(
            f"A batch {times} times as large fits in memory, and {format_share(fixed)} of the step does not grow with "
            "the batch."
        ),
        taken={},
        evidence=(
            Evidence(
                f"peak memory is {format_bytes(peak)} of {format_bytes(size)} ({format_share(peak / size)}) with "
                f"{samples:,.6g} samples per step and rank",
                steps=tuple(sorted(case.total.steps)),
            ),
            Evidence("the time of communication, the optimizer and the host does not grow with the batch"),
        ),
        strength=Strength.FAIR,
        certain_if="run lostflops fit -- CMD, which measures memory and throughput at other batch sizes.",
        fix=(
            f"Raise batch_size up to {times} times, and scale the learning rate with it. lostflops fit -- CMD finds "
            "the size from which a larger batch is no longer faster."
        ),
    )


def _room(case: Case) -> tuple[int, int]:
    """Return the highest peak of a device over all timed steps, and the smallest memory that a device has, in bytes."""
    rows = case.run.rows("select rank, max(peak_memory) from timings where peak_memory > 0 group by rank")
    sizes = [device_memory(case.run, rank) for rank, _ in rows]
    known = [size for size in sizes if size is not None]
    if not known or len(known) < len(sizes):
        raise NotChecked("the device's memory size, or its use, is unknown")
    return max(peak for _, peak in rows), min(known)


RULE: Final = Rule(
    cause="larger_batch",
    about=(
        "Every step reduces all gradients, updates all parameters and calls every op, whatever the batch size. If most "
        "of the device memory is free, a larger batch spreads this cost over more samples."
    ),
    find=_find,
)

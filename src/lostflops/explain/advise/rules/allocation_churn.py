"""Large temporary tensors are allocated and freed in every step; the operating system maps their pages each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_share, pluralise
from lostflops.explain.advise.claim import Claim, NotChecked
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs import spread
from lostflops.explain.advise.signs.pressure import stretch
from lostflops.explain.advise.signs.series import series

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.series import StepSeries

_LEAST: Final = 0.03
_LEAST_BYTES: Final = 4 << 20
"""If a step maps fewer bytes again, system time has other causes."""
_PAGE: Final = 4096
_FAULT: Final = 250.0
"""A page fault takes at least this much CPU time, in ns: mapping and clearing a page of 4 KiB."""
_KEPT: Final = 0.5
"""If each step keeps at least this part of the mapped memory, this is growth, not churn."""
_MOST_OPS: Final = 3
_ALLOCATING: Final = """
    select name, sum(dur) as ns from events
    where kind = 'op' and step is not null and name in
        ('aten::empty', 'aten::ones', 'aten::zeros', 'aten::zeros_like', 'aten::empty_like', 'aten::fill_', 'aten::cat',
         'aten::clone', 'aten::contiguous', 'aten::_to_copy', 'aten::resize_', 'aten::add', 'aten::mul')
    group by name order by ns desc limit 3"""


def _find(case: Case) -> Iterator[Claim]:
    timed = series(case)
    rows = timed.settled
    whole, system, faults = (timed.column(name)[rows] for name in ("stop - start", "system", "faults"))
    if not (np.isfinite(system).any() and np.isfinite(faults).any()):
        raise NotChecked("system time and page faults were not recorded: record again with this version of Lostflops")
    told = np.isfinite(system).any(axis=0) & np.isfinite(faults).any(axis=0)
    shares = np.nansum(system[:, told], axis=0) / np.nansum(whole[:, told], axis=0)
    mapped = np.nanmedian(faults[:, told], axis=0) * _PAGE
    alone, size = spread.typical(shares.tolist()), spread.typical(mapped.tolist())
    share = min(alone * stretch(case), 0.9)
    if share < _LEAST or size < _LEAST_BYTES or alone * float(np.nanmean(whole)) < _FAULT * size / _PAGE:
        return
    if _growth(timed) >= _KEPT * size:
        return  # pages are new because memory is kept: memory_growth names that
    names = ", ".join(name for name, _ in case.run.rows(_ALLOCATING)[:_MOST_OPS])
    at = f"; allocating ops: {names}" if names else ""
    yield Claim(
        cause="allocation_churn",
        what=f"Allocating and freeing large temporary CPU tensors takes {format_share(share)} of the step.",
        taken=spread.attribute_line(case, "compute", min(share / max(spread.share(case, "compute"), share), 1.0)),
        evidence=(
            Evidence(
                f"each step maps {format_bytes(int(size))} again (page faults of the training thread) and spends "
                f"{format_share(share)} as system time, over {pluralise(int(rows.sum()), 'normal step')}{at}",
                ranks=timed.ranks,
            ),
        ),
        strength=Strength.STRONG,
        certain_if=(
            "run with MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=4294967296 "
            "MALLOC_TOP_PAD_=268435456: page faults and system time per step must fall."
        ),
        fix=(
            "Allocate large temporary tensors once, before the loop, and reuse them (out=, in-place ops). Or use an "
            "allocator that keeps freed memory: LD_PRELOAD=libjemalloc.so (or tcmalloc), or glibc with "
            "MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=4294967296."
        ),
        saving=Estimate.bound(
            share,
            f"system time of the training thread in {int(rows.sum()):,} normal steps, including its waits for a core",
        ),
        instead_of=("host_bound", "unfused"),
    )


def _growth(timed: StepSeries) -> float:
    """Return by how many bytes the memory of a typical rank grows in a step."""
    peaks = timed.column("peak_memory")
    together = np.flatnonzero(timed.settled[1:] & timed.settled[:-1] & (np.diff(timed.step) == 1))
    grown = (peaks[together + 1] - peaks[together]).mean(axis=0) if together.size else np.empty(0)
    known = grown[np.isfinite(grown)].tolist()
    return spread.typical(known) if known else 0.0


RULE: Final = Rule(
    cause="allocation_churn",
    about=(
        "When a large CPU tensor is freed, its memory goes back to the operating system. The next tensor of that size "
        "is mapped again: every page faults on first touch and is zeroed. If each step creates such tensors, the "
        "operating system takes much of the step, and no op shows it."
    ),
    find=_find,
)

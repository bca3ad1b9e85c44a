"""DDP's buckets are too small (latency dominates) or too large (nothing overlaps)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from lostflops.core.errors import NotApplicable
from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_ns, format_share, pluralise
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.hand_made import has_buckets_of, in_hooks, latency_share
from lostflops.explain.advise.signs.traffic import sources, traffic_of
from lostflops.predict.scaling.own_times import NARROW
from lostflops.predict.whatif.graph_edits.each_microbatch import repeated_reductions
from lostflops.predict.whatif.graph_edits.rebucket import MIB
from lostflops.predict.whatif.graph_edits.reductions import select_collectives

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.traffic import Traffic
    from lostflops.predict.graph.tasks import Flags

_SIZES: Final = (1.0, 5.0, 25.0, 100.0)
"""Bucket sizes that are tried, in MiB; 25 is DDP's default."""
_USUAL: Final = 25.0
_LEAST: Final = 1.0
"""No smaller size is tried, in MiB: latency would dominate on every network. DDP's first bucket has this size."""
_NEAR: Final = 0.02
"""Another size is suggested only if it saves at least this part of the step more than DDP's default."""
_SMALLEST: Final = 0.02
_LATE: Final = 0.1
"""Smaller buckets must save at least this part of the step: every job exposes some of its last bucket."""
_LATE_IF_LARGE: Final = 0.05
"""The same if buckets are larger than DDP's default."""
_MANY: Final = 16
_MOSTLY: Final = 0.5
"""If no what-if can price larger buckets, at least this part of the time of many small ones must be latency."""
_FEW: Final = 2
"""Buckets count as large if a step has at most this many: no compute is left to hide the last one."""


def _find(case: Case) -> Iterator[Claim]:
    made = traffic_of(case)
    reduced = made.in_backward & select_collectives(made.graph, "all_reduce")
    rows = made.of(reduced)
    if int(made.exposed[rows].sum()) < _SMALLEST * case.wall or _repeats(made) or in_hooks(case).any():
        return
    if made.is_sharded:
        return  # FSDP has units instead of buckets
    best = _best(case, made.bytes_a_step(rows))
    if best is None:
        if _are_many_small(made, rows) and _latency(case, reduced) >= _MOSTLY:
            yield _claim(case, made, reduced, _USUAL, larger=True)
        return
    each = made.bytes_a_step(rows) / max(made.a_step(rows), 1)
    is_larger = best * MIB > each
    if is_larger and _has_one_bucket_each(case):
        return
    found = case.price(f"bucket_mb={best:g}")
    needed = _LATE_IF_LARGE if each > _USUAL * MIB else _LATE
    if is_larger or (found is not None and found.value >= needed):
        yield _claim(case, made, reduced, best, is_larger)


def _repeats(made: Traffic) -> bool:
    """Return whether every microbatch reduces: that is then the cause, and buckets are judged when it is fixed."""
    try:
        repeated_reductions(made.graph)
    except NotApplicable:
        return False
    return True


def _has_one_bucket_each(case: Case) -> bool:
    """Return whether each DDP model has all gradients in one bucket: no setting makes larger ones."""
    models = [one for one in case.job.get("ddp") or () if isinstance(one, dict)]
    sizes = [str(one.get("rebuilt_bucket_sizes") or one.get("bucket_sizes") or ",") for one in models]
    return bool(sizes) and not any("," in listed for listed in sizes)


def _best(case: Case, whole: int) -> float | None:
    """Return the size that gains most, or DDP's default if that is about as good; None if no size gains."""
    part = round(whole / 8 / MIB, 2)
    asked = sorted({*_SIZES, *((part,) if part >= _LEAST else ())})
    gains: dict[float, float] = {}
    for size in asked:
        if (size * MIB > 4 * whole and size > _USUAL) or has_buckets_of(case, size):
            continue
        found = case.price(f"bucket_mb={size:g}")
        if found is not None:
            gains[size] = found.value
    if not gains or max(gains.values()) <= 0:
        return None
    best = max(gains, key=lambda size: gains[size])
    if gains.get(_USUAL, -1.0) >= gains[best] - _NEAR:
        best = _USUAL
    return best


def _are_many_small(made: Traffic, rows: Flags) -> bool:
    return made.a_step(rows) >= _MANY and int(made.size[rows].max()) < _USUAL * MIB / NARROW


def _latency(case: Case, reduced: Flags) -> float:
    return latency_share(case, reduced) or 0.0


def _claim(case: Case, made: Traffic, reduced: Flags, size: float, larger: bool) -> Claim:
    rows = made.of(reduced)
    count, whole = made.a_step(rows), made.bytes_a_step(rows)
    each = format_bytes(round(whole / max(count, 1)))
    latency = latency_share(case, reduced)
    if larger:
        what = f"DDP reduces gradients in {count:.0f} small buckets of {each} per step, and each pays the latency."
    elif count <= _FEW:
        buckets = pluralise(round(count), "large bucket")
        what = f"DDP reduces gradients in {buckets} of {each} per step: little can overlap."
    else:
        what = f"The last of {count:.0f} gradient buckets ({each}) starts late, and no compute is left to hide it."
    steps = max(len(made.graph.steps), 1)
    # Buckets of one size do not show how much of their time is latency: less is no evidence for larger ones.
    is_shown = larger and latency is not None and latency >= _MOSTLY
    says = f"; about {format_share(latency or 0.0)} of this time is latency" if is_shown else ""
    return Claim(
        cause="bucket_size",
        what=what,
        taken=made.attribute(rows),
        evidence=(
            Evidence(
                f"{count:.3g} all-reduces per step in the backward pass ({format_bytes(whole)}) take "
                f"{format_ns(int(made.took[rows].sum()) // steps)}; compute hides "
                f"{format_share(made.share_hidden(rows))}{says}",
                events=made.examples(rows),
                steps=made.steps(rows),
                sources=sources(case.run, made, rows),
            ),
            *_cite_bucket_cap(case),
        ),
        strength=Strength.STRONG,
        certain_if="run lostflops whatif RUN --tune bucket_mb, then record the job with the size that it suggests.",
        fix=f"Use DistributedDataParallel(model, bucket_cap_mb={size:g}, gradient_as_bucket_view=True).",
        **_price(case, made, reduced, size, is_sure=not larger),
    )


def _price(case: Case, made: Traffic, reduced: Flags, size: float, *, is_sure: bool) -> dict[str, Any]:
    """Return the what-if that prices the size. Many small buckets of one size do not show how long a large bucket
    takes: the limit is then their whole exposed time."""
    rows = made.of(reduced)
    change = f"bucket_mb={size:g}"
    found = case.price(change)
    if is_sure or found is None or found.value > _LATE or not _are_many_small(made, rows):
        return {"changes": (change,)}
    return {"saving": Estimate.bound(int(made.exposed[rows].sum()) / case.wall, "the exposed time of these buckets")}


def _cite_bucket_cap(case: Case) -> Iterator[Evidence]:
    for one in case.job.get("ddp") or ():
        if isinstance(one, dict) and (cap := one.get("bucket_cap_bytes")):
            is_default = cap == _USUAL * MIB
            said = "DDP's default of 25 MB buckets applies" if is_default else f"DDP uses bucket_cap_mb={cap / MIB:.3g}"
            yield Evidence(said)


RULE: Final = Rule(
    cause="bucket_size",
    about=(
        "DDP reduces gradients in buckets during the backward pass. Every bucket pays the latency, so many small "
        "buckets take longer than a few large ones. But a bucket can start only when its last gradient is ready, so a "
        "large bucket starts late, and the optimizer waits for it."
    ),
    find=_find,
)

"""Which kernels take the time of the device, and for which does it wait?

Time is summed over kernels, so two that run at the same time count twice; shares are of that sum. The launch gap of a
kernel is the time for which the device was idle while the host dispatched and launched it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.kernel_classes import CLASSES
from lostflops.account.facts.kernel_names import short, short_apart
from lostflops.account.ledger.answers import kernel_totals
from lostflops.account.ledger.by_rank import Progress
from lostflops.account.ledger.kernel_sums import KernelSum, KernelSums
from lostflops.account.ledger.roofline import OpRoofline
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.windows import WindowKind
from lostflops.account.ledger.work import RankWork
from lostflops.core.results import Field, Pair, Pairs, Result, Table
from lostflops.core.units import format_share, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_KERNELS: Final = 20
_IN_A_SENTENCE: Final = 80
"""Names in a sentence have at most this many characters: names of one family differ in their last ones."""


def kernels(
    run: Run,
    *,
    window: WindowKind | None = None,
    ranks: Sequence[int] = (),
    steps: Sequence[int] = (),
    limit: int = MOST_KERNELS,
    full_names: bool = False,
    progress: Progress | None = None,
) -> Result:
    asked = scope(run, window, ranks, steps)
    found = kernel_totals(run, asked, progress)
    sums, work = found.sums, found.work
    total = _total(sums.values())
    roofs = OpRoofline.of(run, asked, work, found.computed)
    pictures = roofs.plot(), roofs.table()
    return Result(
        name="kernels",
        title="Kernels",
        verdict=_verdict(sums, total),
        blocks=(
            _by_class(sums, total),
            _by_name(sums, total, limit, full_names=full_names),
            _use(work, total, found.wall, found.busy),
            *(pictures if roofs.ops else ()),
        ),
        notes=tuple(roofs.notes()),
        more=() if roofs.ops else pictures,
    )


def _total(sums: Iterable[KernelSum]) -> KernelSum:
    total = KernelSum()
    for one in sums:
        total.add(one)
    return total


def _verdict(sums: KernelSums, total: KernelSum) -> str:
    if not total.count:
        return "No kernel ran in this window."
    (_, name), most = max(sums.items(), key=lambda item: item[1].ns)
    says = f"{short(name, _IN_A_SENTENCE)} takes {format_share(most.ns / (total.ns or 1))} of their time"
    return f"{pluralise(total.count, 'kernel')} ({pluralise(len(sums), 'name')}); {says}."


def _by_class(sums: KernelSums, total: KernelSum) -> Table:
    classes = {name: _total(one for (kind, _), one in sums.items() if kind == name) for name in CLASSES}
    ordered = sorted(classes.items(), key=lambda item: -item[1].ns)
    rows = tuple(
        (name, own.count, own.ns, own.ns / (total.ns or 1), own.gap_ns, own.mean_occupancy)
        for name, own in ordered
        if own.count
    )
    fields = (
        Field("class"),
        Field("count", "count"),
        Field("ns", "ns", "time"),
        Field("share", "share"),
        Field("gap_ns", "ns", "launch gaps"),
        Field("occupancy", "share"),
    )
    return Table("classes", "By class", fields, rows)


def _by_name(sums: KernelSums, total: KernelSum, limit: int, *, full_names: bool) -> Table:
    ordered = sorted(sums.items(), key=lambda item: -item[1].ns)
    cut = short_apart([name for (_, name), _ in ordered[:limit]])
    fields = (
        Field("short", label="kernel", shown=not full_names),
        Field("name", label="kernel", shown=full_names),
        Field("class", shown=False),
        Field("count", "count"),
        Field("ns", "ns", "time"),
        Field("share", "share"),
        Field("gap_ns", "ns", "gaps"),
        Field("occupancy", "share", shown=False),
    )
    rows = tuple(
        (shown, name, kind, one.count, one.ns, one.ns / (total.ns or 1), one.gap_ns, one.mean_occupancy)
        for shown, ((kind, name), one) in zip(cut, ordered, strict=False)
    )
    return Table("kernels", "By name", fields, rows, len(ordered) - len(rows))


def _use(work: RankWork, total: KernelSum, wall: int, busy: int) -> Pairs:
    told = work.tensor_ns + work.plain_ns
    return Pairs(
        "device",
        "Device use",
        (
            Pair("busy", busy / wall if wall else None, "share", "device busy"),
            Pair("launch_gap_ns", total.gap_ns, "ns", "lost to launch gaps"),
            Pair("launch_gap_share", total.gap_ns / wall if wall else None, "share", "share of wall"),
            Pair("tensor_core_share", work.tensor_ns / told if told else None, "share", "matmul time on tensor cores"),
            Pair(
                "tensor_core_unknown",
                1 - told / work.matmul_ns if work.matmul_ns else None,
                "share",
                "matmul time, tensor cores unknown",
            ),
            Pair("occupancy", total.mean_occupancy, "share", "mean occupancy"),
        ),
    )

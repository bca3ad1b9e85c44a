"""The roofline: FLOP rate of ops by FLOP per byte, compared with the limits of the device.

FLOPs follow from recorded shapes. Bytes do too, each input and output once: a lower bound, since caches may not hold
what is read twice, so FLOP per byte is an upper bound. Ops of which either is unknown are not drawn, and their time is
counted. A roof is the dense peak of a dtype, and left of its edge the limit of memory bandwidth. An op's share of it is
the least time that its shapes need, divided by their measured time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from lostflops.account.facts.devices import Device
from lostflops.account.ledger.mfu import device_of
from lostflops.account.ledger.scope import Scope
from lostflops.account.ledger.work import RankWork
from lostflops.core.results import Field, Plot, Series, Table, Value
from lostflops.core.units import format_share

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_OPS: Final = 12
MOST_POINTS: Final = 300
"""Most shapes of an op that are drawn: those that take most time."""
_NS_PER_SECOND: Final = 1e9
_FLOPS_PER_NS: Final = 1e3
"""1 TFLOPS is 1000 FLOP per ns."""
_MARGIN: Final = 4.0
"""Factor by which roofs are drawn beyond the outermost points."""
_LEAST_NOTED: Final = 0.02


class OpsDone(NamedTuple):
    """All calls of one shape; a call that a window cuts counts in part."""

    calls: float
    ns: int
    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """FLOP per ns."""
        return self.flops / self.ns


@dataclass(slots=True)
class OpWork:
    """All shapes of an op with one dtype."""

    op: str
    dtype: str
    shapes: list[OpsDone] = field(default_factory=list)

    @property
    def whole(self) -> OpsDone:
        return OpsDone(*map(sum, zip(*self.shapes, strict=True)))


@dataclass(frozen=True, slots=True)
class OpRoofline:
    """Ops of a run, and the device whose roofs they are compared with."""

    ops: tuple[OpWork, ...]
    """Ops with most time first."""
    device: Device | None
    known_ns: int
    """Time of `ops`."""
    compute_ns: int
    """Time of all compute."""

    @classmethod
    def of(cls, run: Run, asked: Scope, work: RankWork, compute_ns: int) -> OpRoofline:
        found: dict[tuple[str, str], OpWork] = {}
        for effort, (count, ns) in work.efforts.items():
            moved = effort.work.bytes
            if not (ns and moved and effort.flops):
                continue
            own = found.setdefault((effort.op, effort.work.dtype), OpWork(effort.op, effort.work.dtype))
            own.shapes.append(OpsDone(count, ns, effort.flops * count, moved * count))
        ops = tuple(sorted(found.values(), key=lambda one: (-one.whole.ns, one.op, one.dtype)))
        return cls(ops, device_of(run, asked), sum(one.whole.ns for one in ops), compute_ns)

    def peak(self, dtype: str) -> float | None:
        """Return the peak in FLOP per ns; None if it is unknown."""
        tflops = None if self.device is None else self.device.peaks.get(dtype)
        return None if tflops is None else tflops * _FLOPS_PER_NS

    def least(self, one: OpWork) -> tuple[float, float] | None:
        """Return the least time that the device needs for an op, and its part in memory-bound shapes, in ns.

        None if a peak or the memory bandwidth is unknown.
        """
        peak, memory = self.peak(one.dtype), None if self.device is None else self.device.memory_gbs
        if peak is None or memory is None:
            return None
        needs = [(shape.flops / peak, shape.bytes / memory) for shape in one.shapes]
        return sum(map(max, needs)), sum(moving for computing, moving in needs if moving > computing)

    def plot(self) -> Plot:
        series = (*self._build_op_series(), *self._roofs())
        axes = (
            Field("flop_per_byte", "count", "FLOP per byte, at most"),
            Field("flop_per_second", "flops", "rate"),
        )
        return Plot("roofline", "Roofline, by op and shape", *axes, series)

    def _build_op_series(self) -> Iterator[Series]:
        for one in self.ops[:MOST_OPS]:
            shapes = sorted(one.shapes, key=lambda shape: -shape.ns)[:MOST_POINTS]
            points = tuple((shape.intensity, shape.rate * _NS_PER_SECOND) for shape in shapes)
            yield Series(f"{one.op} {one.dtype}", "marks", points)

    def _roofs(self) -> Iterator[Series]:
        places = [shape.intensity for one in self.ops for shape in one.shapes]
        for dtype in sorted({one.dtype for one in self.ops}):
            peak = self.peak(dtype)
            if peak is None or self.device is None:
                continue
            memory = self.device.memory_gbs
            low, high = min(places) / _MARGIN, max(places) * _MARGIN
            edges = {low, high} if memory is None else {low, high, min(max(peak / memory, low), high)}
            roof = [(x, min(peak, memory * x) if memory else peak) for x in sorted(edges)]
            name = f"{dtype} peak {peak / _FLOPS_PER_NS:g} TFLOPS" + (f", memory {memory:g} GB/s" if memory else "")
            yield Series(name, "line", tuple((x, y * _NS_PER_SECOND) for x, y in roof))

    def table(self) -> Table:
        fields = (
            Field("op"),
            Field("dtype"),
            Field("calls", "count", shown=False),
            Field("ns", "ns", "time"),
            Field("flop", "flop", shown=False),
            Field("least_bytes", "bytes", shown=False),
            Field("flop_per_byte", "rate", "FLOP/byte"),
            Field("flop_per_second", "flops", "rate"),
            Field("of_peak", "share", "of peak", shown=False),
            Field("of_roof", "share", "of roof"),
            Field("bound", label="bound by"),
        )
        rows = tuple(self._row(one) for one in self.ops)
        return Table("roofline_ops", "Roofline by op", fields, rows, most_shown=MOST_OPS)

    def _row(self, one: OpWork) -> tuple[Value, ...]:
        whole, peak, least = one.whole, self.peak(one.dtype), self.least(one)
        bound = None if least is None else "memory" if 2 * least[1] > least[0] else "compute"
        rates = whole.intensity, round(whole.rate * _NS_PER_SECOND)
        shares = None if peak is None else whole.rate / peak, None if least is None else least[0] / whole.ns
        return (one.op, one.dtype, *map(round, whole), *rates, *shares, bound)

    def notes(self) -> Iterator[str]:
        if not self.ops:
            if self.compute_ns:
                yield "No roofline: no op has recorded shapes with known FLOPs. Record with record_shapes=True."
            return
        unknown = 1 - self.known_ns / self.compute_ns if self.compute_ns else 0.0
        if unknown > _LEAST_NOTED:
            share = format_share(unknown)
            yield f"{share} of compute is not in the roofline: the FLOPs or bytes of its ops are unknown."
        if missing := sorted({one.dtype for one in self.ops if self.peak(one.dtype) is None}):
            yield f"The device's peak for {', '.join(missing)} is unknown, so the roofline has no roof for it."
        above = self._above()
        if above:
            yield f"Above the peak: {', '.join(above)}, because kernels that run at the same time share their time."
        if cached := [one.op for one in self.ops if one.op not in above and self._is_over(one)]:
            why = "because data is in caches, or kernels run at the same time."
            yield f"Above the memory bandwidth: {', '.join(cached)}, {why}"

    def _is_over(self, one: OpWork) -> bool:
        least = self.least(one)
        return least is not None and least[0] > one.whole.ns

    def _above(self) -> Sequence[str]:
        return [one.op for one in self.ops if (peak := self.peak(one.dtype)) is not None and one.whole.rate > peak]

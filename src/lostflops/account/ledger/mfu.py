"""The MFU waterfall: from 100% of the device's peak down to the FLOPs of the model, in bars that sum.

MFU = time that the model FLOPs need at the dense peak / (wall x ranks). FLOPs of each dtype need theirs: at the peak of
one of them, a step of bf16 and fp8 would reach too much or too little. HFU (hardware FLOPs utilization) has all counted
FLOPs instead, also those that activation checkpointing and the backward pass of flash attention repeat: HFU is at least
MFU. An unknown peak, or too little known work, makes both unknown: there is no default. The bars then end with compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.devices import Device, find_device
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.scope import Scope
from lostflops.account.ledger.total import RunLedger
from lostflops.account.ledger.work import MATMUL_CLASSES, Effort, RankWork
from lostflops.core.results import Bar, Waterfall
from lostflops.core.units import format_flop, format_share, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_UNCOUNTED: Final = 0.05
"""Share of matmul-class time without known FLOPs above which counted FLOPs say nothing."""
_FLOPS_PER_NS: Final = 1e3
"""1 TFLOPS is 1000 FLOP per ns."""

_MARK_STEPS: Final = "Mark steps with profiler.step() in the training loop."
COUNTED: Final = (
    "FLOPs counted from recorded shapes of matmul, convolution and attention ops (multiply-add is 2; causal attention "
    "not halved; embeddings, other ops and recomputation not counted)"
)


@dataclass(frozen=True, slots=True)
class Claims:
    """Figures that the user states."""

    peak_tflops: float | None = None
    """Peak of one device."""
    model_flops: float | None = None
    """FLOPs of one step of the whole job."""
    tokens: float | None = None
    """Tokens of one step of the whole job."""
    samples: float | None = None
    """Samples of one step of the whole job."""


@dataclass(frozen=True, slots=True)
class _Peaks:
    rates: Mapping[str, float]
    """FLOP per ns by dtype; the few FLOPs of a dtype without a known peak do not count."""
    mean: float
    """FLOP per ns of the counted mix of dtypes."""
    memory_gbs: float | None
    words: str
    convention: str

    def time(self, effort: Effort, flops: float) -> float:
        """Return the ns that FLOPs of this kind need at peak."""
        rate = self.rates.get(effort.work.dtype)
        return 0.0 if rate is None else flops / rate


class _Unknown(Exception):
    """Raised if MFU is unknown; the message says why and what to do."""


def waterfall(run: Run, asked: Scope, total: RunLedger, claims: Claims) -> Waterfall:
    title = "From peak to model FLOPs (MFU)"
    lost = {line: total.lines[line] for line in LINES if line != "compute" and total.lines[line]}
    if not total.total_ns:
        return Waterfall("mfu", title, None, "no time was recorded", "", ())
    try:
        value, inside, convention = _inside_compute(run, asked, total, claims)
    except _Unknown as unknown:
        bars = (*_bars(lost, total.total_ns), Bar("compute", 100 * total.share("compute")))
        return Waterfall("mfu", title, None, f"MFU is unknown: {unknown}", "", bars)
    bars = (*_bars({**lost, **inside}, total.total_ns), Bar("mfu", 100 * value))
    return Waterfall("mfu", title, value, "", convention, bars)


def hfu(run: Run, asked: Scope, total: RunLedger, claims: Claims) -> float | None:
    """Return the share of the peak FLOPs that devices did, model or not; None if unknown. A user's `model_flops` do not
    say what was repeated, so counted FLOPs are used."""
    if not total.total_ns or _several_devices(run, asked):
        return None
    try:
        peaks = _peaks(run, asked, total.work, claims)
        _check_counted(total)
    except _Unknown:
        return None
    at_peak = _at_peak(total.work, peaks)
    return at_peak / total.total_ns if at_peak <= total.work.matmul_ns else None


def _at_peak(work: RankWork, peaks: _Peaks) -> float:
    """Return the time that all FLOPs need at peak, in ns."""
    return sum(peaks.time(effort, effort.flops) * count for effort, (count, _) in work.efforts.items())


def _bars(ns: dict[str, float] | dict[str, int], whole: int) -> tuple[Bar, ...]:
    return tuple(Bar(name, 100 * length / whole) for name, length in ns.items() if length > 0)


def _inside_compute(run: Run, asked: Scope, total: RunLedger, claims: Claims) -> tuple[float, dict[str, float], str]:
    """Return MFU, the bars inside compute in ns, and the convention; raise `_Unknown` if MFU is unknown."""
    if several := _several_devices(run, asked):
        raise _Unknown(f"rank {several} uses several devices, which share one ledger")
    peaks = _peaks(run, asked, total.work, claims)
    compute = total.lines["compute"]
    if claims.model_flops is not None:
        return _compute_given_mfu(run, total, claims.model_flops, peaks)
    _check_counted(total)
    model = sum(peaks.time(effort, effort.model_flops) * count for effort, (count, _) in total.work.efforts.items())
    done, spent = _at_peak(total.work, peaks), total.work.matmul_ns
    if done > spent:
        raise _Unknown(
            f"at {peaks.words}, {format_flop(round(sum(_flops_by_dtype(total.work).values())))} would take "
            f"{format_share(done / (spent or 1))} of the time of matmul, attention and convolution kernels. The "
            "peak is not that of this device, or part of the work ran in a faster dtype: give the right peak with "
            "--peak-tflops."
        )
    inside = {
        "compute.no_model_flops": float(compute - spent),
        "compute.recomputation": done - model,
        **_below_peak(total.work, spent - done, peaks),
    }
    return model / total.total_ns, inside, f"{COUNTED}, over {peaks.convention}."


def _compute_given_mfu(
    run: Run, total: RunLedger, per_step: float, peaks: _Peaks
) -> tuple[float, dict[str, float], str]:
    """Compute MFU from the user's FLOPs of a step, shared evenly by the ranks of the job."""
    if not total.step_count:
        raise _Unknown(f"--model-flops is per step, and the window has no steps. {_MARK_STEPS}")
    ranks = run.world_size
    needed = per_step / ranks * total.step_count / peaks.mean
    classes = total.parts.get("compute", Counter())
    flopless = sum(ns for name, ns in classes.items() if name not in (*MATMUL_CLASSES, "other"))
    could = total.lines["compute"] - flopless
    if needed > could:
        raise _Unknown(
            f"at {peaks.words}, {format_flop(round(per_step))} per step on {pluralise(ranks, 'rank')} would "
            f"take {format_share(needed / (could or 1))} of the time of all kernels that can do FLOPs. Check "
            "--model-flops (for one step of all ranks together) and --peak-tflops."
        )
    inside = {"compute.no_model_flops": float(flopless), "compute.below_peak": could - needed}
    given = f"{format_flop(round(per_step))} per step on {pluralise(ranks, 'rank')} (given)"
    convention = f"{given}, over {peaks.convention}."
    return needed / total.total_ns, inside, convention


def _peaks(run: Run, asked: Scope, work: RankWork, claims: Claims) -> _Peaks:
    """Return the peak of each dtype; raise `_Unknown` if too many FLOPs have none."""
    device = device_of(run, asked)
    memory = device.memory_gbs if device else None
    if claims.peak_tflops is not None:
        rates = dict.fromkeys(_flops_by_dtype(work), claims.peak_tflops * _FLOPS_PER_NS)
        given = f"{claims.peak_tflops:g} TFLOPS"
        return _Peaks(rates, claims.peak_tflops * _FLOPS_PER_NS, memory, given, f"a peak of {given} (given)")
    if device is None:
        raise _Unknown(f"{_device_reason(run, asked)}. Give the dense peak of one device with --peak-tflops.")
    flops = _flops_by_dtype(work)
    if not flops:
        raise _Unknown(
            "no op with shapes shows the dtype. Record with record_shapes=True, and without CUDA graphs: they replay "
            "kernels without ops. Or give --peak-tflops and --model-flops."
        )
    rates = {dtype: device.peaks[dtype] * _FLOPS_PER_NS for dtype in flops if dtype in device.peaks}
    if len(flops) > 1:
        faster = _find_faster(work, rates)
        rates = {dtype: rate for dtype, rate in rates.items() if dtype not in faster}
    unknown = [dtype for dtype in flops if dtype not in rates]
    if unknown and (not rates or sum(flops[dtype] for dtype in unknown) > MOST_UNCOUNTED * sum(flops.values())):
        raise _Unknown(
            f"the {' and '.join(unknown)} peak of {device.name} is not confirmed, or products ran in a faster dtype "
            "than they name. Give the peak with --peak-tflops."
        )
    if not any(flops[dtype] for dtype in rates):
        raise _Unknown("all counted products have empty shapes, so they do no FLOPs.")
    mean = sum(flops[dtype] for dtype in rates) / sum(flops[dtype] / rate for dtype, rate in rates.items())
    return _Peaks(rates, mean, memory, *_describe_peaks(device, flops, list(rates)))


def _find_faster(work: RankWork, rates: Mapping[str, float]) -> set[str]:
    """Return dtypes whose FLOPs need more time at their peak than their kernels took, such as fp32 done in tf32."""
    needed, spent = Counter[str](), Counter[str]()
    for effort, (count, ns) in work.efforts.items():
        needed[effort.work.dtype] += int(effort.flops * count / rates.get(effort.work.dtype, inf))
        spent[effort.work.dtype] += ns
    uncounted = work.matmul_ns - work.counted_ns
    return {dtype for dtype, ns in needed.items() if ns > spent[dtype] + uncounted}


def _describe_peaks(device: Device, flops: Mapping[str, float], known: Sequence[str]) -> tuple[str, str]:
    """Return the peaks in a few words, and the convention."""
    whole = sum(flops.values())
    if len(known) == 1:
        (dtype,) = known
        words = f"{device.peaks[dtype]:g} TFLOPS"
        convention = f"the dense {dtype} peak of {device.name}, {words} ({device.source})"
    else:
        words = "the peaks of " + " and ".join(known)
        listed = ", ".join(f"{format_share(flops[d] / whole)} in {d} at {device.peaks[d]:g} TFLOPS" for d in known)
        convention = f"the dense peaks of {device.name} ({device.source}), each dtype over its own: {listed}"
    left = "".join(
        f"; {d} ({format_share(flops[d] / whole)}) not counted: its peak is unknown" for d in flops if d not in known
    )
    return words, convention + left


def _flops_by_dtype(work: RankWork) -> dict[str, float]:
    """Return counted FLOPs by dtype, those with most first."""
    flops: dict[str, float] = {}
    for effort, (count, _) in work.efforts.items():
        flops[effort.work.dtype] = flops.get(effort.work.dtype, 0.0) + effort.flops * count
    return dict(sorted(flops.items(), key=lambda one: -one[1]))


def _several_devices(run: Run, asked: Scope) -> int | None:
    """Return a rank whose process drives more than one device, or None."""
    chosen = ", ".join(map(str, asked.ranks))
    found = run.rows(
        f"""select rank from lanes where kind = 'stream' and rank in ({chosen})
            group by rank having count(distinct device) > 1 order by rank limit 1"""
    )
    return int(found[0][0]) if found else None


def _device_names(run: Run, asked: Scope) -> list[str | None]:
    chosen = ", ".join(map(str, asked.ranks))
    return [name for (name,) in run.rows(f"select distinct device from ranks where rank in ({chosen})")]


def device_of(run: Run, asked: Scope) -> Device | None:
    """Return the device of these ranks if they have one kind of a known name; else None."""
    names = _device_names(run, asked)
    return find_device(names[0]) if len(names) == 1 and names[0] else None


def _device_reason(run: Run, asked: Scope) -> str:
    names = sorted(name or "no accelerator" for name in _device_names(run, asked))
    if len(names) > 1:
        return f"ranks have different devices ({', '.join(names)})"
    return f"the peak of {names[0]!r} is unknown" if names != ["no accelerator"] else "the trace names no accelerator"


def _check_counted(total: RunLedger) -> None:
    work = total.work
    if not work.efforts:
        raise _Unknown("no op has recorded shapes. Record with record_shapes=True, or give --model-flops.")
    uncounted = 1 - work.counted_ns / work.matmul_ns if work.matmul_ns else 1.0
    if uncounted > MOST_UNCOUNTED:
        raise _Unknown(
            f"the FLOPs of {format_share(uncounted)} of matmul-class time are unknown (custom ops, variable-length "
            "attention, Triton kernels, CUDA graphs, ops without shapes, or launches before the recording). "
            + ("Give the FLOPs of one step with --model-flops." if total.step_count else _MARK_STEPS)
        )


def _below_peak(work: RankWork, slack: float, peaks: _Peaks) -> dict[str, float]:
    """Return the time of matmul-class kernels beyond that at peak, in ns.

    Their shapes move bytes, which bounds some of them; an op cannot be charged for more than it took. Without a known
    memory bandwidth the time cannot be split.
    """
    if peaks.memory_gbs is None:
        return {"compute.below_peak": slack}
    total = 0.0
    for effort, (count, ns) in work.efforts.items():
        at_peak = peaks.time(effort, effort.flops)
        at_bandwidth = effort.work.bytes / peaks.memory_gbs
        total += count * max(0.0, min(at_bandwidth, ns / count) - at_peak)
    bound = min(total, slack)
    return {"compute.bandwidth_bound": bound, "compute.below_achievable": slack - bound}

"""Memory and throughput against batch size as a result."""

from __future__ import annotations

from typing import Final

from lostflops.core.results import Block, Field, Figure, Pair, Pairs, Result, Table, Value
from lostflops.core.units import format_bytes, format_count, format_share
from lostflops.predict.fit.batches import FitResult
from lostflops.predict.fit.peaks import LINEAR, Peaks
from lostflops.predict.fit.room import Room
from lostflops.predict.fit.step_times import NEAR, ValueRange

_REACH: Final = 64
"""Nothing is predicted for batches larger than this many times the largest measured size."""
_FAR: Final = 4
"""An answer larger than this many times the largest measured size is called far from the measurement."""


def result(found: FitResult, name: str, room: Room | None, notes: tuple[str, ...] = ()) -> Result:
    """Build the result; `name` is the argument or variable that is the batch size."""
    blocks: list[Block] = [_curve(found, room)]
    if found.peaks is not None:
        blocks.append(_owners(found, found.peaks))
        blocks += [_largest(found.peaks, room)] if room is not None else []
    if found.times is not None:
        blocks.append(_throughput(found))
    return Result(
        name="fit",
        title="Memory and throughput by batch size",
        verdict=" ".join(filter(None, (_of_memory(found), _of_room(found, room), _of_throughput(found)))),
        blocks=tuple(blocks),
        notes=(*notes, *_notes(found, room)),
        more=(Figure("argument", name), Figure("sizes", tuple(run.batch for run in found.runs))),
    )


def _of_memory(found: FitResult) -> str:
    if found.peaks is None:
        return found.unknown[0]
    lines = found.peaks
    if lines.error is not None and not lines.is_linear:
        return (
            "Peak memory does not grow linearly with the batch size: predicting one size from the others is off by up "
            f"to {format_share(lines.error)}. Other sizes cannot be predicted."
        )
    row = lines.line(found.runs[-1].batch)
    fixed, each = sum(one for _, one, _ in row), sum(one for *_, one in row)
    sure = (
        "two sizes are not enough to check that"
        if lines.error is None
        else f"predicting each size from the others is off by at most {format_share(lines.error)}"
    )
    return f"Peak memory is {format_bytes(fixed)} plus {format_bytes(round(each))} per sample; {sure}."


def _of_room(found: FitResult, room: Room | None) -> str:
    lines = found.peaks
    if lines is None or room is None:
        return ""
    size = format_bytes(room.capacity)
    if lines.error is not None and not lines.is_linear:
        fitting = [batch for batch, held in zip(lines.sizes, lines.measured, strict=True) if held <= room.bytes]
        return f"The largest measured batch that fits {size} is {fitting[-1]}." if fitting else ""
    likely, sure = lines.largest(room.bytes, is_sure=False), lines.largest(room.bytes, is_sure=True)
    if likely is None:
        return f"The peak does not grow with the batch, so {size} does not limit it."
    if not likely:
        return f"Not even a batch of 1 fits {size}."
    if likely > _REACH * lines.sizes[-1]:
        return f"{size} is far above the measured peaks: give larger --sizes to find out what fits."
    told = f"The largest batch that fits {size} is {likely:,}"
    if lines.error is not None and sure != likely:
        told += (
            f", or {sure:,} at the high end of the interval"
            if sure
            else ", but at the high end of the interval none fits"
        )
    return f"{told}."


def _of_throughput(found: FitResult) -> str:
    if found.times is None:
        return found.unknown[-1] if found.unknown else ""
    if found.times.is_linear is False:
        return (
            "Step time does not grow linearly with the batch size (one size is off by "
            f"{format_share(found.times.off or 0)}), so throughput at other sizes cannot be predicted."
        )
    near, most = found.times.near, found.times.asymptote
    if near is None or most is None:
        return "Step time does not clearly grow with the batch: larger batches may reach a higher throughput."
    best = format_count(round(most.value * found.each))
    at_least = max(1, round(near.value))
    return (
        f"Batch {at_least:,} ({round(near.low):,} to {round(near.high):,}) reaches {NEAR:.0%} of the throughput limit "
        f"of large batches ({best} samples/s)."
    )


def _curve(found: FitResult, room: Room | None) -> Table:
    fields = (
        Field("batch", "count"),
        Field("measured", shown=False),
        Field("peak", "bytes"),
        Field("peak_low", "bytes", shown=False),
        Field("peak_high", "bytes", "at most"),
        Field("measured_peak", "bytes", "measured"),
        Field("step_ns", "ns", "step"),
        Field("measured_step_ns", "ns", shown=False),
        Field("rate", "rate", "samples/s"),
        Field("rate_low", "rate", "at least"),
        Field("rate_high", "rate", shown=False),
        Field("fits", label="fits", shown=room is not None),
    )
    return Table("curve", "By batch size", fields, tuple(_row(found, batch, room) for batch in _batches(found, room)))


def _row(found: FitResult, batch: int, room: Room | None) -> tuple[Value, ...]:
    run = next((run for run in found.runs if run.batch == batch), None)
    height = held = step = rate = None
    if found.peaks is not None:
        if run is not None:
            held = found.peaks.measured[found.peaks.sizes.index(batch)]
        if found.peaks.error is None or found.peaks.is_linear:
            height = found.peaks.at(batch)
    if found.times is not None and found.times.is_told(batch):
        step, rate = found.times.step_ns(batch), found.times.rate(batch)
    took = run.time.ns if run and run.time else None
    shown = height.bytes if height else held
    fits = None
    if room is not None and shown is not None:
        high = height.high if height and height.high is not None else shown
        fits = "yes" if high <= room.bytes else "no" if shown > room.bytes else "maybe"
    each = found.each
    own = 1e9 * batch * each / took if took else None
    return (
        batch,
        run is not None,
        shown,
        height.low if height else None,
        height.high if height else None,
        held,
        round(step.value) if step else round(took) if took else None,
        round(took) if took else None,
        rate.value * each if rate else own,
        rate.low * each if rate else None,
        rate.high * each if rate else None,
        fits,
    )


def _batches(found: FitResult, room: Room | None) -> list[int]:
    """Return the measured batch sizes, sizes around them, and the largest that fit."""
    sizes = {run.batch for run in found.runs}
    lines, is_known = found.peaks, False
    if lines is not None:
        is_known = lines.error is None or lines.is_linear
    if not is_known and (found.times is None or found.times.is_linear is False):
        return sorted(sizes)
    largest = max(sizes)
    around = {min(sizes) // 2, 2 * largest, 4 * largest}
    if is_known and lines is not None and room is not None:
        around |= {_within_reach(lines, room, is_sure=sure) or 0 for sure in (True, False)}
    return sorted(one for one in sizes | around if one > 0)


def _within_reach(lines: Peaks, room: Room, *, is_sure: bool) -> int | None:
    """Return the largest batch that fits; None if it is not limited, or too far from the measured sizes to predict."""
    found = lines.largest(room.bytes, is_sure=is_sure)
    return found if found is not None and found <= _REACH * lines.sizes[-1] else None


def _owners(found: FitResult, lines: Peaks) -> Table:
    batch = found.runs[-1].batch
    height = lines.at(batch)
    rows = tuple(
        (owner.value, fixed, each, height.owners[owner]) for owner, fixed, each in lines.line(batch) if fixed or each
    )
    fields = (
        Field("owner"),
        Field("fixed", "bytes", "fixed"),
        Field("each", "bytes", "per sample"),
        Field("bytes", "bytes", f"at batch {batch}"),
    )
    memory = found.memories[-1]
    where = f"rank {memory.rank}, {memory.device}"
    moment = ", ".join(filter(None, (height.moment.phase, height.moment.site[1], height.moment.site[2])))
    title = f"Memory at the peak on {where}" + (f" ({moment})" if moment else "")
    return Table("owners", title, fields, tuple((name, fixed, round(each), held) for name, fixed, each, held in rows))


def _largest(lines: Peaks, room: Room) -> Pairs:
    is_known = lines.error is None or lines.is_linear
    likely = _within_reach(lines, room, is_sure=False) if is_known else None
    sure = _within_reach(lines, room, is_sure=True) if is_known and lines.error is not None else None
    items = (
        Pair("capacity", room.capacity, "bytes", "device memory"),
        Pair("overhead", room.overhead, "bytes", "outside the allocator"),
        Pair("slack", room.slack, "share", "reserved but not handed out", room.slack > 0),
        Pair("room", room.bytes, "bytes", "available for the peak"),
        Pair("batch", likely, "count", "largest batch"),
        Pair("sure", sure, "count", "at the high end of the interval", sure is not None),
    )
    return Pairs("largest", "Largest batch that fits", items)


def _throughput(found: FitResult) -> Pairs:
    paced = found.times
    assert paced is not None
    fixed, each = paced.step_ns(0), paced.step_ns(1)
    near, most = paced.near, paced.asymptote
    is_known = paced.is_linear is not False and near is not None
    items = (
        Pair("linear", paced.is_linear, shown=False),
        Pair("off", paced.off, "share", "largest error of the fit", paced.off is not None),
        Pair("fixed_ns", round(fixed.value) if is_known else None, "ns", "fixed time per step"),
        Pair("fixed_low_ns", round(fixed.low) if is_known else None, "ns", shown=False),
        Pair("fixed_high_ns", round(fixed.high) if is_known else None, "ns", shown=False),
        Pair("each_ns", round(each.value - fixed.value) if is_known else None, "ns", "time per sample"),
        Pair("samples_each", found.each, shown=False),
        *_spans("most", most, is_known, found.each),
        *_spans("near", near, is_known, 1.0),
    )
    return Pairs("throughput", "Step time", items)


def _spans(name: str, span: ValueRange | None, is_known: bool, factor: float) -> tuple[Pair, ...]:
    values = (span.value, span.low, span.high) if span is not None and is_known else (None, None, None)
    keys = (name, f"{name}_low", f"{name}_high")
    return tuple(
        Pair(key, None if value is None else value * factor, shown=False)
        for key, value in zip(keys, values, strict=True)
    )


def _notes(found: FitResult, room: Room | None) -> tuple[str, ...]:
    said = list(found.unknown)
    lines, largest = found.peaks, found.runs[-1].batch
    if room is not None:
        said.append(f"Capacity {format_bytes(room.capacity)}: {room.basis}.")
    if lines is not None and room is not None and (lines.error is None or lines.is_linear):
        likely = _within_reach(lines, room, is_sure=False)
        if likely and likely > _FAR * largest:
            said.append(
                f"Batch {likely:,} is {likely / largest:.0f}x the largest measured size: measure closer to it with "
                "--sizes before relying on it."
            )
    if lines is not None and lines.error is not None and not lines.is_linear:
        said.append(
            f"The fit is more than {LINEAR:.0%} off: kernels may switch algorithms with size, inputs may differ in "
            "length, or caches may still have been growing. lostflops memory shows how the kept runs differ."
        )
    if found.times is not None and found.times.is_linear is False:
        said.append(
            "Other work on the machine may have slowed some runs, or small batches do not fill the device: run it "
            "again, or give only large --sizes."
        )
    if found.times is not None and found.times.near is not None and found.times.near.value > _FAR * largest:
        said.append("The batch that reaches 90% is far above the measured sizes.")
    return tuple(dict.fromkeys(said))

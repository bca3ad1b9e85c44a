"""An estimate as a result: model, memory, communication, step."""

from __future__ import annotations

from typing import Final

from lostflops.core.results import Block, Field, Pair, Pairs, Result, Section, Table, Value
from lostflops.core.units import format_bytes, format_count, format_flop, format_ns, format_share, pluralise
from lostflops.predict.estimate.estimate import HEADROOM, LaunchEstimate
from lostflops.predict.estimate.ranges import NOTHING
from lostflops.predict.estimate.step_time import EstimatedStep

CONVENTION: Final = (
    "matmuls with weights (6 per weight and token) and attention over all pairs (12 x layers x heads x head width x "
    "sequence per token, causal or not); embedding lookups and recomputation are not counted"
)
ACTIVATIONS: Final = {True: "compiled", False: "eager", None: "compiled to eager"}
COUNTED: Final = "counted by torch: forward and backward, attention as plain matmuls over all pairs"


def result(found: LaunchEstimate, remarks: tuple[str, ...] = ()) -> Result:
    blocks: list[Block] = [_model(found), _memory(found), _communication(found)]
    if found.step is not None:
        blocks.append(_step(found, found.step))
    return Result(
        name="estimate",
        title="Estimate before launch",
        verdict=_verdict(found),
        blocks=tuple(blocks),
        notes=(*remarks, *_notes(found)),
        more=(_stages(found),),
    )


def _verdict(found: LaunchEstimate) -> str:
    job, held = found.job, found.fullest.memory.total
    parameters = format_count(found.demand.parameters)
    said = [f"{parameters} parameters on {pluralise(job.ranks, 'rank')} of {found.machine.name}"]
    if found.step is None:
        said.append(f"the step time is unknown because {found.unknown}")
    else:
        total = found.step.total
        mfu = "" if found.mfu is None else f", MFU {format_share(found.mfu.low)} to {format_share(found.mfu.high)}"
        said.append(f"a step takes {format_ns(round(total.low))} to {format_ns(round(total.high))}{mfu}")
        said.append(f"mostly {found.step.limiter}")
    fits = {"yes": "fits", "no": "does not fit", "maybe": "may not fit", "unknown": "unknown whether it fits"}
    size = f"{format_bytes(round(held.low))} to {format_bytes(round(held.high))} of memory"
    of = "" if found.machine.capacity is None else f" of {format_bytes(found.machine.capacity)}"
    return f"{said[0]}: {', '.join(said[1:])}; {size}{of} on the fullest rank: {fits[found.fits]}."


def _model(found: LaunchEstimate) -> Pairs:
    demand = found.demand
    flops, again = demand.flops, demand.recomputed
    tokens = found.job.step_tokens if demand.has_tokens else None
    items = [
        Pair("parameters", demand.parameters, "count"),
        Pair("embedding", demand.embedding, "count", "in embeddings"),
        Pair("per_layer", demand.per_layer, "count", "per layer"),
        Pair("tokens_per_step", tokens, "count", "tokens per step"),
        Pair("flops_per_step", flops, "flop", "model FLOPs per step, all ranks"),
        Pair("flops_per_token", flops // tokens if flops and tokens else None, "flop", "per token"),
        Pair("recomputed_low", round(again.low), "flop", "recomputed, at least", again.high > 0),
        Pair("recomputed_high", round(again.high), "flop", "recomputed, at most", again.high > 0),
        Pair("convention", CONVENTION if demand.has_tokens else COUNTED, shown=False),
    ]
    return Pairs("model", "Model", tuple(item for item in items if item.value is not None or not item.shown))


def _memory(found: LaunchEstimate) -> Section:
    held = found.fullest.memory
    activations = held.activations or NOTHING
    how = ACTIVATIONS[found.job.compiled] if found.demand.has_tokens else "as autograd keeps them"
    rows = [
        ("parameters", held.parameters, held.parameters, "exact"),
        ("gradients", held.gradients, held.gradients, "exact"),
        ("optimizer states", held.optimizer, held.optimizer, "exact"),
        ("activations", activations.low, activations.high, how if held.activations else "not counted: no inputs"),
        ("copies of parameters", held.copies.low, held.copies.high, "casts and gathered layers"),
        ("communication buffers", held.communication.low, held.communication.high, "buckets"),
        ("total", held.total.low, held.total.high, ""),
    ]
    table = Table(
        "owners",
        "",
        (Field("owner"), Field("low", "bytes"), Field("high", "bytes"), Field("how")),
        tuple((owner, round(low), round(high), how) for owner, low, high, how in rows),
    )
    items = (
        Pair("capacity", found.machine.capacity, "bytes", "device memory"),
        Pair("fits", found.fits),
    )
    return Section("memory", "Memory of the fullest rank", items, table)


def _communication(found: LaunchEstimate) -> Table:
    timed = found.step.transfers if found.step else ()
    transfers = [one for one, _ in timed] or found.fullest.transfers
    times = {id(one): time for one, time in timed}
    rows: list[tuple[Value, ...]] = []
    for one in transfers:
        time = times.get(id(one))
        span = (round(time.low * one.count), round(time.high * one.count)) if time else (None, None)
        told = (time.algorithm, time.source, time.reach) if time else (None, None, None)
        members = f"{one.group.ranks} on {pluralise(one.group.hosts, 'host')}"
        rows.append((one.dimension, one.what, one.op, members, one.group.ranks, one.group.hosts, one.size, one.count))
        rows[-1] += (one.total, *span, *told)
    fields = (
        Field("dimension", label="mesh"),
        Field("what", shown=False),
        Field("op"),
        Field("group"),
        Field("ranks", "count", shown=False),
        Field("hosts", "count", shown=False),
        Field("bytes", "bytes", "each"),
        Field("count", "count"),
        Field("total", "bytes", shown=False),
        Field("low", "ns"),
        Field("high", "ns"),
        Field("algorithm", shown=False),
        Field("source", shown=False),
        Field("reach", shown=False),
    )
    return Table("communication", "Communication per rank and step", fields, tuple(rows))


def _step(found: LaunchEstimate, step: EstimatedStep) -> Section:
    job, total = found.job, step.total
    shares = [(name, part) for name, part in step.parts.items() if part.high > 0]
    table = Table(
        "parts",
        "",
        (Field("part"), Field("low", "ns"), Field("high", "ns"), Field("share", "share", "share of midpoint")),
        tuple(
            (name, round(part.low), round(part.high), (part.low + part.high) / (total.low + total.high))
            for name, part in shares
        ),
    )
    tokens, mfu = found.tokens_per_second, found.mfu
    bubble = (job.pp - 1) / (job.virtual_stages * job.microbatches + job.pp - 1)
    items = [
        Pair("low", round(total.low), "ns", "step, best case"),
        Pair("high", round(total.high), "ns", "step, worst case"),
        Pair("tokens_low", tokens.low if tokens else None, "rate", "tokens/s, worst case", tokens is not None),
        Pair("tokens_high", tokens.high if tokens else None, "rate", "tokens/s, best case", tokens is not None),
        Pair("mfu_low", mfu.low if mfu else None, "share", "MFU, worst case", mfu is not None),
        Pair("mfu_high", mfu.high if mfu else None, "share", "MFU, best case", mfu is not None),
        Pair("limiter", step.limiter),
        Pair("bubble", bubble, "share", "inherent bubble", shown=job.pp > 1),
    ]
    return Section("step", "Step", tuple(items), table)


def _stages(found: LaunchEstimate) -> Table:
    fields = (
        Field("stage", "count"),
        Field("layers", "count"),
        Field("parameters", "bytes"),
        Field("gradients", "bytes"),
        Field("optimizer", "bytes"),
        Field("low", "bytes"),
        Field("high", "bytes"),
    )
    rows = []
    for number, stage in enumerate(found.demand.stages):
        held = stage.memory
        total = (round(held.total.low), round(held.total.high))
        rows.append((number, stage.layers, held.parameters, held.gradients, held.optimizer, *total))
    return Table("stages", "Stages", fields, tuple(rows))


def _notes(found: LaunchEstimate) -> tuple[str, ...]:
    notes = []
    if found.step is not None and found.machine.rates is not None:
        notes.append(f"Rates: {found.machine.rates.source}.")
        if found.machine.rates.peak is None:
            notes.append("MFU is unknown because the peak of this device is unknown.")
        sources = sorted({time.source for _, time in found.step.transfers})
        if sources:
            notes.append(f"Communication: {'; '.join(sources)}.")
        reaches = sorted({time.reach for _, time in found.step.transfers if time.reach})
        notes += [f"Extrapolated: {reach}." for reach in reaches]
    if found.machine.times is None and found.job.ranks > 1:
        each = pluralise(found.machine.per_host, "device")
        notes.append(f"Assumes {each} per host: to change that, give --topology or --calibration.")
    if found.mfu is not None and found.mfu.high > 1:
        notes.append(_above_peak(found))
    if found.is_tight:
        notes.append(
            f"The counted memory fits, but leaves less than {format_bytes(HEADROOM)} for the driver context, NCCL "
            "buffers and memory that the allocator cannot use."
        )
    flops = found.demand.flops
    if flops is not None:
        notes.append(
            f"Model FLOPs per step ({format_flop(flops)}): {CONVENTION if found.demand.has_tokens else COUNTED}."
        )
    return tuple(notes)


def _above_peak(found: LaunchEstimate) -> str:
    rates = found.machine.rates
    assert rates is not None
    assert rates.peak is not None
    if rates.flops(0, 0, 0).high > rates.peak:
        return "MFU is above 100% because matmuls were measured faster than the known peak of this device."
    return (
        "MFU can be above 100% because model FLOPs count attention over all pairs, by convention, and a causal kernel "
        "computes about half of them: compare only with MFU of the same convention and sequence length."
    )

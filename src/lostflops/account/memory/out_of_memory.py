"""Explanation of an out-of-memory error: what was requested, what was in use, and what would help."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lostflops.account.memory.owners import Owner
from lostflops.core.results import Field, Pair, Section, Table
from lostflops.core.units import format_bytes, format_share, pluralise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lostflops.store.run import Run

KEY: Final = "out_of_memory"
"""Key in table `job`."""
UNSEEN: Final = "unseen"
_NAMES: Final = {
    **{owner.value: owner.value.replace("_", " ") for owner in Owner},
    "others": "other tensors",
    UNSEEN: "memory that Python does not see (activations for backward, temporaries, buckets)",
}
_CHECKPOINT: Final = "use torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) for blocks of the model"
_HELP: Final = {
    "parameters": "keep parameters in bf16, or shard them over ranks (torch.distributed.fsdp.fully_shard)",
    "gradients": "call optimizer.zero_grad(set_to_none=True) before the forward pass, or shard gradients (fully_shard)",
    "optimizer_state": (
        "shard it over ranks with torch.distributed.optim.ZeroRedundancyOptimizer or fully_shard, or use 8-bit state "
        "(bitsandbytes.optim.AdamW8bit)"
    ),
    "buffers": "compute buffers only when they are needed",
    "others": f"drop references to tensors that are no longer needed, use a smaller batch, or {_CHECKPOINT}",
    UNSEEN: f"use a smaller batch and accumulate gradients over more batches, or {_CHECKPOINT}",
}
_EXPANDABLE: Final = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


@dataclass(frozen=True, slots=True, kw_only=True)
class RanOut:
    """Last state of one rank that ran out of memory; None is unknown."""

    rank: int
    attempt: int
    step: int | None
    phase: str | None
    module: str | None
    line: str | None
    device: str | None
    asked: int | None
    message: str | None
    held: tuple[tuple[str, int], ...]
    """Bytes by owner, most first; what the allocator had given out beyond them is `UNSEEN`."""
    total: int | None
    """Bytes that the allocator had given out; on a CPU those of the process."""
    capacity: int | None
    """Bytes of the device or the host."""
    unused: int | None
    """Bytes that the allocator kept and nothing used."""
    shapes: tuple[Mapping[str, Any], ...]

    @property
    def is_impossible(self) -> bool:
        """Whether more was asked for than there is at all."""
        return self.asked is not None and self.capacity is not None and self.asked > self.capacity

    @property
    def is_elsewhere(self) -> bool:
        """Whether tensors held less than half of a process that ran out of the host's memory: freeing them all would
        not have helped much."""
        is_host = self.device in (None, "cpu")
        return is_host and self.total is not None and 2 * sum(held for _, held in self.held) < self.total

    @property
    def is_fragmented(self) -> bool:
        """Whether unused memory would have been enough, had it been in one piece."""
        return self.asked is not None and self.unused is not None and self.unused >= self.asked


def ran_out(run: Run, ranks: Sequence[int] = ()) -> list[RanOut]:
    """Return the ranks whose program ran out of memory, in the last attempt in which one did."""
    rows = run.rows(f"select rank, attempt, value from job where key = '{KEY}' order by attempt, rank")
    wanted = [(rank, attempt, json.loads(value)) for rank, attempt, value in rows if not ranks or rank in ranks]
    return [_parse_record(*row) for row in wanted if row[1] == wanted[-1][1]]


def explain_out_of_memory(one: RanOut) -> str:
    """Explain in words what happened, what was there, and what would help."""
    return " ".join((_what(one), *_there(one), f"To fix it: {_help(one)}."))


def out_of_memory(run: Run, ranks: Sequence[int] = ()) -> tuple[str, Section] | None:
    """Return the words and the figures of the first rank that ran out; None if none did."""
    found = ran_out(run, ranks)
    if not found:
        return None
    first, others = found[0], len(found) - 1
    says = explain_out_of_memory(first) + (
        f" {pluralise(others, 'other rank')} ran out of memory too." if others else ""
    )
    return says, _section(first, tuple(one.rank for one in found))


def _parse_record(rank: int, attempt: int, value: Mapping[str, Any]) -> RanOut:
    owners: dict[str, int] = dict(value.get("owners") or {})
    allocated = value.get("allocated")
    if allocated is not None and allocated > sum(owners.values()):
        owners[UNSEEN] = allocated - sum(owners.values())
    reserved = value.get("reserved")
    unused = value.get("unused_then")
    if unused is None and reserved is not None and allocated is not None:
        unused = reserved - allocated
    return RanOut(
        rank=rank,
        attempt=attempt,
        **{name: value.get(name) for name in ("step", "phase", "module", "line", "device", "asked", "message")},
        held=tuple(sorted(owners.items(), key=lambda item: -item[1])),
        total=value.get("process") if allocated is None else allocated,
        capacity=value.get("capacity") or value.get("host"),
        unused=unused,
        shapes=tuple(value.get("shapes") or ()),
    )


def _what(one: RanOut) -> str:
    asked = "for memory" if one.asked is None else f"for {format_bytes(one.asked)}"
    where = ", ".join(
        part
        for part in (
            f"in step {one.step}" if one.step is not None else "",
            one.phase or "outside all passes",
            f"module {one.module}" if one.module else "",
            f"at {one.line}" if one.line else "",
        )
        if part
    )
    on = f" on {one.device}" if one.device else ""
    return f"Rank {one.rank} ran out of memory: it asked {asked}{on} {where}."


def _there(one: RanOut) -> Iterator[str]:
    if one.is_impossible:
        return
    tensors = sum(held for _, held in one.held)
    if one.total is not None and one.device not in (None, "cpu"):
        of = f" of {format_bytes(one.capacity)}" if one.capacity else ""
        yield f"{format_bytes(one.total)}{of} were already allocated."
    elif one.total is not None:
        of = f", the host has {format_bytes(one.capacity)}" if one.capacity else ""
        yield f"The process already used {format_bytes(one.total)}, {format_bytes(tensors)} of it tensors{of}."
    if one.held and not one.is_elsewhere:
        name, held = one.held[0]
        share = format_share(held / tensors)
        yield f"Most of it: {_NAMES.get(name, name)}, {format_bytes(held)} ({share}){_most(one, name)}."


def _most(one: RanOut, owner: str) -> str:
    """Say what most of the tensors without an owner are."""
    if owner != "others" or not one.shapes:
        return ""
    first = one.shapes[0]
    return f", mostly {first['count']} of {first['dtype']} and shape {first['shape']}"


def _help(one: RanOut) -> str:
    if one.is_impossible:
        assert one.capacity is not None
        at = f" at {one.line}" if one.line else ""
        return (
            f"check the shapes{at}, because the device has only {format_bytes(one.capacity)}; often the cause is an "
            "unintended broadcast, or a wrong length"
        )
    if one.is_elsewhere:
        what = f"what {one.line} allocates" if one.line else "what the program holds besides tensors"
        return f"look at {what}, because tensors were not what filled the memory"
    largest = _HELP.get(one.held[0][0], _HELP["others"]) if one.held else _HELP["others"]
    if one.is_fragmented:
        assert one.unused is not None
        return f"{_EXPANDABLE}, because {format_bytes(one.unused)} were free in too small pieces; then {largest}"
    return largest


def _section(one: RanOut, ranks: tuple[int, ...]) -> Section:
    whole = sum(held for _, held in one.held) or 1
    fields = (Field("owner"), Field("bytes", "bytes"), Field("share", "share"))
    return Section(
        KEY,
        "Out of memory",
        (
            Pair("rank", one.rank),
            Pair("ranks", ranks, label="ranks that ran out", shown=len(ranks) > 1),
            Pair("attempt", one.attempt, shown=one.attempt > 0),
            Pair("step", one.step),
            Pair("phase", one.phase, label="phase"),
            Pair("module", one.module, shown=one.module is not None),
            Pair("line", one.line, label="at"),
            Pair("device", one.device),
            Pair("asked", one.asked, "bytes", "asked for"),
            Pair("total", one.total, "bytes", "allocated" if one.device not in (None, "cpu") else "of the process"),
            Pair("capacity", one.capacity, "bytes"),
            Pair("unused", one.unused, "bytes", "reserved but unused", shown=one.unused is not None),
            Pair("message", one.message, shown=False),
        ),
        Table(
            "owners", "What was using the memory", fields, tuple((name, held, held / whole) for name, held in one.held)
        ),
    )

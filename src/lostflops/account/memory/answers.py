"""Memory in answers: blocks of a result, and words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import OWNERS, Owner
from lostflops.account.memory.peak import EARLIER, Peak, PeakPart, by_place, parts_of
from lostflops.core.results import Field, Pair, Pairs, Portion, Portions, Table
from lostflops.core.units import format_bytes, format_share, pluralise

WITH_MEMORY: Final = "--with shapes,modules,samples,memory"
"""The default options, and memory."""
HOW_TO_RECORD: Final = f"lostflops run {WITH_MEMORY} -- CMD"
MOST_SHOWN: Final = 8
MUCH: Final = 0.05
"""Part of the peak above which memory from before the window is named in a note."""
NO_MODULES: Final = f"No module was annotated, so parts are ops. To see modules: {HOW_TO_RECORD}"


def verdict(peak: Peak, peaks: Sequence[Peak]) -> str:
    whose = f"Rank {peak.rank}" if len({one.rank for one in peaks}) > 1 else "Memory"
    whose += " (window only)" if peak.is_of_window else ""
    size = f"{format_bytes(peak.bytes)} on {peak.device}"
    return f"{whose} peaks at {size}{_when(peak)}{_where(peak)}: {', '.join(_made_of(peak))}."


def in_one_line(peak: Peak) -> str:
    """Describe the peak in one line, for the report of a run."""
    size = f"{format_bytes(peak.bytes)} on {peak.device} of rank {peak.rank}"
    size += " (window only)" if peak.is_of_window else ""
    return f"{size}{_when(peak)}: {', '.join(_made_of(peak))}"


def _made_of(peak: Peak) -> Iterator[str]:
    """Yield the two largest owners, and how much has none."""
    yield from (f"{owner} {format_share(held / peak.bytes)}" for owner, held in _list_known_owners(peak)[:2])
    lost = peak.owners[Owner.UNATTRIBUTED]
    yield f"unattributed {format_share(lost / peak.bytes)}" if lost else "nothing unattributed"


def _list_known_owners(peak: Peak) -> list[tuple[Owner, int]]:
    return [(owner, held) for owner, held in peak.largest if owner is not Owner.UNATTRIBUTED]


def _when(peak: Peak) -> str:
    """Say when it was, such as ` in backward of step 5`."""
    step = "" if peak.step is None else f" of step {peak.step}"
    if peak.phase is not None and peak.phase != "other":
        return f" in {peak.phase}{step}"
    return f" in step {peak.step}" if step else ""


def _where(peak: Peak) -> str:
    """Say where it was, such as `, by aten::mm of layers.7.linear`."""
    place = f" of {peak.module}" if peak.module else ""
    line = f" ({peak.line})" if peak.line else ""
    return f", by {peak.op}{place}{line}" if peak.op else f", in {peak.module}{line}" if place else ""


def moment(peak: Peak) -> Pairs:
    """Return when the peak was, and what was done then."""
    items = (
        Pair("bytes", peak.bytes, "bytes", "allocated"),
        Pair("rank", peak.rank, label="rank"),
        Pair("device", peak.device),
        Pair("at_ns", peak.at, "time", "when", shown=False),
        Pair("into_window_ns", peak.into_window, "ns", "into the window"),
        Pair("phase", peak.phase),
        Pair("step", peak.step),
        Pair("module", peak.module),
        Pair("op", peak.op),
        Pair("line", peak.line, shown=peak.line is not None),
    )
    return Pairs("peak", "The peak", items)


def way(memory: RankMemory, peak: Peak, by: str) -> str:
    """Return `by`, but ops in place of layers and modules if none was annotated."""
    alive = memory.blocks.module[memory.alive(peak.event)]
    return "op" if by in ("layer", "module") and not alive.any() else by


def owners(memory: RankMemory, peak: Peak, by: str) -> Portions:
    """Return all nine owners, the largest first and unattributed last, each with its parts."""
    parts: dict[Owner, list[PeakPart]] = {owner: [] for owner in OWNERS}
    for part in parts_of(memory, peak.event, by):
        parts[part.owner].append(part)
    ordered = sorted(OWNERS, key=lambda owner: (owner is Owner.UNATTRIBUTED, -peak.owners[owner]))
    items = tuple(
        Portion(
            owner.value,
            peak.owners[owner],
            sum(part.count for part in parts[owner]),
            tuple(Portion(part.name, part.bytes, part.count) for part in parts[owner]),
        )
        for owner in ordered
    )
    return Portions("owners", f"Alive at the peak, by owner and {by}", "owner", items, peak.bytes)


def places(memory: RankMemory, peak: Peak, name: str) -> Table:
    """Return layers or modules, the fullest first, with what each holds of every owner."""
    found = by_place(memory, peak.event, whole_layers=name == "layers")
    fields = (
        Field("name", label=name.removesuffix("s")),
        Field("bytes", "bytes"),
        Field("share", "share"),
        Field("mostly"),
        *(Field(owner.value, "bytes", within="owners", shown=False) for owner in OWNERS),
    )
    rows = tuple(
        (place, total, total / (peak.bytes or 1), max(held, key=held.__getitem__).value, *held.values())
        for place, held in found.items()
        for total in (sum(held.values()),)
    )
    return Table(name, f"Alive at the peak, by {name.removesuffix('s')}", fields, rows, most_shown=MOST_SHOWN)


def report_reserved(memory: RankMemory, peak: Peak) -> Pairs:
    """Report what the allocator held from the device; nulls if that is not recorded."""
    most = int(memory.reserved.max()) if memory.reserved.size else None
    slack = peak.reserved - peak.bytes if peak.reserved is not None else None
    items = (
        Pair("peak_bytes", most, "bytes", "highest reserved"),
        Pair("bytes", peak.reserved, "bytes", "reserved at the peak"),
        Pair("slack_bytes", slack, "bytes", "of it not allocated (cache slack)"),
        Pair(
            "slack_share", slack / peak.reserved if slack is not None and peak.reserved else None, "share", shown=False
        ),
    )
    return Pairs("reserved", "Reserved by the allocator", items)


def notes(peak: Peak, parts: Portions, silent: Sequence[int], largest: tuple[str, int] | None = None) -> Iterator[str]:
    """Yield what is missing, and how to record it; `largest` is the name and size of the largest tensor that was
    recorded without an owner."""
    if peak.is_of_window:
        yield (
            "On a CPU the profiler does not see memory that was allocated before the window, so this is only the "
            f"memory of the window. To record earlier memory too: {HOW_TO_RECORD}"
        )
    lost = next(item for item in parts.items if item.name == Owner.UNATTRIBUTED)
    early = sum(part.bytes for part in lost.parts if part.name == EARLIER)
    if early > MUCH * peak.bytes and largest is not None:
        yield (
            f"{format_bytes(early)} were allocated before the window opened and are not parameters, gradients or "
            f"optimizer state of a known module. The largest of it is {largest[0]} ({format_bytes(largest[1])})."
        )
    elif early > MUCH * peak.bytes:
        yield (
            f"{format_bytes(early)} were allocated before the window opened, and their owner is unknown. To name "
            f"parameters and optimizer state: {HOW_TO_RECORD}"
        )
    if silent:
        named = f"Rank {silent[0]}" if len(silent) == 1 else pluralise(len(silent), "rank")
        yield f"{named} recorded no memory events. To record them: {HOW_TO_RECORD}"

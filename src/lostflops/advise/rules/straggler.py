"""One or few ranks are late though they do the same work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from lostflops.advise.claim import Claim, Gain, Rule
from lostflops.advise.findings import SMALLEST
from lostflops.advise.signs.drift import Drift, drifts
from lostflops.advise.signs.waiting import taken
from lostflops.blame.sayings import CAUSE_WORDS
from lostflops.ledger.lines import HOST_LINES
from lostflops.ledger.samples import places, sampled
from lostflops.ledger.scope import Scope
from lostflops.results import Evidence
from lostflops.units import counted, format_ns, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case
    from lostflops.advise.signs.late import LateRank

ABOUT: Final = (
    "In synchronous training every step takes as long as its slowest rank: the others wait for it in the next "
    "collective. A straggler does the same work as the others and takes longer, because its device is slow, shared or "
    "hot, its data comes late, or its host does something that the others do not. Averages hide it, since the wait "
    "makes all steps equally long; it is found by the time that a rank spends outside communication."
)
_SURE: Final = 0.85
"""Confidence of a rank that is late in most steps, and not by chance."""
_MOST_SOURCES: Final = 3
_MOST_EVENTS: Final = 5
_HOT: Final = "thermal"
_KINDS: Final = {
    "slow_kernels": "slow device",
    "late_data": "late data",
    "host_stall": "host stall",
    "allocation": "allocation",
    "device_queue": "device queue",
    "copies": "copies",
    "more_work": "slow device",
    _HOT: "thermal",
}
_WORDS: Final = {
    **CAUSE_WORDS,
    "late_data": "data comes late",
    "host_stall": "the host keeps the device waiting",
    "allocation": "memory is allocated",
    "device_queue": "kernels are queued, and the device does not take them up",
    "copies": "more is copied",
    _HOT: "it gets slower over time while the others do not",
}
_ON_THREAD: Final = "the training thread runs Python, no ops"
_NO_DISPATCH: Final = "launch=free"
_QUICKER_HOSTS: Final = (
    "cut what dispatching costs on all ranks, not on the late ones alone: "
    'torch.compile(model, mode="reduce-overhead") or CUDA graphs, and fewer, larger ops'
)
_ALL_AS_SLOW: Final = " Other hosts are no quicker, only ahead: the fix is for all."
_UNSAMPLED: Final = "record stack samples (lostflops run --with samples), and "
_LONGEST: Final = """
    select event from events where rank = {rank} and kind in ({kinds}) and step in ({steps})
    order by dur desc, event limit {most}"""
_HOSTS: Final = "select rank, host, device_index from ranks"


def find(case: Case) -> Iterator[Claim]:
    late = [one for one in case.late if not one.more]
    drifting = {one.rank: one for one in drifts(case)} if late else {}
    kinds: dict[str, list[LateRank]] = {}
    for one in late:
        hot = one.found.rank in drifting and one.found.cause == "slow_kernels"
        kinds.setdefault(_HOT if hot else one.found.cause, []).append(one)
    for kind, members in kinds.items():
        yield _claim(case, kind, members, [drifting[m.found.rank] for m in members if m.found.rank in drifting])


def _claim(case: Case, kind: str, late: Sequence[LateRank], hot: Sequence[Drift]) -> Claim:
    ranks = tuple(sorted(one.found.rank for one in late))
    lost = taken(case, ranks)
    sources = _sources(case, late)
    changes = tuple(f"straggler={rank}" for rank in ranks)
    if starved := late[0].found.line == "idle.host" and _is_no_use(case, changes):
        changes = (_NO_DISPATCH,)
    gain = _over_the_run(case, changes, late[0], hot[0]) if kind == _HOT else None
    return Claim(
        cause="straggler",
        what=_what(case, kind, late, sum(ns for (_, line), ns in lost.items() if line.startswith("comm.")))
        + (_ALL_AS_SLOW if starved else ""),
        taken=lost,
        evidence=tuple(_evidence(case, late, sources, hot)),
        confidence=min(one.confidence for one in late),
        certain_if=_certain(kind, ranks),
        fix=_QUICKER_HOSTS if starved else _fix(case, kind, ranks, sources),
        changes=changes if gain is None else (),
        gain=gain,
        ranks=ranks,
        in_each_step=all(one.confidence >= _SURE for one in late),
    )


def _over_the_run(case: Case, changes: Sequence[str], late: LateRank, drift: Drift) -> Gain | None:
    """Of a rank that gets slower the mean over all steps: the ledger's are a few of them, often late ones. None where
    they are all, or no replay tells what is lost in them."""
    price, found, comparison = case.price(*changes), late.found, case.judgement.comparison
    longer = found.line_excess / max(found.steps, 1)
    lately = longer / max(float(comparison.computed[comparison.place(found.rank)]) - longer, 1.0)
    if price is None or case.told is None or not 0 < price.gain < 1 or lately <= 0:
        return None
    part = max(drift.mean - 1, 0.0) / lately
    share, low, high = (
        gain * part / (1 - gain + gain * part) for gain in (price.gain, max(price.low, 0.0), price.high)
    )
    basis = f"replaying the run with {price.prediction.text}: {format_share(price.gain)} in the recorded steps"
    return Gain(share, min(low, share), max(high, share), f"{basis}, and by its forward pass that much over all steps")


def _is_no_use(case: Case, changes: Sequence[str]) -> bool:
    """Whether ranks that dispatch as the others do would gain nothing: then all hosts are as slow, and only those that
    are a little behind show it, while the others wait in collectives."""
    alike, free = case.price(*changes), case.price(_NO_DISPATCH)
    return alike is not None and free is not None and alike.gain < SMALLEST < free.gain


def _named(ranks: Sequence[int]) -> str:
    return f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {', '.join(map(str, ranks))}"


def _what(case: Case, kind: str, late: Sequence[LateRank], waited: int) -> str:
    first, ranks = late[0].found, sorted(one.found.rank for one in late)
    are = "is" if len(ranks) == 1 else "are"
    each = "per step " if first.in_steps else ""
    words = _ON_THREAD if kind == "host_stall" and first.rank in case.total.on_thread else _WORDS[kind]
    says = (
        f"{_named(ranks)} {are} late ({_KINDS[kind]}): {words} ({first.line}, "
        f"{format_ns(round(first.line_excess / first.steps))} {each}beyond the others)"
    )
    return f"{says}, and the others wait {format_share(waited / (case.wall or 1))} of all time for that."


def _evidence(case: Case, late: Sequence[LateRank], sources: Sequence[str], hot: Sequence[Drift]) -> Iterator[Evidence]:
    for one in late:
        found = one.found
        slow = f" in {found.slow_steps} of {counted(found.steps, 'step')}" if found.in_steps else ""
        yield Evidence(
            f"Rank {found.rank} has {format_ns(found.excess)} more time of its own{slow} than ranks that do the same "
            f"work, and is the last in {found.last.times:,} of {counted(found.last.of, 'collective')} "
            f"(p = {found.p_value:.2g}).",
            events=_longest(case, found.rank, found.line),
            ranks=(found.rank,),
            steps=case.asked.steps or tuple(sorted(case.total.steps)),
        )
    if sources:
        yield Evidence(
            f"What it does meanwhile: {'; '.join(sources)}.", ranks=(late[0].found.rank,), sources=(*sources,)
        )
    for drift in hot:
        yield Evidence(
            f"Rank {drift.rank} takes {drift.first:.2f} times what others take in the first quarter of the steps and "
            f"{drift.last:.2f} times in the last (p = {drift.p_value:.2g}).",
            ranks=(drift.rank,),
            steps=drift.steps,
        )
    hosts = _hosts(case)
    if places := sorted({hosts[one.found.rank][0] for one in late if hosts.get(one.found.rank, ("", None))[0]}):
        ranks = tuple(one.found.rank for one in late)
        yield Evidence(f"It runs on {', '.join(places)}{_alone_there(case, ranks)}.", ranks=ranks)


def _alone_there(case: Case, ranks: Sequence[int]) -> str:
    """Whether a whole host is late, or a rank of it."""
    hosts = {rank: host for rank, (host, *_) in _hosts(case).items()}
    if len({host for host in hosts.values() if host}) < 2:
        return ""
    same = [rank for rank, host in hosts.items() if host in {hosts[one] for one in ranks}]
    return ", and so are all ranks of that host" if set(same) == set(ranks) else ", whose other ranks are not late"


def _hosts(case: Case) -> dict[int, tuple[str, int | None]]:
    return {rank: (host or "", index) for rank, host, index in case.run.sql(_HOSTS).fetchall()}


def _longest(case: Case, rank: int, line: str) -> tuple[tuple[int, int], ...]:
    """Events that the time of the line is made of, where any are."""
    steps = sorted(step for step in case.total.steps if step >= 0)
    if line != "compute" or not steps:
        return ()
    kinds = "'op'" if rank in case.total.on_thread else "'kernel'"
    query = _LONGEST.format(rank=rank, kinds=kinds, steps=", ".join(map(str, steps)), most=_MOST_EVENTS)
    return tuple((rank, event) for (event,) in case.run.sql(query).fetchall())


def _sources(case: Case, late: Sequence[LateRank]) -> list[str]:
    """Source lines that stack samples found on the line that is late, most time first."""
    line, rank = late[0].found.line, late[0].found.rank
    if line not in HOST_LINES and rank not in case.total.on_thread:
        return []  # while a device works its host is ahead, somewhere else
    asked = Scope(case.asked.kind, (rank,), case.asked.steps)
    found = [places(one.times[line]) for one in sampled(case.run, asked) if line in one.times]
    return [frame for frame, _ in found[0].most_common(_MOST_SOURCES)] if found else []


def _certain(kind: str, ranks: Sequence[int]) -> str:
    who = _named(ranks).lower()
    if kind in ("slow_kernels", _HOT, "device_queue", "more_work"):
        return f"{who} on another device: the lateness stays behind with the old one if that is slow"
    if kind == "late_data":
        return f"{who} with batches that are in memory already: lateness that goes is the loader's"
    return f"{who} without what its host does there: lateness that goes is its own"


def _fix(case: Case, kind: str, ranks: Sequence[int], sources: Sequence[str]) -> str:
    host, index = _hosts(case).get(ranks[0], ("", None))
    there = f" on {host}" if host else ""
    if kind in ("slow_kernels", "more_work", _HOT):
        if ranks[0] in case.total.on_thread:
            look = f"look what else runs on its cores{there} (top -H; taskset -cp PID)"
            return f"{look}, give the rank cores of its own, or leave the host out of the job"
        which = f" -i {index}" if index is not None else ""
        look = f"nvidia-smi{which} -q -d PERFORMANCE,CLOCK,TEMPERATURE{there} shows throttling"
        return f"{look}; cool, repair or replace the device, or leave the host out (Slurm: --exclude={host or 'HOST'})"
    if kind == "device_queue":
        which = f" -i {index}" if index is not None else ""
        return f"nvidia-smi{which}{there} lists who shares the device: stop it, or give the rank a device of its own"
    if kind == "late_data":
        what = "DataLoader(..., num_workers=4, prefetch_factor=4, persistent_workers=True, pin_memory=True)"
        return f"give {_named(ranks).lower()} the storage and the workers that the others have: {what}"
    if kind == "allocation":
        return f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True on {_named(ranks).lower()}, and equal batch shapes"
    if kind == "copies":
        return "copy from pinned memory without blocking: pin_memory=True, tensor.to(device, non_blocking=True)"
    if sources:
        return f"take it out of the step, to a thread or every N steps: {sources[0]}"
    first = "" if case.run.sql(f"select 1 from samples where rank = {ranks[0]} limit 1").fetchall() else _UNSAMPLED
    return (
        f"{first}lostflops flame RUN --rank {ranks[0]} shows what its host does between ops; take that out of the step"
    )


RULE: Final = Rule("straggler", ABOUT, find)

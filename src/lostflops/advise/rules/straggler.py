"""One or few ranks are late though they do the same work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import hypot, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.advise.claim import Claim, Gain, Rule
from lostflops.advise.findings import SMALLEST
from lostflops.advise.signs.drift import Drift, drifts
from lostflops.advise.signs.waiting import taken
from lostflops.blame.sayings import CAUSE_WORDS
from lostflops.ledger.lines import HOST_LINES
from lostflops.ledger.samples import places, sampled
from lostflops.ledger.scope import Scope
from lostflops.pace.blocks import typical
from lostflops.pace.lateness import leads
from lostflops.pace.normal import FEWEST
from lostflops.predict.answers.interval import noise_of
from lostflops.results import Evidence
from lostflops.units import counted, format_ns, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case
    from lostflops.advise.signs.late import LateRank
    from lostflops.blame.habits import Habit

ABOUT: Final = (
    "In synchronous training every step takes as long as its slowest rank: the others wait for it in the next "
    "collective. A straggler does the same work as the others and takes longer, because its device is slow, shared or "
    "hot, its data comes late, or its host does something that the others do not. Averages hide it: because the others "
    "wait, every rank shows the same step time. It is found in two ways: it is the rank that reaches collectives last, "
    "and in profiled steps it spends most time outside communication."
)
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
    "device_queue": "kernels are queued, but the device does not start them",
    "copies": "it copies more",
    _HOT: "it gets slower over time, its peers do not",
}
_ON_THREAD: Final = "the training thread runs Python, no ops"
_NO_DISPATCH: Final = "launch=free"
_QUICKER_HOSTS: Final = (
    "cut what dispatching costs on all ranks, not on the late ones alone: "
    'torch.compile(model, mode="reduce-overhead") or CUDA graphs, and fewer, larger ops'
)
_ALL_AS_SLOW: Final = " The other hosts need about as long and would be next. Fix it on all ranks."
_ALL_FIXED: Final = "record again with the fix on all ranks. If the rank is no longer last, this was the cause"
_UNSAMPLED: Final = "record stack samples (lostflops run --with samples); then "
_SUSPECTED: Final = 0.8
"""Confidence below which a late rank is suspected, not found."""
_RECORD: Final = "--steps 8:20"
_STEADY: Final = 3.0
"""Standard errors that the excess of profiled steps must exceed zero by, or all timed steps price the fix."""
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
    if gain is None and not starved:
        gain = _by_timed_steps(case, late)
    sure = min(one.confidence for one in late)
    return Claim(
        cause="straggler",
        what=_what(case, kind, late, sum(ns for (_, line), ns in lost.items() if line.startswith("comm.")))
        + (_ALL_AS_SLOW if starved else ""),
        taken=lost,
        evidence=tuple(_evidence(case, late, sources, hot)),
        confidence=sure,
        certain_if=_ALL_FIXED if starved else _certain(case, kind, ranks),
        fix=_QUICKER_HOSTS if starved else _fix(case, kind, ranks, sources),
        changes=changes if gain is None else (),
        gain=gain,
        ranks=ranks,
        suspected=_doubt(late) if sure < _SUSPECTED else "",
        record=_RECORD if sure < _SUSPECTED else "",
    )


def _doubt(late: Sequence[LateRank]) -> str:
    first = late[0].found
    return (
        f"Only {counted(first.steps, 'step')} were profiled, and {_named([first.rank]).lower()} was slow in "
        f"{first.slow_steps}: too few to be sure."
    )


def _by_timed_steps(case: Case, late: Sequence[LateRank]) -> Gain | None:
    """Return what all timed steps say that the fix saves: how much later than its peers the rank comes to collectives.
    None where the profiled steps agree with each other, so that a replay of them says more, or nothing was timed."""
    normal = case.baseline.normal if case.baseline is not None else None
    ranks = [one.found.rank for one in late]
    if normal is None or case.baseline is None or all(_is_steady(case, rank) for rank in ranks):
        return None
    if not all(one.found.habit is not None and one.found.habit.is_certain for one in late):
        return None
    times = leads(case.run, ranks)
    if times.size < FEWEST or not times.mean():
        return None
    lead = typical(times)
    share = min(lead.value / normal.location.value, 1.0)
    off = hypot(noise_of(lead) * share, case.baseline.noise * (1 - share))
    basis = (
        f"the {format_ns(round(lead.value))} that {_named(ranks).lower()} comes after the last of the others, in all "
        f"{counted(times.size, 'timed step')}"
    )
    return Gain(share, max(share - off, -1.0), min(share + off, 1.0), basis)


def _is_steady(case: Case, rank: int) -> bool:
    """Whether the profiled steps agree that the rank is slow."""
    comparison = case.judgement.comparison
    by_step = comparison.by_step[comparison.place(rank)]
    known = by_step[~np.isnan(by_step)]
    if known.size < 2:
        return False
    return float(known.mean()) >= _STEADY * float(known.std(ddof=1)) / sqrt(known.size)


def _over_the_run(case: Case, changes: Sequence[str], late: LateRank, drift: Drift) -> Gain | None:
    """Return the gain over all steps of a rank that gets slower: the profiled ones are a few, often late ones. None
    where they are all, or no replay shows what is lost in them."""
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
        f"{format_ns(round(first.line_excess / first.steps))} {each}more than its peers)."
    )
    return f"{says} The other ranks wait for it {format_share(waited / (case.wall or 1))} of all time."


def _evidence(case: Case, late: Sequence[LateRank], sources: Sequence[str], hot: Sequence[Drift]) -> Iterator[Evidence]:
    for one in late:
        found = one.found
        slow = f" in {found.slow_steps} of {counted(found.steps, 'step')}" if found.in_steps else ""
        yield Evidence(
            f"Rank {found.rank} has {format_ns(found.excess)} more time of its own{slow} than ranks that do the same "
            f"work, and is the last in {found.last.times:,} of {counted(found.last.of, 'collective')} "
            f"(p = {found.p_value:.2g}).{_habitually(found.habit)}",
            events=_longest(case, found.rank, found.line),
            ranks=(found.rank,),
            steps=case.asked.steps or tuple(sorted(case.total.steps)),
        )
    if sources:
        yield Evidence(
            f"Its stacks at that time: {'; '.join(sources)}.", ranks=(late[0].found.rank,), sources=(*sources,)
        )
    for drift in hot:
        yield Evidence(
            f"Rank {drift.rank} takes {drift.first:.2f}x as long as its peers in the first quarter of the steps and "
            f"{drift.last:.2f}x in the last (p = {drift.p_value:.2g}).",
            ranks=(drift.rank,),
            steps=drift.steps,
        )
    hosts = _hosts(case)
    if places := sorted({hosts[one.found.rank][0] for one in late if hosts.get(one.found.rank, ("", None))[0]}):
        ranks = tuple(one.found.rank for one in late)
        yield Evidence(f"It runs on {', '.join(places)}{_alone_there(case, ranks)}.", ranks=ranks)


def _habitually(habit: Habit | None) -> str:
    if habit is None:
        return ""
    return (
        f" Over the whole job it enqueues collectives last in {habit.last:,} of {counted(habit.steps, 'timed step')} "
        f"(p = {habit.p_value:.2g}), in the median {format_share(habit.lateness)} of a step after the first rank."
    )


def _alone_there(case: Case, ranks: Sequence[int]) -> str:
    """Whether a whole host is late, or a rank of it."""
    hosts = {rank: host for rank, (host, *_) in _hosts(case).items()}
    if len({host for host in hosts.values() if host}) < 2:
        return ""
    same = [rank for rank, host in hosts.items() if host in {hosts[one] for one in ranks}]
    return ", where all ranks are late" if set(same) == set(ranks) else ", whose other ranks are not late"


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


def _certain(case: Case, kind: str, ranks: Sequence[int]) -> str:
    who = _named(ranks).lower()
    if kind in ("slow_kernels", _HOT, "device_queue", "more_work"):
        if ranks[0] in case.total.on_thread:
            return (
                f"start {who} on other cores or another host. If it is no longer late, the old cores are slow or shared"
            )
        return f"swap the device of {who}. If the slowness stays with the old device, replace it"
    if kind == "late_data":
        return f"run {who} with batches that are in memory already. If it is no longer late, its loader is the cause"
    return f"run {who} without that work on its host. If it is no longer late, that was the cause"


def _fix(case: Case, kind: str, ranks: Sequence[int], sources: Sequence[str]) -> str:
    host, index = _hosts(case).get(ranks[0], ("", None))
    there = f" on {host}" if host else ""
    if kind in ("slow_kernels", "more_work", _HOT):
        if ranks[0] in case.total.on_thread:
            look = f"check what else runs on its cores{there} (top -H; taskset -cp PID)"
            return f"{look}; give the rank cores of its own, or leave the host out of the job"
        which = f" -i {index}" if index is not None else ""
        look = f"check for throttling{there}: nvidia-smi{which} -q -d PERFORMANCE,CLOCK,TEMPERATURE"
        out = f"leave the host out (Slurm: --exclude={host or 'HOST'})"
        return f"{look}. Then cool, repair or replace the device, or {out}"
    if kind == "device_queue":
        which = f" -i {index}" if index is not None else ""
        look = f"nvidia-smi{which}{there} lists the processes that share the device"
        return f"{look}: stop them, or give the rank a device of its own"
    if kind == "late_data":
        what = "DataLoader(..., num_workers=4, prefetch_factor=4, persistent_workers=True, pin_memory=True)"
        what = what.replace(", pin_memory=True", "") if ranks[0] in case.total.on_thread else what
        return f"give {_named(ranks).lower()} the same storage and workers as its peers: {what}"
    if kind == "allocation":
        return f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True on {_named(ranks).lower()}, and equal batch shapes"
    if kind == "copies":
        return "copy from pinned memory without blocking: pin_memory=True, tensor.to(device, non_blocking=True)"
    if sources:
        return f"move {sources[0]} out of the step: to a thread, or to every N-th step"
    first = "" if case.run.sql(f"select 1 from samples where rank = {ranks[0]} limit 1").fetchall() else _UNSAMPLED
    return (
        f"{first}lostflops flame RUN --rank {ranks[0]} shows what its host does between ops; move that out of the step"
    )


RULE: Final = Rule("straggler", ABOUT, find)

"""One or a few ranks are late although they do the same work as the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import hypot, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.late.timed import leads
from lostflops.account.late.words import CAUSE_WORDS, describe
from lostflops.account.ledger.lines import HOST_LINES
from lostflops.account.ledger.samples import places, read_samples
from lostflops.account.ledger.scope import Scope
from lostflops.account.pace.blocks import typical
from lostflops.account.pace.normal import FEWEST
from lostflops.core.estimate import Estimate, Kind, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.diagnosis import SMALLEST
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.compiled import advise_compiling
from lostflops.explain.advise.signs.drift import Drift, drifts
from lostflops.explain.advise.signs.late import late_ranks
from lostflops.explain.advise.signs.waiting import attribute_lateness
from lostflops.predict.whatif.interval import noise_of

if TYPE_CHECKING:
    from lostflops.account.late.ranks import SlowRank
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.late import LateRank

ABOUT: Final = (
    "In synchronous training the slowest rank sets the step time: all others wait for it in the next collective. A "
    "straggler does the same work as its peers but takes longer, because its device is slow, shared or hot, its data "
    "arrives late, or its host is busy with something else. Step times do not show it: because the others wait, every "
    "rank has the same step time. Lostflops finds it in two ways: it reaches collectives last, and in profiled steps "
    "it spends the most time outside communication."
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
_WORDS: Final = {**CAUSE_WORDS, _HOT: "it gets slower over time"}
_ON_THREAD: Final = "it runs Python instead of ops"
_NO_DISPATCH: Final = "launch=free"
_ALL_RANKS: Final = "Reduce launch overhead on all ranks, not only on the late ones, with fewer, larger ops."
_COMPILE: Final = 'Use torch.compile(model, mode="reduce-overhead") or CUDA graphs.'
_ALL_FIXED: Final = "apply the fix on all ranks and record again: the rank must no longer be last."
_UNSAMPLED: Final = "Record stack samples (lostflops run does by default). "
_UNSEEN: Final = "unseen"
"""The rank is late by its order in collectives, but not in profiled steps."""
_LOOK_LONGER: Final = (
    "Profile more steps, in which the rank is late: lostflops run --steps 8:20 -- COMMAND. Check what else runs on its "
    "cores and its host."
)
_SEEN_LATER: Final = "profile more steps: on some line the rank must take longer than its peers."
_MOST_STEPS: Final = 200
"""More profiled steps are not asked for: their trace is large, and the job is slower while they are recorded."""
_STEADY: Final = 3.0
"""The extra time in profiled steps must exceed zero by this many standard errors; otherwise all timed steps price the
fix."""
_LONGEST: Final = """
    select event from events where rank = {rank} and kind in ({kinds}) and step in ({steps})
    order by dur desc, event limit {most}"""
_HOSTS: Final = "select rank, host, device_index from ranks"


def find(case: Case) -> Iterator[Claim]:
    late = [one for one in late_ranks(case) if not one.more]
    drifting = {one.rank: one for one in drifts(case)} if late else {}
    kinds: dict[str, list[LateRank]] = {}
    for one in late:
        drift = drifting.get(one.found.rank)
        hot = drift is not None and drift.since is None and one.found.cause == "slow_kernels"
        kind = _HOT if hot else one.found.cause if one.found.line_excess > 0 else _UNSEEN
        kinds.setdefault(kind, []).append(one)
    for kind, members in kinds.items():
        yield _claim(case, kind, members, [drifting[m.found.rank] for m in members if m.found.rank in drifting])


def _claim(case: Case, kind: str, late: Sequence[LateRank], hot: Sequence[Drift]) -> Claim:
    ranks = tuple(sorted(one.found.rank for one in late))
    lost = attribute_lateness(case, ranks)
    sources = _sources(case, late)
    changes = tuple(f"straggler={rank}" for rank in ranks)
    if starved := kind != _UNSEEN and late[0].found.line == "idle.host" and _is_no_use(case, changes):
        changes = (_NO_DISPATCH,)
    saving = _over_the_run(case, changes, late[0], hot[0]) if kind == _HOT else None
    if saving is None and not starved:
        saving = _by_timed_steps(case, late)
    is_sure = all(one.strength is Strength.STRONG for one in late)
    return Claim(
        cause="straggler",
        what=_what_limits_all(late) if starved else _what(case, kind, late),
        taken=lost,
        evidence=(
            *_evidence(case, late, sources, hot),
            _cite_waits(case, ranks, sum(ns for (_, line), ns in lost.items() if line.startswith("comm."))),
        ),
        strength=Strength.STRONG if is_sure else Strength.FAIR,
        certain_if=_ALL_FIXED if starved else _SEEN_LATER if kind == _UNSEEN else _certain(case, kind, ranks),
        fix=f"{_ALL_RANKS} {advise_compiling(case, _COMPILE, graphs=True)}"
        if starved
        else _LOOK_LONGER
        if kind == _UNSEEN
        else _fix(case, kind, ranks, sources),
        changes=changes if saving is None else (),
        saving=saving,
        ranks=ranks,
        suspected="" if is_sure else _doubt(late),
        record="" if is_sure else _record(late[0].found),
    )


def _record(found: SlowRank) -> str:
    """Return flags that record the steps that would settle it; empty if these are too many, or if all steps of the job
    are judged already."""
    steps = found.late.steps + (found.late.more_steps or 0)
    return "" if found.is_timed or not found.late.more_steps or steps > _MOST_STEPS else f"--steps 8:{steps}"


def _doubt(late: Sequence[LateRank]) -> str:
    first = late[0].found.late
    more = f": {pluralise(first.more_steps, 'more step')} would settle it" if first.more_steps is not None else ""
    return f"Rank {first.rank} was late {first.in_steps}{more}."


def _by_timed_steps(case: Case, late: Sequence[LateRank]) -> Estimate | None:
    """Return what all timed steps say it saves: how much later than its peers the rank enters collectives. None if the
    profiled steps agree with each other, so that a replay of them is more exact, if it is late in some of the timed
    steps only, or if nothing was timed."""
    normal = case.baseline.normal if case.baseline is not None else None
    ranks = [one.found.rank for one in late]
    if normal is None or case.baseline is None or all(_is_steady(case, rank) for rank in ranks):
        return None
    if not all(one.found.is_timed and one.found.is_late and one.found.late.since is None for one in late):
        return None
    times = leads(case.run, ranks)
    if times.size < FEWEST or not times.mean():
        return None
    lead = typical(times)
    share = min(lead.value / normal.location.value, 1.0)
    off = hypot(noise_of(lead) * share, case.baseline.noise * (1 - share))
    basis = (
        f"the {format_ns(round(lead.value))} by which "
        f"{_name_ranks(ranks).lower()} enters collectives after all others, "
        f"over {pluralise(times.size, 'timed step')}"
    )
    return Estimate.measured(share, off, basis)


def _is_steady(case: Case, rank: int) -> bool:
    """Return whether the profiled steps agree that the rank is slow."""
    comparison = case.judgement.comparison
    by_step = comparison.by_step[comparison.place(rank)]
    known = by_step[~np.isnan(by_step)]
    if known.size < 2:
        return False
    return float(known.mean()) >= _STEADY * float(known.std(ddof=1)) / sqrt(known.size)


def _over_the_run(case: Case, changes: Sequence[str], late: LateRank, drift: Drift) -> Estimate | None:
    """Return what is saved over all steps for a rank that gets slower: only a few steps are profiled, often late ones.
    None if no step was timed, or no replay shows what is lost."""
    price, found, comparison = case.price(*changes), late.found, case.judgement.comparison
    longer = found.line_excess / max(found.profiled, 1)
    lately = longer / max(float(comparison.computed[comparison.place(found.rank)]) - longer, 1.0)
    if price is None or case.timed_steps is None or not 0 < price.value < 1 or lately <= 0:
        return None
    part = max(drift.mean - 1, 0.0) / lately
    share, low, high = (
        saved * part / (1 - saved + saved * part) for saved in (price.value, max(price.ends[0], 0.0), price.ends[1])
    )
    recorded = f"{price.source} ({format_share(price.value)} in the recorded steps)"
    return Estimate(share, low, high, Kind.REPLAYED, f"{recorded}, scaled to all steps by its forward times")


def _is_no_use(case: Case, changes: Sequence[str]) -> bool:
    """Return whether nothing would be gained if these ranks dispatched as fast as the others: all hosts are then
    equally slow, and only the ranks that are a little later show it, while the others wait in collectives."""
    alike, free = case.price(*changes), case.price(_NO_DISPATCH)
    return alike is not None and free is not None and alike.value < SMALLEST < free.value


def _name_ranks(ranks: Sequence[int]) -> str:
    return f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {', '.join(map(str, ranks))}"


def _what(case: Case, kind: str, late: Sequence[LateRank]) -> str:
    first, ranks = late[0].found, sorted(one.found.rank for one in late)
    if kind == _UNSEEN:
        return " ".join(describe(one.found) for one in late)
    if len(ranks) > 1:
        says = f"{first.line} of rank {first.rank} takes {_count_more(first)} than on its peers"
        return f"{_name_ranks(ranks)} are late ({_KINDS[kind]}): {says}."
    words = _ON_THREAD if kind == "host_stall" and first.rank in case.total.on_thread else _WORDS[kind]
    return describe(first, f"{_KINDS[kind]}, {words}")


def _what_limits_all(late: Sequence[LateRank]) -> str:
    first, names = late[0].found, _name_ranks(sorted(one.found.rank for one in late)).lower()
    return (
        f"Hosts are slow on all ranks, most on {names}: the device waits for the host ({first.line}, "
        f"{_count_more(first)} on rank {first.rank} than on its peers). With only {names} as fast as the others, steps "
        "would hardly get shorter."
    )


def _count_more(found: SlowRank) -> str:
    return f"{format_ns(round(found.line_excess / max(found.profiled, 1)))} more{' per step' if found.in_steps else ''}"


def _cite_waits(case: Case, ranks: tuple[int, ...], ns: int) -> Evidence:
    who = "it" if len(ranks) == 1 else "them"
    return Evidence(f"Waits for {who} take {format_share(ns / (case.wall or 1))} of the time of all ranks.")


def _evidence(case: Case, late: Sequence[LateRank], sources: Sequence[str], hot: Sequence[Drift]) -> Iterator[Evidence]:
    for one in late:
        found = one.found
        yield Evidence(
            _cite_lateness(found),
            events=_longest(case, found.rank, found.line),
            ranks=(found.rank,),
            steps=case.scope.steps or tuple(sorted(case.total.steps)),
        )
    if sources:
        yield Evidence(
            f"Stack samples of rank {late[0].found.rank} in that time: {'; '.join(sources)}.",
            ranks=(late[0].found.rank,),
            sources=(*sources,),
        )
    for drift in hot:
        yield Evidence(
            f"Rank {drift.rank} takes {drift.first:.2f}x the time of its peers in the first quarter of the steps and "
            f"{drift.last:.2f}x in the last quarter (p = {drift.p_value:.2g}).",
            ranks=(drift.rank,),
            steps=drift.steps,
        )
    hosts = _hosts(case)
    if places := sorted({hosts[one.found.rank][0] for one in late if hosts.get(one.found.rank, ("", None))[0]}):
        ranks = tuple(sorted(one.found.rank for one in late))
        runs = "runs" if len(ranks) == 1 else "run"
        yield Evidence(f"{_name_ranks(ranks)} {runs} on {', '.join(places)}{_alone_there(case, ranks)}.", ranks=ranks)


def _cite_lateness(found: SlowRank) -> str:
    """Return in how many steps a rank is late, and how much more time it needs in the profiled ones."""
    late = found.late
    what = "comes to its collectives" if found.is_timed else "spends"
    more = "after its peers" if found.is_timed else "more than its peers outside communication"
    says = f"Rank {found.rank} {what} {format_ns(round(late.ns))} {more}, {late.in_steps}."
    if found.is_timed and found.excess > 0:
        says += f" In profiled steps it spends {format_ns(found.excess)} more outside communication."
    if found.waits_for_data:
        longer = f"{format_share(found.waits_for_data)} of a step longer"
        says += f" In the timed steps next to the newest window it waits {longer} for data than its peers."
    return says


def _alone_there(case: Case, ranks: Sequence[int]) -> str:
    """Say whether the whole host is late, or only these ranks."""
    hosts = {rank: host for rank, (host, *_) in _hosts(case).items()}
    if len({host for host in hosts.values() if host}) < 2:
        return ""
    same = [rank for rank, host in hosts.items() if host in {hosts[one] for one in ranks}]
    return ", where all ranks are late" if set(same) == set(ranks) else ", whose other ranks are not late"


def _hosts(case: Case) -> dict[int, tuple[str, int | None]]:
    return {rank: (host or "", index) for rank, host, index in case.run.rows(_HOSTS)}


def _longest(case: Case, rank: int, line: str) -> tuple[tuple[int, int], ...]:
    """Return the longest events of the line, if it consists of events."""
    steps = sorted(step for step in case.total.steps if step >= 0)
    if line != "compute" or not steps:
        return ()
    kinds = "'op'" if rank in case.total.on_thread else "'kernel'"
    query = _LONGEST.format(rank=rank, kinds=kinds, steps=", ".join(map(str, steps)), most=_MOST_EVENTS)
    return tuple((rank, event) for (event,) in case.run.rows(query))


def _sources(case: Case, late: Sequence[LateRank]) -> list[str]:
    """Return the source lines that stack samples show on the line that is late, the one with the most time first."""
    line, rank = late[0].found.line, late[0].found.rank
    if line not in HOST_LINES and rank not in case.total.on_thread:
        return []  # while a device works its host is ahead, somewhere else
    asked = Scope(case.scope.kind, (rank,), case.scope.steps)
    found = [places(one.times[line]) for one in read_samples(case.run, asked) if line in one.times]
    return [frame for frame, _ in found[0].most_common(_MOST_SOURCES)] if found else []


def _certain(case: Case, kind: str, ranks: Sequence[int]) -> str:
    who = _name_ranks(ranks).lower()
    if kind in ("slow_kernels", _HOT, "device_queue", "more_work"):
        if ranks[0] in case.total.on_thread:
            return f"start {who} on other cores or another host. If it is then on time, its cores were slow or shared."
        return f"swap the device of {who}. If the slowness stays with the old device, replace it."
    if kind == "late_data":
        return f"run {who} with batches that are already in memory. If it is then on time, its data loader is slow."
    return f"run {who} without that work on its host. If it is then on time, that was the cause."


def _fix(case: Case, kind: str, ranks: Sequence[int], sources: Sequence[str]) -> str:
    host, index = _hosts(case).get(ranks[0], ("", None))
    there = f" on {host}" if host else ""
    if kind in ("slow_kernels", "more_work", _HOT):
        if ranks[0] in case.total.on_thread:
            look = f"Check what else runs on its cores{there} (top -H; taskset -cp PID)"
            return f"{look}. Give {_name_ranks(ranks).lower()} its own cores, or exclude the host from the job."
        which = f" -i {index}" if index is not None else ""
        look = f"Check for throttling{there}: nvidia-smi{which} -q -d PERFORMANCE,CLOCK,TEMPERATURE"
        out = f"exclude the host (Slurm: --exclude={host or 'HOST'})"
        return f"{look}. Then cool, repair or replace the device, or {out}."
    if kind == "device_queue":
        which = f" -i {index}" if index is not None else ""
        look = f"List the processes that share the device{there} with nvidia-smi{which}"
        return f"{look}. Stop them, or give {_name_ranks(ranks).lower()} its own device."
    if kind == "late_data":
        what = "DataLoader(..., num_workers=4, prefetch_factor=4, persistent_workers=True, pin_memory=True)"
        what = what.replace(", pin_memory=True", "") if ranks[0] in case.total.on_thread else what
        return f"Give {_name_ranks(ranks).lower()} the same storage and workers as its peers: {what}."
    if kind == "allocation":
        return (
            f"Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
            f"on {_name_ranks(ranks).lower()}, and keep batch shapes "
            "the same from step to step."
        )
    if kind == "copies":
        return (
            "Copy from pinned memory without blocking: DataLoader(..., pin_memory=True) and "
            "tensor.to(device, non_blocking=True)."
        )
    if sources:
        return f"Move {sources[0]} out of the step: run it in a thread, or only every n steps."
    first = "" if case.run.rows(f"select 1 from samples where rank = {ranks[0]} limit 1") else _UNSAMPLED
    return (
        f"{first}Run lostflops flame RUN --rank {ranks[0]} to see what its host does between ops, and move that out of "
        "the step."
    )


RULE: Final = Rule("straggler", ABOUT, find)

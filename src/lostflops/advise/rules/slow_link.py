"""The network between hosts, or the link of one host, limits the step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.advise.claim import Claim, Rule
from lostflops.advise.signs.machine import machine
from lostflops.advise.signs.slow_host import SlowHost, hosts_of, slow_host
from lostflops.facts.bandwidth import bus_factor
from lostflops.graph.tasks import Kind
from lostflops.ledger.phases import BACKWARD
from lostflops.predict.edits.selecting import between_ranks
from lostflops.results import Evidence
from lostflops.units import format_ns, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case
    from lostflops.advise.signs.traffic import Traffic
    from lostflops.graph.tasks import Flags

_SMALLEST: Final = 0.15
"""Of all time, that exposed transfers between hosts must take: some are there however fast a network is."""
_HIDES: Final = 0.8
"""Of the compute that could hide them, from which on no order of work can hide transfers."""
_APART: Final = 0.5
"""Bandwidth of a group, of what others of its shape have, below which its link is the slow one."""
_SLOW_HOST: Final = 0.05
"""Of all time, that exposed transfers with a slow host must take: here others show what a link can do."""
_TRIED: Final = ("2x", "4x", "10x", "20x")
_NEAR: Final = 0.02


def _find(case: Case) -> Iterator[Claim]:
    made = case.traffic
    host = slow_host(case, made)
    if host is not None:
        with_host = np.isin(made.meeting, list(host.meetings))
        if int((made.exposed + made.waited)[with_host].sum()) >= _SLOW_HOST * case.wall:
            yield _of_host(case, made, with_host, host)
            return
    told = made.graph.meetings
    across = (told.hosts > 1) & ~between_ranks(made.graph) & ~made.by_hand
    rows = made.of(across & (told.size > 0))
    if not rows.any() or int(made.exposed[rows].sum()) < _SMALLEST * case.wall:
        return
    slow = _slow_groups(made, rows)
    compute = _compute(made, backward=bool(made.of(made.in_backward & across).any()))
    took = _took(made, rows)
    if not slow and took < _HIDES * compute:
        return
    chosen = rows & np.isin(told.group[made.meeting], slow) if slow else rows
    yield Claim(
        cause="slow_link",
        what=_what(case, made, rows, slow),
        taken=made.taken(chosen),
        evidence=tuple(_evidence(made, chosen, slow, (took, compute))),
        confidence=0.85 if slow else 0.8,
        certain_if="run lostflops calibrate on these hosts without the job: it measures each link by itself.",
        fix=_fix(case, "the hosts"),
        changes=(f"network.bandwidth={_factor(case)}",),
        ranks=tuple(np.unique(made.rank[chosen]).tolist()) if slow else (),
    )


def _of_host(case: Case, made: Traffic, rows: Flags, found: SlowHost) -> Claim:
    ranks = tuple(rank for rank, host in sorted(hosts_of(case).items()) if host == found.host)
    listed = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    return Claim(
        cause="slow_link",
        what=(
            f"The link of host {found.host} ({listed}) is slow: transfers with it run at "
            f"{format_share(found.rate / found.others)} of the rate of others."
        ),
        taken=made.taken(rows),
        evidence=(
            Evidence(
                f"{found.transfers:,} transfers with {found.host} move {found.rate:.3g} GB/s, transfers of the same "
                f"kind and size between other hosts {found.others:.3g} GB/s (lower quartile, busbw)",
                events=made.examples(rows),
                ranks=ranks,
                steps=made.steps(rows),
            ),
        ),
        confidence=0.85,
        certain_if=f"run lostflops calibrate on these hosts without the job, once with {found.host} and once without.",
        fix=_fix(case, found.host),
        changes=(f"network.bandwidth={_factor(case)}",),
        ranks=ranks,
    )


def _fix(case: Case, where: str) -> str:
    on = machine(case)
    interface = on.pick(
        gpu="NCCL_DEBUG=INFO names the interface in use, NCCL_SOCKET_IFNAME or NCCL_IB_HCA selects it",
        cpu="GLOO_SOCKET_IFNAME selects the interface",
    )
    return (
        f"Check what the link of {where} should carry (ethtool; iperf3 between hosts); {interface}. Until it is "
        f"repaired, send less: model.register_comm_hook(None, default_hooks.{on.half_hook}), or no_sync() over more "
        "microbatches."
    )


def _took(made: Traffic, rows: Flags) -> int:
    """Of a rank and step."""
    return int(made.took[rows].sum()) // max(len(made.graph.steps), 1)


def _compute(made: Traffic, *, backward: bool) -> int:
    """What could hide transfers in a step: the backward pass where gradients are reduced, else all compute."""
    tasks = made.graph.tasks
    own = (tasks.kind == Kind.KERNEL) & (tasks.step >= 0)
    if backward:
        own &= tasks.phase == BACKWARD
    return int(tasks.duration[own].sum()) // max(len(made.graph.steps), 1)


def _rate(made: Traffic, rows: Flags) -> float:
    """Bytes per ns that cross a link, of the middle call."""
    told, meeting = made.graph.meetings, made.meeting[rows]
    words = made.graph.words
    factors = [bus_factor(words[told.op[one]], int(told.ranks[one])) or 1.0 for one in meeting.tolist()]
    return float(np.median(made.size[rows] * np.array(factors) / np.maximum(made.took[rows], 1)))


def _slow_groups(made: Traffic, rows: Flags) -> list[int]:
    """Groups that are far slower than others with as many ranks and hosts."""
    told = made.graph.meetings
    group = told.group[made.meeting]
    rates: dict[tuple[int, int], dict[int, float]] = {}
    for one in np.unique(group[rows]).tolist():
        own = rows & (group == one)
        first = int(made.meeting[np.flatnonzero(own)[0]])
        rates.setdefault((int(told.ranks[first]), int(told.hosts[first])), {})[one] = _rate(made, own)
    found = []
    for own_rates in rates.values():
        usual = float(np.median(list(own_rates.values())))
        found += [one for one, rate in own_rates.items() if len(own_rates) > 2 and rate < _APART * usual]
    return found


def _factor(case: Case) -> str:
    """The smallest that gains about what the largest does."""
    gains = [found.gain if (found := case.price(f"network.bandwidth={one}")) is not None else 0.0 for one in _TRIED]
    return next(one for one, gain in zip(_TRIED, gains, strict=True) if gain >= max(gains) - _NEAR)


def _what(case: Case, made: Traffic, rows: Flags, slow: list[int]) -> str:
    if slow:
        names = ", ".join(made.graph.words[one] for one in slow[:3])
        return f"Transfers of some ranks are far slower than those of others: group {names}."
    count = len(set(hosts_of(case).values()))
    is_everywhere = count > 1 and bool((made.graph.meetings.hosts[made.meeting[rows]] == count).all())
    which = " Every transfer involves every host, so the slow host is not known." if is_everywhere else ""
    return f"The network between hosts limits the step: transfers take longer than compute could hide.{which}"


def _evidence(made: Traffic, rows: Flags, slow: list[int], times: tuple[int, int]) -> Iterator[Evidence]:
    took, compute = times
    yield Evidence(
        f"transfers between hosts take {format_ns(took)} a step at {_rate(made, rows):.3g} GB/s (busbw, median); the "
        f"compute that could hide them takes {format_ns(compute)} and hides {format_share(made.hidden(rows))}",
        events=made.examples(rows),
        steps=made.steps(rows),
    )
    told = made.graph.meetings
    inside = made.of((told.hosts == 1) & (told.ranks > 1) & (told.size > 0))
    if inside.any():
        yield Evidence(f"inside hosts collectives of this run reach {_rate(made, inside):.3g} GB/s")
    if slow:
        others = made.of((told.hosts > 1) & (told.size > 0) & ~np.isin(told.group, slow))
        yield Evidence(f"other groups between hosts reach {_rate(made, others):.3g} GB/s")


RULE: Final = Rule(
    cause="slow_link",
    about=(
        "Gradients and activations travel between hosts over a network. If it is slower than compute, steps last as "
        "long as the network needs, however well the two overlap. Often one adapter runs at a lower rate, or traffic "
        "takes the wrong interface."
    ),
    find=_find,
)

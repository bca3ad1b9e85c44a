"""The network between hosts, or the link of one host, limits the step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.facts.bandwidth import bus_factor
from lostflops.account.ledger.phases import BACKWARD
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.machine import machine
from lostflops.explain.advise.signs.slow_host import SlowHost, hosts_of, slow_host
from lostflops.explain.advise.signs.traffic import traffic_of
from lostflops.predict.graph.tasks import TaskKind
from lostflops.predict.whatif.graph_edits.selecting import between_ranks

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.traffic import Traffic
    from lostflops.predict.graph.tasks import Flags

_SMALLEST: Final = 0.15
"""Exposed transfers between hosts must take at least this share of the time of all ranks: any network exposes some."""
_HIDES: Final = 0.8
"""No order of work can hide transfers that take at least this part of the compute that could hide them."""
_APART: Final = 0.5
"""The link of a group is slow if its bandwidth is below this part of that of similar groups."""
_SLOW_HOST: Final = 0.05
"""The smallest share of exposed transfers and waits if one host is slow: here other hosts show the normal bandwidth."""
_TRIED: Final = ("2x", "4x", "10x", "20x")
_NEAR: Final = 0.02


def _find(case: Case) -> Iterator[Claim]:
    made = traffic_of(case)
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
        taken=made.attribute(chosen),
        evidence=tuple(_evidence(made, chosen, slow, (took, compute))),
        strength=Strength.STRONG if slow else Strength.FAIR,
        certain_if="stop the job and run lostflops calibrate on these hosts, which measures each link alone.",
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
            f"The link of host {found.host} ({listed}) is slow: it reaches "
            f"{format_share(found.rate / found.others)} of the bandwidth of other hosts."
        ),
        taken=made.attribute(rows),
        evidence=(
            Evidence(
                f"{found.transfers:,} transfers with {found.host} reach {found.rate:.3g} GB/s; the same transfers "
                f"between other hosts reach {found.others:.3g} GB/s (lower quartile, busbw)",
                events=made.examples(rows),
                ranks=ranks,
                steps=made.steps(rows),
            ),
        ),
        strength=Strength.STRONG,
        certain_if=f"stop the job and run lostflops calibrate, once with {found.host} and once without it.",
        fix=_fix(case, found.host),
        changes=(f"network.bandwidth={_factor(case)}",),
        ranks=ranks,
    )


def _fix(case: Case, where: str) -> str:
    on = machine(case)
    interface = on.pick(
        gpu="Check the interface with NCCL_DEBUG=INFO; select it with NCCL_SOCKET_IFNAME or NCCL_IB_HCA",
        cpu="Select the right interface with GLOO_SOCKET_IFNAME",
    )
    return (
        f"Test the link of {where} (ethtool; iperf3 between hosts). {interface}. Until it is fixed, send less: "
        f"model.register_comm_hook(None, default_hooks.{on.half_hook}), or no_sync() over more microbatches."
    )


def _took(made: Traffic, rows: Flags) -> int:
    """Return the transfer time per step, in ns."""
    return int(made.took[rows].sum()) // max(len(made.graph.steps), 1)


def _compute(made: Traffic, *, backward: bool) -> int:
    """Return the compute that could hide transfers in a step, in ns: the backward pass if gradients are reduced,
    otherwise all."""
    tasks = made.graph.tasks
    own = (tasks.kind == TaskKind.KERNEL) & (tasks.step >= 0)
    if backward:
        own &= tasks.phase == BACKWARD
    return int(tasks.duration[own].sum()) // max(len(made.graph.steps), 1)


def _rate(made: Traffic, rows: Flags) -> float:
    """Return the bytes per ns that cross a link, for the median call."""
    told, meeting = made.graph.meetings, made.meeting[rows]
    words = made.graph.words
    factors = [bus_factor(words[told.op[one]], int(told.ranks[one])) or 1.0 for one in meeting.tolist()]
    return float(np.median(made.size[rows] * np.array(factors) / np.maximum(made.took[rows], 1)))


def _slow_groups(made: Traffic, rows: Flags) -> list[int]:
    """Return the groups that are far slower than others with as many ranks and hosts."""
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
    """Return the smallest factor that gains about as much as the best one."""
    gains = [found.value if (found := case.price(f"network.bandwidth={one}")) is not None else 0.0 for one in _TRIED]
    return next(one for one, gain in zip(_TRIED, gains, strict=True) if gain >= max(gains) - _NEAR)


def _what(case: Case, made: Traffic, rows: Flags, slow: list[int]) -> str:
    if slow:
        names = ", ".join(made.graph.words[one] for one in slow[:3])
        return f"Transfers in group {names} are far slower than in similar groups."
    count = len(set(hosts_of(case).values()))
    is_everywhere = count > 1 and bool((made.graph.meetings.hosts[made.meeting[rows]] == count).all())
    which = " Every transfer involves all hosts, so no single host can be named." if is_everywhere else ""
    return f"The network between hosts limits the step: transfers take longer than compute can hide.{which}"


def _evidence(made: Traffic, rows: Flags, slow: list[int], times: tuple[int, int]) -> Iterator[Evidence]:
    took, compute = times
    yield Evidence(
        f"transfers between hosts take {format_ns(took)} per step at {_rate(made, rows):.3g} GB/s (busbw, median); the "
        f"compute that could hide them takes {format_ns(compute)} and hides {format_share(made.share_hidden(rows))}",
        events=made.examples(rows),
        steps=made.steps(rows),
    )
    told = made.graph.meetings
    inside = made.of((told.hosts == 1) & (told.ranks > 1) & (told.size > 0))
    if inside.any():
        yield Evidence(f"collectives inside hosts reach {_rate(made, inside):.3g} GB/s")
    if slow:
        others = made.of((told.hosts > 1) & (told.size > 0) & ~np.isin(told.group, slow))
        yield Evidence(f"other groups between hosts reach {_rate(made, others):.3g} GB/s")


RULE: Final = Rule(
    cause="slow_link",
    about=(
        "Gradients and activations travel between hosts over the network. If the network needs longer than compute, it "
        "sets the step time, however well the two overlap. Often one adapter runs at a lower rate, or traffic uses the "
        "wrong interface."
    ),
    find=_find,
)

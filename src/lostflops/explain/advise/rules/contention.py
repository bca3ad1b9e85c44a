"""A rank shares its core with another process."""

from __future__ import annotations

from collections.abc import Iterator
from math import hypot
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.pace.blocks import typical
from lostflops.account.pace.lateness import leads
from lostflops.account.pace.normal import FEWEST
from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_share, pluralise
from lostflops.explain.advise.claim import Claim, NotChecked
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.pressure import Pressure, find_cpu_starved_ranks, pressure
from lostflops.explain.advise.signs.waiting import attribute_lateness
from lostflops.predict.whatif.interval import noise_of

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.series import Values

_MOST_STEPS: Final = 10


def _find(case: Case) -> Iterator[Claim]:
    found = pressure(case)
    if found is None:
        raise NotChecked("waits for CPU cores were not recorded: record with this version of Lostflops on Linux")
    late = find_cpu_starved_ranks(case)
    known = set(case.judgement.comparison.ranks.tolist())
    later = leads(case.run, list(late)) if late else np.empty(0)
    for rank in sorted(late, key=lambda one: -late[one]):
        if rank in known:
            yield _claim(case, found, rank, late[rank], _measure_saving(case, rank, found.beyond(rank), later))


def _claim(case: Case, found: Pressure, rank: int, more: float, saving: Estimate | None) -> Claim:
    waits, beyond = float(np.nanmedian(found.of(rank))), found.beyond(rank)
    host = _host(case, rank)
    worst = np.argsort(-np.nan_to_num(beyond))[:_MOST_STEPS]
    return Claim(
        cause="contention",
        what=(
            f"Rank {rank} shares its core with another process: it waits {format_share(waits)} of each step for a "
            f"core, its peers {format_share(max(waits - more, 0.0))}."
        ),
        taken=attribute_lateness(case, (rank,)),
        evidence=(
            Evidence(
                f"rank {rank} waits longer for a core than its peers in {int((beyond > 0).sum())} of "
                f"{pluralise(len(found.step), 'normal step')}, with the same CPU time (schedstat)",
                ranks=(rank,),
                steps=tuple(sorted(found.step[at] for at in worst.tolist())),
            ),
        ),
        strength=Strength.STRONG,
        certain_if=f"give rank {rank} its own core: it must then be as fast as its peers.",
        fix=(
            f"Find what else runs on the cores of rank {rank}{host} (top -H; taskset -cp PID), and move or stop it. "
            "Give every rank its own cores: torchrun --numa-binding=exclusive, or taskset or numactl --physcpubind per "
            "rank (Slurm: --exclusive; Kubernetes: whole CPUs and the static CPU manager policy)."
        ),
        changes=(f"straggler={rank}",) if saving is None else (),
        saving=saving,
        ranks=(rank,),
        instead_of=("straggler", "throttling"),
    )


def _measure_saving(case: Case, rank: int, beyond: Values, later: Values) -> Estimate | None:
    """Return what a core of its own saves according to all settled steps: how much longer the rank waits for a core
    than its peers, but at most how much later such ranks arrive than the others. None if unknown, as on accelerators,
    whose queues hide a late host."""
    normal = case.baseline.normal if case.baseline is not None else None
    known = beyond[np.isfinite(beyond)]
    if normal is None or case.baseline is None or rank not in case.total.on_thread:
        return None
    if min(known.size, later.size) < FEWEST:
        return None
    waited = typical(np.maximum(known, 0.0))
    share, doubt = waited.value, noise_of(waited) * waited.value
    lead = typical(later)
    if lead.value < share * normal.location.value:
        share = lead.value / normal.location.value
        doubt = noise_of(lead) * share
    doubt = hypot(doubt, case.baseline.noise * (1 - share))
    basis = f"how much longer than its peers it waits for a core, in {pluralise(known.size, 'normal step')}"
    return Estimate.measured(share, doubt, basis)


def _host(case: Case, rank: int) -> str:
    rows = case.run.rows(f"select host from ranks where rank = {rank} and host is not null")
    return f" on host {rows[0][0]}" if rows else ""


RULE: Final = Rule(
    cause="contention",
    about=(
        "Another process runs on a rank's core: a daemon, another job, or a second rank pinned to the same core. The "
        "rank stops while the other process has the core, and all ranks wait for it. Its device and its code are fine; "
        "the scheduler's statistics show the time as run-queue wait."
    ),
    find=_find,
)

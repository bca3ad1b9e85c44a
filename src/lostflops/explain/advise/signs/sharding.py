"""FSDP's units and collectives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.explain.advise.signs.job_facts import job_facts
from lostflops.explain.advise.signs.traffic import traffic_of
from lostflops.explain.advise.signs.where import has_frame, match_samples
from lostflops.predict.whatif.graph_edits.reductions import select_collectives

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Place
    from lostflops.explain.advise.signs.traffic import Traffic
    from lostflops.predict.graph.tasks import Flags

_FSDP: Final = has_frame(re.compile(r"\S+ \S*torch/distributed/fsdp/"))
_HOST: Final = ("idle.python", "idle.host")
_UNITS: Final = """
    select unit, sum(bytes) from parameters
    where rank = (select min(rank) from parameters) and unit is not null group by unit"""


@dataclass(frozen=True, slots=True)
class Sharding:
    """FSDP's units, and its collectives."""

    traffic: Traffic
    units: tuple[int, ...]
    """Bytes of each unit, on all ranks together."""
    gathers: Flags
    """Rows of the traffic that gather parameters."""
    reductions: Flags
    """Rows of the traffic that reduce gradients, which gloo does by all-reduce."""
    wall: int

    def share(self, rows: Flags) -> float:
        """Return the share of all time in which these calls are exposed, including waits for other ranks."""
        return int((self.traffic.exposed + self.traffic.waited)[rows].sum()) / (self.wall or 1)

    def attribute(self, rows: Flags) -> dict[Place, int]:
        return self.traffic.attribute(rows) | self.traffic.attribute(rows, "comm.wait")

    def calls(self, rows: Flags) -> float:
        """Return how many of these calls a rank makes in a step."""
        return self.traffic.a_step(rows)


def host_share(case: Case) -> float:
    """Return the share of all time in which hosts run code of FSDP while nothing else goes on."""
    held = ((line, match_samples(case.total, line, _FSDP)) for line in _HOST)
    return sum(one.share * case.total.share(line) for line, one in held if one is not None)


def sharding(case: Case) -> Sharding | None:
    """Return the sharding of the job; None if FSDP shards nothing. Raise `UnknownCost` if the run cannot be
    replayed."""
    if not job_facts(case, "fsdp"):
        return None
    made, ranks = traffic_of(case), len(case.lines)
    units = tuple(int(size) * ranks for _, size in case.run.rows(_UNITS))
    if not units:
        return None
    gathers = made.of(select_collectives(made.graph, "all_gather"))
    least = min(units) // (2 * ranks)
    reductions = made.of(select_collectives(made.graph, "reduce_scatter", "all_reduce")) & (made.size >= least)
    return Sharding(made, units, gathers, reductions, case.wall)

"""Cost of late ranks on the ledger: the waits of the others, and their own extra time compared with their peers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from lostflops.account.late.charges import charges
from lostflops.account.late.comparison import OWN_LINES
from lostflops.account.ledger.lines import WAIT_LINES

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Place


def attribute_lateness(case: Case, late: Collection[int]) -> dict[Place, int]:
    """Attribute waits and their own extra time to late ranks that all waits may be charged to."""
    return attribute_waits(case, late) | own_excess(case, late)


def attribute_waits(case: Case, late: Collection[int]) -> dict[Place, int]:
    """Attribute to these ranks the waits of others for them, directly and through other ranks."""
    found = case.judgement
    due = charges(found.profiles, found.comparison, sorted(late))
    charged = sum(float(due[found.comparison.place(rank)]) for rank in late)
    direct, rest = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for one in found.profiles:
        for wait in one.waited:
            side = direct if wait.late in late else rest
            side[one.rank, WAIT_LINES[1] if wait.is_transfer else WAIT_LINES[0]] += wait.ns
    share = min(max(charged - direct.total(), 0.0) / max(rest.total(), 1), 1.0)
    kept = min(charged / max(direct.total(), 1), 1.0)
    places = direct.keys() | rest.keys()
    return {place: round(direct[place] * kept + rest[place] * share) for place in sorted(places)}


def own_excess(case: Case, late: Collection[int]) -> dict[Place, int]:
    """Return the extra time of each of these ranks compared with its peers, on the lines that have it."""
    comparison, found = case.judgement.comparison, {}
    for rank in late:
        place = comparison.place(rank)
        more = np.maximum(comparison.lines[place], 0.0)
        whole = max(float(comparison.excess[place]), 0.0) * int(comparison.counts[place])
        for line, part in zip(OWN_LINES, (more / max(float(more.sum()), 1.0)).tolist(), strict=True):
            if ns := round(whole * part):
                found[rank, line] = ns
    return found

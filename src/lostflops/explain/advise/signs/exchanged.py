"""Bytes that each rank receives in all-to-alls: popular experts receive more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lostflops.explain.advise.case import Case

_RECEIVED: Final = """
    select rank, sum(bytes_out)::double from enqueues where op = 'all_to_all' and bytes_out is not null group by rank"""
_LEAST: Final = 1.15
"""Times what its peers get, from which on a rank gets more."""


def received_more(case: Case, rank: int, peers: Sequence[int]) -> float | None:
    """Return how many times the bytes of its peers a rank gets in all-to-all exchanges; None where it gets no more, or
    there are none."""
    found = dict(case.run.sql(_RECEIVED).fetchall())
    others = [found[one] for one in peers if one != rank and found.get(one)]
    if rank not in found or not others:
        return None
    times = float(found[rank] / np.median(others))
    return times if times >= _LEAST else None

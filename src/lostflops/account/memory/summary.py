"""The memory of a run in one line, for its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lostflops.account.memory.answers import in_one_line
from lostflops.account.memory.devices import in_question
from lostflops.account.memory.peak import peak_of
from lostflops.account.memory.read import memories
from lostflops.core.results import Pair, Pairs

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_EVENTS: Final = 2_000_000
"""With more events a report does not wait for owners."""


def summary(run: Run, ranks: Sequence[int]) -> Pairs | None:
    """Return the highest peak; None if no memory was recorded."""
    chosen = ", ".join(map(str, ranks))
    ((recorded, events),) = run.rows(
        f"""select (select count(*) from memory where rank in ({chosen})),
            (select coalesce(sum(events), 0)::bigint from ranks where rank in ({chosen}))"""
    )
    if not recorded:
        return None
    if events > MOST_EVENTS:
        return Pairs("memory", "Memory", (Pair("peak", "recorded, but the run is large: use lostflops memory"),))
    peaks = in_question([peak_of(found) for found in memories(run, ranks)])
    if not peaks:
        return None
    highest = max(peaks, key=lambda one: (one.bytes, -one.rank))
    items = (
        Pair("peak", in_one_line(highest)),
        Pair("bytes", highest.bytes, "bytes", shown=False),
        Pair("rank", highest.rank, shown=False),
        Pair("device", highest.device, shown=False),
        Pair("owner", highest.largest[0][0].value if highest.largest else None, shown=False),
        Pair("owner_share", highest.largest[0][1] / highest.bytes if highest.largest else None, "share", shown=False),
        Pair("unattributed_share", highest.unattributed_share, "share", shown=False),
    )
    return Pairs("memory", "Memory", items)

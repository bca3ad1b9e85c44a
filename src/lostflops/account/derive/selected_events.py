"""Kernels and collectives of a selection, cut at its edges and summed by queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lostflops.account.ledger.host_traits import NOT_COMPUTE, traits
from lostflops.account.ledger.record import UNKNOWN_GROUP, UNKNOWN_OP

if TYPE_CHECKING:
    from lostflops.store.run import Run

Row = tuple[Any, ...]
RankEdges = Mapping[int, tuple[int, int]]
"""Start and end of a selection on the own clock of each rank."""
_MOST_LISTED: Final = 64
"""Queries look for more ranks than this only by joining the edges: a long list takes as long as the join."""

_KERNELS: Final = """
    select coalesce(name, ''), count(*), sum(least(start + dur, last) - greatest(start, first))::bigint
    from events join {edges} using (rank)
    where {inside} and kind = 'kernel' and start < last and start + dur > first group by 1"""
_TRAINING_LANES: Final = """
    select rank, lane from (
        select rank, lane, true as has_steps, count(*) as count from steps where {chosen} group by all
        union all
        select rank, lane, false, count(*) from events where {chosen} and kind = 'op' group by all
    ) qualify row_number() over (partition by rank order by has_steps desc, count desc, lane) = 1"""
# An op inside another has no time of its own, as in the ledger: of two at once, the first started gets the time.
_OPS: Final = """
    with ops as (
        select name, start, start + dur as stop, first, last,
               greatest(start, max(start + dur) over (
                   partition by rank order by start, dur desc, event rows between unbounded preceding and 1 preceding
               )) as begins
        from events join {edges} using (rank) join (values {lanes}) as lanes (rank, lane) using (rank, lane)
        where {inside} and kind = 'op' and start < last and start + dur > first
          and {computes}
    )
    select coalesce(name, ''), count(*), sum(least(stop, last) - greatest(begins, first))::bigint
    from ops where least(stop, last) > greatest(begins, first) group by 1"""
_COLLECTIVES: Final = """
    with calls as (
        select coalesce(op, '{unknown_op}') as op, coalesce(group_id, '{unknown_group}') as group_id, stop, last,
               greatest(start, first) as begins, least(start + coalesce(wait, 0), stop, last) as ready
        from collectives join {edges} using (rank)
        left join arrivals using (rank, event)
        where {inside} and start < last and stop > first
    )
    select op, group_id, count(*), sum(least(stop, last) - begins)::bigint, sum(greatest(ready - begins, 0))::bigint
    from calls group by op, group_id"""


@dataclass(frozen=True, slots=True)
class SelectedKernel:
    """Runs of one kernel inside a selection; on a CPU rank, of an op that computes."""

    name: str
    count: int
    """Number of runs that are inside, at least in part."""
    ns: int
    """Their time inside; kernels that run at once count in full."""


@dataclass(frozen=True, slots=True)
class SelectedCollective:
    """Calls of one operation in a group inside a selection."""

    op: str
    group: str
    count: int
    """Number of calls on all ranks that are inside, at least in part."""
    ns: int
    """Their time inside, hidden or not."""
    wait: int
    """Part of `ns` in which a member of the group was missing."""


def list_edges(edges: RankEdges) -> str:
    """Return the edges as a table for SQL, with the columns rank, first and last."""
    rows = ", ".join(f"({rank}, {first}, {last})" for rank, (first, last) in edges.items())
    return f"(values {rows}) as edges (rank, first, last)"


def limit_rows(edges: RankEdges, stop: str) -> str:
    """Return a condition that all rows inside the edges satisfy, with which a query skips parts of files.

    `stop` is SQL for the end of a row.
    """
    first, last = outer_edges(edges)
    return f"{limit_ranks(edges)} and start < {last} and {stop} > {first}"


def limit_ranks(edges: RankEdges) -> str:
    """Return a condition that the rows of these ranks satisfy, and of no others if the ranks are few."""
    return _choose_ranks(edges) if len(edges) <= _MOST_LISTED else f"rank between {min(edges)} and {max(edges)}"


def outer_edges(edges: RankEdges) -> tuple[int, int]:
    """Return the first start and the last end of all ranks."""
    return min(first for first, _ in edges.values()), max(last for _, last in edges.values())


def ask_rows(run: Run, query: str) -> list[Row]:
    """Return the rows of a query without nulls; the run does not keep them, because a query with edges is long."""
    columns = run.columns(query).values()
    return list(zip(*(column.tolist() for column in columns), strict=True))


def select_kernels(run: Run, edges: RankEdges, on_thread: Sequence[int]) -> tuple[SelectedKernel, ...]:
    """Return the kernels of ranks with a device, and the ops of the ranks `on_thread`, which have none."""
    found = _sum_kernels(run, {rank: own for rank, own in edges.items() if rank not in on_thread})
    found += _sum_ops(run, {rank: edges[rank] for rank in on_thread})
    counts, times = Counter[str](), Counter[str]()
    for name, count, ns in found:
        counts[name] += count
        times[name] += ns
    kernels = (SelectedKernel(name, counts[name], ns) for name, ns in times.items())
    return tuple(sorted(kernels, key=lambda one: (-one.ns, one.name)))


def _sum_kernels(run: Run, edges: RankEdges) -> list[Row]:
    if not edges:
        return []
    return ask_rows(run, _KERNELS.format(edges=list_edges(edges), inside=limit_rows(edges, "start + dur")))


def _sum_ops(run: Run, edges: RankEdges) -> list[Row]:
    if not edges:
        return []
    chosen = _choose_ranks(edges)
    lanes = ", ".join(map(str, run.rows(_TRAINING_LANES.format(chosen=chosen))))
    names = [name for (name,) in run.rows(f"select distinct name from events where {chosen} and kind = 'op'")]
    skipped = ", ".join(_quote(name) for name in names if name and traits("op", name) & NOT_COMPUTE)
    query = _OPS.format(
        edges=list_edges(edges),
        lanes=lanes,
        inside=limit_rows(edges, "start + dur"),
        computes=f"coalesce(name, '') not in ({skipped})" if skipped else "true",
    )
    return ask_rows(run, query) if lanes else []


def select_collectives(run: Run, edges: RankEdges) -> tuple[SelectedCollective, ...]:
    if not edges:
        return ()
    query = _COLLECTIVES.format(
        edges=list_edges(edges), inside=limit_rows(edges, "stop"), unknown_op=UNKNOWN_OP, unknown_group=UNKNOWN_GROUP
    )
    found = (SelectedCollective(*row) for row in ask_rows(run, query))
    return tuple(sorted(found, key=lambda one: (-one.ns, one.op, one.group)))


def _choose_ranks(edges: RankEdges) -> str:
    return f"rank in ({', '.join(map(str, edges))})"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

"""What if late ranks were as fast as their peers?"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Final

from lostflops.core.errors import NotApplicable, UsageError
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.cohorts import cohorts
from lostflops.predict.whatif.graph_edits.delays import without_waits
from lostflops.predict.whatif.graph_edits.late_ranks import AlikeTasks, cap_late_ranks, find_alike_tasks
from lostflops.predict.whatif.memory_edits.unchanged_memory import keep_memory_unchanged

_DOUBT: Final = 0.1
_TRIED: Final = 3
"""Number of ranks that are not late on which the effect of chance is measured."""
_REMOVED: Final = "removed"


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    kinds = [kind for kind in cohorts(graph) if len(kind) > 1]
    if not kinds:
        raise NotApplicable("no two recorded ranks do the same work in one collective: nothing to compare")
    chosen = _parse_rank(graph, kinds, value) if value != _REMOVED else _all_late(kinds, facts)
    base, shorter = without_waits(graph)
    changed, alike = base, cache(partial(find_alike_tasks, base))
    for kind in kinds:
        late = [rank for rank in kind if rank in chosen]
        if 0 < len(late) < len(kind):
            known = alike(tuple(kind)) if changed is base else None
            changed = cap_late_ranks(changed, late, [rank for rank in kind if rank not in late], known)
    said = ", ".join(map(str, sorted(chosen)))
    note = (
        f"Between two collectives, tasks of rank {said} take no longer than the median of the peers; tasks that the "
        "peers do not have are removed."
    )
    return Edited(
        graph=changed,
        doubt=_DOUBT,
        notes=(note,),
        extra={"ranks": sorted(chosen)},
        off=_chance(base, kinds, chosen, alike) + shorter,
    )


def _chance(
    graph: TaskGraph, kinds: list[list[int]], late: set[int], alike: Callable[[tuple[int, ...]], AlikeTasks]
) -> float:
    """Return the mean gain from capping ranks that are not late: that much of the answer may be ordinary variation of
    steps. `alike` finds the tasks of a kind."""
    step = replay(graph).mean_step
    tried = [(rank, kind) for kind in kinds if late & set(kind) for rank in kind if rank not in late][:_TRIED]
    gains = []
    for rank, kind in tried:
        peers = [one for one in kind if one != rank]
        gains.append(step - replay(cap_late_ranks(graph, [rank], peers, alike(tuple(kind)))).mean_step)
    return max(sum(gains) / max(len(gains), 1), 0.0)


def _parse_rank(graph: TaskGraph, kinds: list[list[int]], value: str) -> set[int]:
    if not value.isdecimal() or int(value) not in graph.ranks:
        raise UsageError(f"straggler={value}: give {_REMOVED} or a rank from {graph.ranks[0]} to {graph.ranks[-1]}")
    if not any(int(value) in kind for kind in kinds):
        raise NotApplicable(f"no other rank does the same work as rank {value}: nothing to compare it with")
    return {int(value)}


def _all_late(kinds: list[list[int]], facts: Facts) -> set[int]:
    """Return the ranks that `lostflops ranks` calls late."""
    found = set(facts.late() if facts.late is not None else ()) & {rank for kind in kinds for rank in kind}
    if not found:
        raise NotApplicable("no rank is late (see lostflops ranks). To try a rank anyway, name it, as in straggler=2")
    return found


def _how(value: str) -> str:
    which = "" if value == _REMOVED else f" of rank {value}"
    return f"find the cause{which} with lostflops ranks: replace the node, move its data or give it less work"


CHANGE: Final = Change(
    name="straggler",
    form="straggler=removed|RANK",
    about="late ranks are as fast as their peers",
    cost="no cost for training; the cause has to be found",
    how=_how,
    apply=_apply,
    tried=(_REMOVED,),
    again=True,
    remember=keep_memory_unchanged("Timing does not change what a rank allocates."),
)

"""What if late ranks were as fast as their peers?"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.core.errors import NotApplicable, UsageError
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.cohorts import cohorts, own_times
from lostflops.predict.whatif.graph_edits.delays import without_waits
from lostflops.predict.whatif.graph_edits.late_ranks import AlikeTasks, cap_late_ranks, find_alike_tasks
from lostflops.predict.whatif.memory_edits.unchanged_memory import keep_memory_unchanged

SMALLEST: Final = 0.03
"""A rank is late if its own time exceeds that of its peers by at least this share of the step, on average."""
IN_ONE_STEP: Final = 0.15
"""A rank is late in a single step if it exceeds its peers by at least this share of the step there."""
_ABOVE_OTHERS: Final = 3.0
"""A late rank exceeds its peers by at least this many times their typical difference."""
_FEW: Final = 4
"""At most one in this many ranks may be late in single steps; if more are, none of them counts."""
_DOUBT: Final = 0.1
_TRIED: Final = 3
"""Number of ranks that are not late on which the effect of chance is measured."""
_REMOVED: Final = "removed"


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    kinds = [kind for kind in cohorts(graph) if len(kind) > 1]
    if not kinds:
        raise NotApplicable("no two recorded ranks do the same work in one collective: nothing to compare")
    chosen = _parse_rank(graph, kinds, value) if value != _REMOVED else _all_late(graph, kinds, facts)
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


def _all_late(graph: TaskGraph, kinds: list[list[int]], facts: Facts) -> set[int]:
    """Return the ranks that the diagnosis calls late, so that both are about the same ranks; decide from the graph if
    there is no diagnosis."""
    if facts.late is None:
        return _late(graph, kinds)
    found = set(facts.late()) & {rank for kind in kinds for rank in kind}
    if not found:
        raise NotApplicable("no rank is late (see lostflops ranks). To try a rank anyway, name it, as in straggler=2")
    return found


def _late(graph: TaskGraph, kinds: list[list[int]]) -> set[int]:
    times, _ = own_times(graph)
    step = replay(graph).mean_step
    found: set[int] = set()
    for kind in kinds:
        own = times[np.searchsorted(graph.ranks, kind)]
        with np.errstate(invalid="ignore"):
            excess = own - np.sort(own, axis=0)[(len(kind) - 1) // 2]
        excess = np.nan_to_num(excess)
        always = [at for at in range(len(kind)) if _always_late(excess, at, step)]
        once = [at for at in range(len(kind)) if _late_once(excess, at, step)]
        # Where several are late now and then, nobody is: it is how steps of this job differ.
        late = {*always, *once} if len(once) <= max(1, len(kind) // _FEW) else always
        found |= {kind[at] for at in late}
    if not found:
        raise NotApplicable(
            f"no rank is late: none exceeds its peers by {SMALLEST:.0%} of the step and {_ABOVE_OTHERS:g}x their usual "
            "difference. To try a rank anyway, name it, as in straggler=2"
        )
    return found


def _always_late(excess: npt.NDArray[np.float64], at: int, step: float) -> bool:
    mean = excess.mean(axis=1)
    return bool(mean[at] >= max(SMALLEST * step, _ABOVE_OTHERS * float(np.median(np.abs(np.delete(mean, at))))))


def _late_once(excess: npt.NDArray[np.float64], at: int, step: float) -> bool:
    others = np.median(np.abs(np.delete(excess, at, axis=0)), axis=0)
    return bool((excess[at] >= np.maximum(IN_ONE_STEP * step, _ABOVE_OTHERS * others)).any())


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

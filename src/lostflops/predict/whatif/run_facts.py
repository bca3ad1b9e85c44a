"""Facts about a run that changes may use besides its graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

from lostflops.account.align.expert_loads import expert_loads
from lostflops.account.align.mesh import recognise
from lostflops.account.align.pipeline_actions import annotated_schedule
from lostflops.account.facts.devices import find_device
from lostflops.account.late.ranks import judge_ranks
from lostflops.account.ledger.scope import scope
from lostflops.account.memory.fullest import fullest
from lostflops.core.errors import LostflopsError
from lostflops.predict.costs.collective_times import CollectiveTimes
from lostflops.predict.costs.times import CommTimes
from lostflops.predict.scaling.growth import MeshLayout, layout
from lostflops.predict.scaling.own_times import OwnTimes
from lostflops.predict.whatif.change import Facts, HeldParameter
from lostflops.predict.whatif.graph_edits.transfers import samples
from lostflops.predict.whatif.recomputation.read import recomputable
from lostflops.predict.whatif.work_facts import work_facts

if TYPE_CHECKING:
    from lostflops.predict.graph.tasks import TaskGraph
    from lostflops.store.run import Run

LearnTimes = Callable[[OwnTimes], CommTimes]
"""Turns the times of the run's own collectives into times of any collective."""


def learn_comm_times(own: OwnTimes) -> CommTimes:
    return CollectiveTimes.of(learned=own)


def facts_of(run: Run, graph: TaskGraph, times: LearnTimes | None = None) -> Facts:
    """Collect what changes may use besides the graph. Without `times`, the run's own collectives give the times of
    others; if it has none, these are unknown."""
    (backend,) = run.rows("select max(backend) from ranks")[0]
    own = own_times(graph, backend)
    told = times(own) if times is not None else learn_comm_times(own) if own.samples else None
    work = work_facts(run)
    arranged = _layout(run)
    highest = fullest(run)
    return Facts(
        times=told,
        device=" and ".join(device_names(run)) or None,
        backend=backend,
        job=_job(run),
        parameters=_parameters(run),
        dtype=work.dtype,
        recomputed=work.recomputed,
        layout=arranged,
        schedule=annotated_schedule(run),
        held=_read_held_parameters(run),
        replicas=None if arranged is None else arranged.world // arranged.replica,
        memory=highest,
        recomputable=cache(partial(recomputable, run, highest)),
        late=cache(partial(_late, run)),
        experts=cache(partial(expert_loads, run)),
    )


def device_names(run: Run) -> list[str]:
    """Return the names of the devices of all ranks, one for each kind."""
    names = [name for (name,) in run.rows("select distinct device from ranks where device is not null order by device")]
    kinds = {(known.name if (known := find_device(name)) else name): name for name in names}
    return list(kinds.values())


def _late(run: Run) -> tuple[int, ...]:
    judgement = judge_ranks(run, scope(run, None), recognise(run))
    return tuple(one.rank for one in judgement.late or judgement.stragglers)


def own_times(graph: TaskGraph, backend: str | None) -> OwnTimes:
    """Return the times of collectives whose members, operation, size and hosts are all known."""
    met = graph.meetings
    return OwnTimes(backend, samples(graph, (met.ranks > 1) & (met.hosts > 0) & (met.hosts <= met.ranks)))


def _layout(run: Run) -> MeshLayout | None:
    try:
        return layout(run) if run.ranks else None
    except LostflopsError:  # a pipeline, or ranks that nothing arranges: no replica can be added
        return None


def _job(run: Run) -> dict[str, Any]:
    """Return the job facts of the newest attempt of the lowest rank that recorded any."""
    rows = run.rows(
        "select key, value from job where rank = (select min(rank) from job) "
        "qualify attempt is not distinct from max(attempt) over ()"
    )
    return {key: json.loads(value) for key, value in rows if value is not None}


def _parameters(run: Run) -> tuple[tuple[str, int, int | None], ...]:
    rows = run.rows(
        "select name, coalesce(bytes, 0), bucket from parameters where rank = (select min(rank) from parameters) "
        "order by position"
    )
    return tuple((name, size, bucket) for name, size, bucket in rows)


def _read_held_parameters(run: Run) -> tuple[HeldParameter, ...]:
    """Return the parameters of the lowest rank that recorded any, as `_parameters` does."""
    rows = run.rows(
        "select name, coalesce(bytes, 0), shape, local_shape, trainable, unit from parameters "
        "where rank = (select min(rank) from parameters) order by position"
    )
    found = []
    for name, size, shape, local, trainable, unit in rows:
        whole, own = (json.loads(text) if text else [] for text in (shape, local or shape))
        elements = prod(own)
        each = size // elements if elements else 0
        found.append(
            HeldParameter(name, size, prod(whole) * each, whole[0] if whole else 1, each, trainable is not False, unit)
        )
    return tuple(found)

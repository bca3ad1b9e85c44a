"""What a what-if is: a name, what it asks, what it costs, how to apply it, and a function from one graph to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import RankMemory
    from lostflops.predict.costs.times import CommTimes
    from lostflops.predict.graph.replay import Schedule
    from lostflops.predict.graph.tasks import TaskGraph
    from lostflops.predict.scaling.growth import MeshLayout
    from lostflops.predict.whatif.recomputation.recomputable import Recomputable


class HeldParameter(NamedTuple):
    """A parameter by what one rank holds of it: `bytes` of `whole`; `rows` is its first dimension, along which shards
    are cut, and `element` the bytes of a number. `unit` is the FSDP unit that gathers it, where there is one."""

    name: str
    bytes: int
    whole: int
    rows: int
    element: int
    trainable: bool
    unit: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a change may know beside the graph. `times` tells what collectives take, from a calibration or from the
    run's own; `job` is what the collector read once (table `job`, rank 0, values decoded), empty where nothing did;
    `parameters` are the rows of table `parameters` of rank 0: (name, bytes, bucket) in the order of the model. `dtype`
    is that of most FLOPs of matrix products, as `facts.devices` names it; `recomputed` the share of the forward pass,
    by FLOPs, that backward does again. Both are None where no shapes tell. `layout` is how ranks are arranged, None
    where that is not known or no replicas can be added. `held` are the parameters again, by what memory needs of them,
    and `replicas` how many ranks hold or share each, None where that is not told. `recomputable` reads which modules
    could be run again and what they keep, None where no memory was recorded; `memory` is that of the rank with the
    highest peak, None where none was recorded."""

    times: CommTimes | None
    device: str | None = None
    backend: str | None = None
    job: Mapping[str, Any] = field(default_factory=dict)
    parameters: tuple[tuple[str, int, int | None], ...] = ()
    dtype: str | None = None
    recomputed: float | None = None
    layout: MeshLayout | None = None
    held: tuple[HeldParameter, ...] = ()
    replicas: int | None = None
    recomputable: Callable[[], Recomputable | None] | None = None
    memory: RankMemory | None = None
    late: Callable[[], tuple[int, ...]] | None = None
    """Ranks that the diagnosis calls late; None where only the graph is there to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """A changed graph. `doubt` is by what part of itself the change in step time may be wrong, for all that replaying
    cannot know (0.2: a gain of 10 ms is 8 to 12). `notes` say what was assumed. `extra` are figures of this change
    alone, such as a distribution of staleness. `facts` are what later changes may know, where the change makes them
    others. `off` is by how many ns a step may be off however far the change moves it."""

    graph: TaskGraph
    doubt: float
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    facts: Facts | None = None
    off: float = 0.0

    schedule: Schedule | None = None
    """The replay of `graph`, if the change needed it."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """Changed blocks of one rank's memory. `doubt` is by what part of itself the change of the peak may be wrong."""

    memory: RankMemory
    doubt: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`form` is how to write it, such as `bucket_mb=MB`; `tried` are values that are tried when all changes are ranked
    (none: it is not asked, because its value is the user's to know); `again` says that several values can be asked for
    at once. `cost` says what it costs or risks, `how` how to apply a value: the code or the flag. `apply` raises
    `NotApplicable`, or `UsageError` for a value it cannot read. What `is_bound` tells what is to be gained at most, and
    can be set nowhere; what `is_hardware` has to be bought. `remember` does to the memory of a rank what `apply` does
    to the graph; None where nobody knows what it does, which is not nothing. It raises `NotApplicable` for values of
    which that is so."""

    name: str
    form: str
    about: str
    cost: str
    how: Callable[[str], str]
    apply: Callable[[TaskGraph, str, Facts], Edited]
    tried: tuple[str, ...] = ()
    again: bool = False
    is_bound: bool = False
    is_hardware: bool = False
    remember: Callable[[RankMemory, str, Facts], Remembered] | None = None

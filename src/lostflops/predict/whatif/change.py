"""Definition of a what-if: its name, question and cost, how to apply it, and a function from one graph to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from lostflops.account.align.expert_loads import ExpertLoads
    from lostflops.account.memory.blocks import RankMemory
    from lostflops.predict.costs.times import CommTimes
    from lostflops.predict.graph.replay import Schedule
    from lostflops.predict.graph.tasks import TaskGraph
    from lostflops.predict.scaling.growth import MeshLayout
    from lostflops.predict.whatif.recomputation.recomputable import Recomputable


class HeldParameter(NamedTuple):
    """A parameter and what one rank holds of it."""

    name: str
    bytes: int
    """Bytes that the rank holds."""
    whole: int
    """Bytes of the whole parameter."""
    rows: int
    """Size of its first dimension, along which shards are cut."""
    element: int
    """Bytes per number."""
    trainable: bool
    unit: str | None
    """FSDP unit that gathers it, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a change may use besides the graph."""

    times: CommTimes | None
    """Times of collectives, from a calibration or from the run's own collectives."""
    device: str | None = None
    backend: str | None = None
    job: Mapping[str, Any] = field(default_factory=dict)
    """What the collector read once (table `job`, lowest rank, decoded values); empty if nothing was recorded."""
    parameters: tuple[tuple[str, int, int | None], ...] = ()
    """Rows of table `parameters` of the lowest rank: (name, bytes, bucket) in the order of the model."""
    dtype: str | None = None
    """Dtype of most matmul FLOPs, named as in `facts.devices`; None if no shapes were recorded."""
    recomputed: float | None = None
    """Share of the forward pass, by FLOPs, that backward recomputes; None if no shapes were recorded."""
    layout: MeshLayout | None = None
    """How ranks are arranged; None if that is unknown or no replicas can be added."""
    schedule: str | None = None
    """Schedule of the pipeline as annotations name its passes; None if they do not."""
    held: tuple[HeldParameter, ...] = ()
    """The same parameters, with what the memory edits need."""
    replicas: int | None = None
    """Number of ranks that hold or share each parameter; None if unknown."""
    recomputable: Callable[[], Recomputable | None] | None = None
    """Reads which modules could be recomputed and what they keep; gives None if no memory was recorded."""
    memory: RankMemory | None = None
    """Memory of the rank with the highest peak; None if no memory was recorded."""
    late: Callable[[], tuple[int, ...]] | None = None
    """Ranks that the diagnosis calls late; None if no diagnosis was made, so that none is known."""
    experts: Callable[[], ExpertLoads | None] | None = None
    """Reads how many tokens each rank gets for its experts; gives None if no tokens travel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """A changed graph."""

    graph: TaskGraph
    doubt: float
    """Part of itself by which the change in step time may be wrong, for all that a replay cannot know (0.2: a gain of
    10 ms is 8 to 12)."""
    notes: tuple[str, ...] = ()
    """Assumptions that were made."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Figures of this change alone, such as a distribution of staleness."""
    facts: Facts | None = None
    """Facts for later changes; None if this change does not alter them."""
    off: float = 0.0
    """Error of a step in ns that does not depend on how far the change moves it."""

    schedule: Schedule | None = None
    """Replay of `graph`, if the change needed it."""
    mixes_steps: bool = False
    """Whether work of one step may run during another. Then only the mean of all steps means anything, and savings of
    single steps do not show its spread."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """Changed blocks of one rank's memory."""

    memory: RankMemory
    doubt: float
    """Part of itself by which the change of the peak may be wrong."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A what-if: what it asks, how to apply it, and how it edits the graph and the memory."""

    name: str
    form: str
    """How to write it, such as `bucket_mb=MB`."""
    about: str
    cost: str
    """What it costs or risks."""
    costs: Mapping[str, str] = field(default_factory=dict)
    """The same for single values, if it differs between them."""
    how: Callable[[str], str]
    """Returns how to apply a value: the code or the flag."""
    apply: Callable[[TaskGraph, str, Facts], Edited]
    """Edits the graph. Raises `NotApplicable`, or `UsageError` for a value it cannot read."""
    tried: tuple[str, ...] = ()
    """Values that are tried when all changes are ranked; empty if only the user can know the value."""
    again: bool = False
    """Whether several values can be given at once."""
    is_bound: bool = False
    """Whether it is an upper limit of a gain, which no setting reaches."""
    is_hardware: bool = False
    """Whether it has to be bought."""
    remember: Callable[[RankMemory, str, Facts], Remembered] | None = None
    """Does to the memory of a rank what `apply` does to the graph; None if the effect is unknown, which does not mean
    that there is none. Raises `NotApplicable` for values with an unknown effect."""

    def cost_of(self, value: str) -> str:
        return self.costs.get(value, self.cost)


def join_costs(costs: Mapping[str, str]) -> str:
    """Return the costs of all values, for where no value is chosen.

    >>> join_costs({"on": "more time", "off": "more memory"})
    'on: more time; off: more memory'
    """
    return "; ".join(f"{value}: {cost}" for value, cost in costs.items())

"""Records of the simulator: host events, device events and collectives, in true time."""

from dataclasses import dataclass, field
from typing import Literal

from .declaration import Dtype
from .topology import ProcessGroup

MAIN = 0
AUTOGRAD = 1

Role = Literal["compute", "comm", "copy"]
CollectiveOp = Literal["all_reduce", "all_gather", "reduce_scatter", "send_recv"]


@dataclass(slots=True, eq=False)
class SyntheticCollective:
    """One operation of a group, shared by its members. The first member of a send/recv sends."""

    group: ProcessGroup
    op: CollectiveOp
    bytes: int
    members: tuple[int, ...]
    ordinal: int
    duration: int
    seqs: dict[int, int] = field(default_factory=dict)
    events: dict[int, "DeviceEvent"] = field(default_factory=dict)
    started: int = 0
    last_arrival: int = -1
    last_rank: int = -1
    before: "SyntheticCollective | None" = None
    """The collective that has the link before this one, if collectives share it."""
    busy: int = 0
    """Part of the duration in which the link is busy."""
    begun: int = -1
    waiting: "SyntheticCollective | None" = None

    @property
    def is_p2p(self) -> bool:
        return self.op == "send_recv"

    def peer(self, rank: int) -> int:
        sender, receiver = self.members
        return receiver if rank == sender else sender


@dataclass(slots=True, eq=False)
class HostEvent:
    category: str
    name: str
    thread: int
    start: int
    stop: int = -1
    external_id: int = 0
    correlation: int = 0
    dims: tuple[int, int, int] | None = None
    shape: tuple[int, ...] = ()
    dtype: Dtype = "bfloat16"
    sequence: int = -1
    backward: bool = False
    launches: bool = False
    collective: SyntheticCollective | None = None
    lost: bool = False
    parent: int = 0
    """Number (`external_id`) of the function that called this one."""


@dataclass(slots=True, eq=False)
class DeviceEvent:
    role: Role
    category: str
    name: str
    stream: int
    duration: int
    launch: HostEvent
    rank: int
    step: int
    ready: int
    bytes: int = 0
    collective: SyntheticCollective | None = None
    pending: int = 0
    followers: list["DeviceEvent"] = field(default_factory=list)
    start: int = -1
    stop: int = -1
    lost: bool = False
    metadata_lost: bool = False


@dataclass(slots=True, eq=False)
class RankRecord:
    """Everything that one rank did. The lists of intervals are in time order and have what the ledger needs."""

    rank: int
    host_events: list[HostEvent] = field(default_factory=list)
    device_events: list[DeviceEvent] = field(default_factory=list)
    op_spans: tuple[list[tuple[int, int]], list[tuple[int, int]]] = field(default_factory=lambda: ([], []))
    alloc_spans: tuple[list[tuple[int, int]], list[tuple[int, int]]] = field(default_factory=lambda: ([], []))
    sync_spans: list[tuple[int, int]] = field(default_factory=list)
    compile_spans: list[tuple[int, int]] = field(default_factory=list)
    data_spans: list[tuple[int, int]] = field(default_factory=list)
    launch_starts: list[int] = field(default_factory=list)
    flops: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Simulation:
    records: tuple[RankRecord, ...]
    collectives: tuple[SyntheticCollective, ...]

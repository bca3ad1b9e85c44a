"""The records of a capture, typed: the required and the optional fields of each kind."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from lostflops.core.limits import DEEPEST_VALUE

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Time = Annotated[int, Meta(ge=0, lt=1 << 61)]
"""Nanoseconds; no clock shows a time after 2043."""
Small = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]


class SessionRecord(msgspec.Struct):
    wall: Time
    world_size: Annotated[int, Meta(ge=1)] | None = None
    local_rank: Small | None = None
    restart: Small | None = None
    host: str | None = None
    backend: str | None = None
    device: str | None = None
    device_name: str | None = None
    torch: str | None = None
    python: str | None = None
    lostflops: str | None = None
    script: str | None = None


def is_deep(value: object, most: int = DEEPEST_VALUE) -> bool:
    """Return whether lists and objects are nested in each other deeper than `most`: whoever reads them would fail.

    >>> is_deep({"a": [1]}, 2), is_deep({"a": [[1]]}, 2)
    (False, True)
    """
    level = [value]
    for _ in range(most + 1):
        nested = [one for one in level if isinstance(one, (dict, list))]
        level = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
        if not nested:
            return False
    return True


class StepRecord(msgspec.Struct):
    step: Small
    start: Time
    stop: Time
    data: Time | None
    forward: Time | None
    backward: Time | None
    optimizer: Time
    microbatches: Small | None = None
    samples: Count | None = None
    tokens: Count | None = None
    peak_memory: Count | None = None
    own: Time | None = None
    comm_hook: Time | None = None
    gc: Time | None = None
    gc_count: Small | None = None
    cpu: Time | None = None
    queued: Time | None = None
    system: Time | None = None
    faults: Count | None = None
    preempted: Count | None = None
    saving: Time | None = None
    evaluating: Time | None = None
    kind_of_step: Annotated[str, Meta(max_length=100)] | None = None
    skipped: bool = False
    compiled: bool = False
    profiled: bool = False

    def __post_init__(self) -> None:
        if self._rest < 0:
            raise ValueError("a step shorter than its phases")

    @property
    def outside(self) -> int | None:
        """Time outside of the phases; None if a phase is unknown, because the rest then includes its time."""
        return None if None in (self.data, self.forward, self.backward) else self._rest

    @property
    def _rest(self) -> int:
        known = (self.data or 0) + (self.forward or 0) + (self.backward or 0) + self.optimizer
        return self.stop - self.start - known


class DeviceStep(msgspec.Struct):
    step: Small
    time: Time
    data: Time | None = None
    forward: Time | None = None
    backward: Time | None = None
    optimizer: Time | None = None


class GroupRecord(msgspec.Struct):
    ranks: Annotated[list[Small], Meta(min_length=1)]
    description: str | None = None


class CollectivesRecord(msgspec.Struct):
    entries: list[Any]
    groups: dict[str, GroupRecord] = {}
    lost: Count = 0


class Entry(msgspec.Struct, array_like=True):
    """An entry of the ring, recorded when it was enqueued."""

    record: Count
    group_name: str
    seq: Count | None
    """Collectives and transfers are counted separately."""
    op_name: str
    is_p2p: bool
    bytes_in: Count | None
    bytes_out: Count | None
    created: Time


class ParameterRecord(msgspec.Struct):
    name: str
    module: str | None = None
    shape: list[Count] | None = None
    local_shape: list[Count] | None = None
    dtype: str | None = None
    bytes: Count | None = None
    trainable: bool | None = None
    bucket: Small | None = None
    unit: str | None = None


class Parameters(msgspec.Struct):
    parameters: list[ParameterRecord]


class Fact(msgspec.Struct):
    key: str
    value: Any

    def __post_init__(self) -> None:
        if is_deep(self.value):
            raise ValueError("nested deeper than any fact")


class ClockRecord(msgspec.Struct):
    wall: Time
    monotonic: Time
    peer: Small | None = None
    peer_wall: Time | None = None


class WindowRecord(msgspec.Struct):
    window: Small
    state: str
    first: Small | None = None
    steps: Small | None = None
    time: Time | None = None
    reason: str | None = None
    cost: Time | None = None
    file: str | None = None


class StacksRecord(msgspec.Struct):
    samples: list[tuple[Time, Small]]
    names: dict[str, str] = {}


class Holding(msgspec.Struct, array_like=True):
    """A storage; a later row with the same number says more about it."""

    number: Count
    device_type: Small
    device_index: Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]
    address: Count
    bytes: Count
    owner: str | None = None
    name: str | None = None
    line: str | None = None


class HoldingsRecord(msgspec.Struct):
    """Storages seen at one edge."""

    window: Small
    time: Time
    rows: list[Holding] = []
    gone: list[Count] = []
    """Numbers of rows of this window."""
    before: bool = False


class MarkRecord(msgspec.Struct):
    """Memory at a point that the program named."""

    number: Small
    name: Annotated[str, Meta(max_length=100)]
    time: Time
    occurrence: Small = 0
    step: Small | None = None
    device: Annotated[str, Meta(max_length=100)] | None = None
    allocated: Count | None = None
    reserved: Count | None = None
    peak: Count | None = None
    resident: Count | None = None


class NetworkRecord(msgspec.Struct):
    """Counters of the kernel, which only grow, in bytes."""

    time: Time
    interfaces: list[tuple[Annotated[str, Meta(max_length=100)], Count, Count]] = []
    """Name, received, sent."""
    own: list[tuple[Count, Count, Count]] = []
    """Received, sent, sent again: of connections on the host, then of those to other hosts. Empty if unknown."""

    def __post_init__(self) -> None:
        if len(self.own) not in (0, 2):
            raise ValueError("connections are of two kinds")


class Note(msgspec.Struct):
    what: Annotated[str, Meta(min_length=1, max_length=100)]
    count: Count = 1
    reason: str | None = None


class Overhead(msgspec.Struct):
    level: Small
    reason: str | None = None


class EndRecord(msgspec.Struct):
    wall: Time
    reason: str | None = None


Record = (
    SessionRecord
    | StepRecord
    | DeviceStep
    | CollectivesRecord
    | Parameters
    | Fact
    | ClockRecord
    | WindowRecord
    | StacksRecord
    | HoldingsRecord
    | MarkRecord
    | NetworkRecord
    | Note
    | Overhead
    | EndRecord
)
KINDS: Final[dict[str, type[Record]]] = {
    "session": SessionRecord,
    "step": StepRecord,
    "device_step": DeviceStep,
    "collectives": CollectivesRecord,
    "parameters": Parameters,
    "job": Fact,
    "clock": ClockRecord,
    "window": WindowRecord,
    "stacks": StacksRecord,
    "holdings": HoldingsRecord,
    "mark": MarkRecord,
    "network": NetworkRecord,
    "note": Note,
    "overhead": Overhead,
    "end": EndRecord,
}
UNKNOWN: Final = "unknown_records"
MALFORMED: Final = "malformed_records"


def parse_record(record: object) -> Record | str:
    """Return the record, or what is wrong with it.

    >>> parse_record({"kind": "device_step", "step": 3, "time": 7})
    DeviceStep(step=3, time=7, data=None, forward=None, backward=None, optimizer=None)
    >>> parse_record({"kind": "device_step", "step": -3, "time": 7}), parse_record({"kind": "hologram"})
    ('malformed_records', 'unknown_records')
    """
    kind = KINDS.get(kind_of(record))
    if kind is None:
        return UNKNOWN if kind_of(record) else MALFORMED
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError:
        return MALFORMED


def kind_of(record: object) -> str:
    """Return the kind of a record; empty if it has none."""
    kind = record.get("kind") if isinstance(record, dict) else None
    return kind if isinstance(kind, str) else ""


def groups(found: object) -> dict[str, GroupRecord]:
    """Return the groups in a fact about the job, which was recorded before any group was destroyed."""
    try:
        return msgspec.convert(found, dict[str, GroupRecord])
    except msgspec.ValidationError:
        return {}


def entries(found: list[Any]) -> list[Entry]:
    """Return the entries that can be read."""
    try:
        return msgspec.convert(found, list[Entry])
    except msgspec.ValidationError:
        return [one for values in found if (one := _entry(values)) is not None]


def _entry(values: object) -> Entry | None:
    try:
        return msgspec.convert(values, Entry)
    except msgspec.ValidationError:
        return None

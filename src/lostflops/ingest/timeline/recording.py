"""One rank's trace between the two passes of ingest: rows are spooled, facts that link rows stay in memory.

A reader fills a `Recording`; `rank_part` completes it and writes it. Only what is needed to link rows to each other is
in memory: steps, annotations, modules, communication and its metadata.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lostflops.ingest.common.columns import Spool
from lostflops.ingest.common.vocabulary import Vocabulary

_NUMBER, _CODE = np.int64, np.uint32

HOST_COLUMNS = {
    "lane": np.int32,
    "kind": np.uint8,
    "name": _CODE,
    "start": _NUMBER,
    "dur": _NUMBER,
    "correlation": _NUMBER,
    "external_id": _NUMBER,
    "sequence": _NUMBER,
    "forward_thread": np.int32,
    "shapes": _CODE,
    "dtypes": _CODE,
    "inputs": _CODE,
    "source": _CODE,
}
DEVICE_COLUMNS = {
    "lane": np.int32,
    "kind": np.uint8,
    "name": _CODE,
    "start": _NUMBER,
    "dur": _NUMBER,
    "correlation": _NUMBER,
    "external_id": _NUMBER,
    "bytes": _NUMBER,
    "grid": _CODE,
    "block": _CODE,
    "registers": np.int32,
    "shared_memory": np.int32,
    "occupancy": np.float64,
    "wait_stream": _NUMBER,
    "wait_correlation": _NUMBER,
}
MEMORY_COLUMNS = {
    "time": _NUMBER,
    "lane": np.int32,
    "device_type": np.int32,
    "device_index": np.int32,
    "address": _NUMBER,
    "bytes": _NUMBER,
    "allocated": _NUMBER,
    "reserved": _NUMBER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommMetadata:
    """Metadata of collectives of one kind, None if the trace lacks it; equal metadata is kept once."""

    op: str | None = None
    dtype: str | None = None
    elements_in: int | None = None
    elements_out: int | None = None
    group_name: str | None = None
    group_description: str | None = None
    group_ranks: str | None = None
    group_size: int | None = None
    group_start: int | None = None
    group_stride: int | None = None
    source_rank: int | None = None
    target_rank: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    source: str | None = None
    """Where it comes from, if neither from the kernel nor from `record_param_comms`."""


@dataclass(slots=True, kw_only=True)
class CommRow:
    """A communication kernel or `gloo:*` event."""

    row: int
    """Row in its spool."""
    on_device: bool
    name: str
    lane: int
    start: int
    stop: int
    correlation: int
    metadata: CommMetadata | None
    seq: int | None
    shapes: str = ""
    dtypes: str = ""


@dataclass(slots=True, kw_only=True)
class CommCall:
    """A `record_param_comms` on a host thread."""

    lane: int
    start: int
    stop: int
    metadata: CommMetadata | None
    seq: int | None
    shapes: str = ""
    dtypes: str = ""


@dataclass(slots=True)
class TransferCall:
    """A `c10d::send` or `c10d::recv_` on a host thread."""

    lane: int
    start: int
    stop: int
    place: int
    """Position of the peer in its group."""


@dataclass(slots=True, kw_only=True)
class RecordedLane:
    kind: str
    process: int | None = None
    thread: int | None = None
    device: int | None = None
    stream: int | None = None
    name: str | None = None


@dataclass(slots=True)
class StepSpan:
    step: int
    lane: int
    start: int
    stop: int


@dataclass(kw_only=True)
class Recording:
    """Everything that pass one takes from a trace."""

    vocabulary: Vocabulary
    spool_folder: str | None = None
    host: Spool = field(init=False)
    device: Spool = field(init=False)
    memory: Spool = field(init=False)
    lanes: list[RecordedLane] = field(default_factory=list)
    steps: list[StepSpan] = field(default_factory=list)
    annotations: list[tuple[np.ndarray[Any, Any], ...]] = field(default_factory=list)
    modules: list[tuple[np.ndarray[Any, Any], ...]] = field(default_factory=list)
    comm_rows: list[CommRow] = field(default_factory=list)
    comm_calls: list[CommCall] = field(default_factory=list)
    transfer_calls: list[TransferCall] = field(default_factory=list)
    links: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    span: tuple[int, int] | None = None
    launches: int = 0
    document: dict[str, Any] = field(default_factory=dict)
    base_time: int = 0
    losses: Counter[str] = field(default_factory=Counter)
    refused_before: Counter[str] = field(init=False)
    examples: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.refused_before = self.vocabulary.count_refused()
        self.host = Spool(HOST_COLUMNS, self.spool_folder)
        self.device = Spool(DEVICE_COLUMNS, self.spool_folder)
        self.memory = Spool(MEMORY_COLUMNS, self.spool_folder)

    def close(self) -> None:
        for spool in (self.host, self.device, self.memory):
            spool.close()

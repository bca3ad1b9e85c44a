"""Schema of a Kineto trace event, in every dialect, and the meaning of its category here."""

from math import nan
from typing import Any, Final

import msgspec
from msgspec import Raw

from lostflops.ingest.common.columns import NULL

_ABSENT: Final = Raw(b"")


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that any table needs; the others are skipped while decoding.

    Texts that repeat (shapes, grids) stay raw and are interned as bytes. Fields that some dialect writes with another
    type are `Any` and converted with care.
    """

    external_id: Any = msgspec.field(name="External id", default=NULL)
    correlation: Any = NULL
    device: Any = None
    stream: Any = None
    sequence: Any = msgspec.field(name="Sequence number", default=NULL)
    forward_thread: Any = msgspec.field(name="Fwd thread id", default=NULL)
    inputs: Raw = msgspec.field(name="Concrete Inputs", default=_ABSENT)
    dtypes: Raw = msgspec.field(name="Input type", default=_ABSENT)
    shapes: Raw = msgspec.field(name="Input Dims", default=_ABSENT)
    registers: Any = msgspec.field(name="registers per thread", default=NULL)
    shared_memory: Any = msgspec.field(name="shared memory", default=NULL)
    grid: Raw = _ABSENT
    block: Raw = _ABSENT
    occupancy: Any = msgspec.field(name="est. achieved occupancy %", default=nan)
    bytes: Any = None
    size: Any = None
    call_stack: Raw = msgspec.field(name="Call stack", default=_ABSENT)
    old_external_id: Any = msgspec.field(name="external id", default=NULL)
    wait_stream: Any = msgspec.field(name="wait_on_stream", default=None)
    wait_correlation: Any = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=None)
    collective: Any = msgspec.field(name="Collective name", default=None)
    dtype: Any = None
    elements_in: Any = msgspec.field(name="In msg nelems", default=None)
    elements_out: Any = msgspec.field(name="Out msg nelems", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    group_description: Any = msgspec.field(name="Process Group Description", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    group_start: Any = msgspec.field(name="Global rank start", default=None)
    group_stride: Any = msgspec.field(name="Global rank stride", default=None)
    seq: Any = msgspec.field(name="Seq", default=None)
    source_rank: Any = msgspec.field(name="Src Rank", default=None)
    target_rank: Any = msgspec.field(name="Dst Rank", default=None)
    address: Any = msgspec.field(name="Addr", default=None)
    memory_bytes: Any = msgspec.field(name="Bytes", default=None)
    allocated: Any = msgspec.field(name="Total Allocated", default=None)
    reserved: Any = msgspec.field(name="Total Reserved", default=None)
    device_type: Any = msgspec.field(name="Device Type", default=None)
    device_index: Any = msgspec.field(name="Device Id", default=None)
    name: Any = None


class Event(msgspec.Struct, gc=False, frozen=True):
    """One entry of `traceEvents`; times stay text until they are converted exactly."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: Raw = _ABSENT
    dur: Raw = _ABSENT
    args: Args = Args()
    id: Any = None


decode_events = msgspec.json.Decoder(list[Event]).decode

HOST_KINDS: Final = {
    "cpu_op": "op",
    "Operator": "op",
    "user_annotation": "annotation",
    "python_function": "python",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "Runtime": "runtime",
    "mtia_runtime": "runtime",
    "xpu_runtime": "runtime",
    "xpu_driver": "runtime",
    "privateuse1_runtime": "runtime",
    "privateuse1_driver": "runtime",
    "overhead": "overhead",
    "Trace": "span",
}
DEVICE_KINDS: Final = {
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "Memcpy": "memcpy",
    "gpu_memset": "memset",
    "Memset": "memset",
    "cuda_sync": "sync",
    "gpu_user_annotation": "device_annotation",
    "mtia_ccp_events": "kernel",
}
MTIA_NAMES: Final = {"dma_request": "memcpy", "event_wait": "sync", "event_record": "sync"}
"""MTIA writes everything a device does under one category; its name shows the kind."""

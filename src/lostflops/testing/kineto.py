"""Write a simulated rank as the Kineto JSON that `torch.profiler` exports, in its layout and on the rank's clock.

Times go from integer nanoseconds to decimal microseconds without a float. Not written:
`cudaStreamWaitEvent` and event records, `gpu_user_annotation`, strides of real tensors.
"""

import gzip as gzip_module
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import overload

from .allocations import MemoryChange
from .declaration import Clock, Dtype
from .records import AUTOGRAD, MAIN, DeviceEvent, HostEvent, RankRecord, SyntheticCollective
from .topology import ProcessGroup

BASE_TIME = 1_759_300_074_000_000_000
"""Unix time that the time stamps of the file count from, in ns."""

TRUE_TIME_ZERO = 5_000_000_000_000_000
"""Time of true time 0 after BASE_TIME on a clock without offset, in ns."""

_CALLBACK_IDS = {
    "cudaStreamWaitEvent": 147,
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
    "cudaMalloc": 20,
    "cudaFree": 22,
}


_SCALAR_TYPES: dict[Dtype, str] = {"bfloat16": "c10::BFloat16", "float32": "float"}


def microseconds(ns: int) -> str:
    """Format a time as exact decimal microseconds.

    >>> microseconds(1_234_005)
    '1234.005'
    """
    return f"{ns // 1000}.{ns % 1000:03d}"


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of one rank; its text is made when asked for."""

    record: RankRecord
    clock: Clock
    groups: tuple[ProcessGroup, ...]
    world_size: int
    host: int
    device: int
    devices: int
    record_seq: bool
    allocated: tuple[MemoryChange, ...] = ()

    def stamp(self, true_time: int) -> int:
        """Return `ts` of an instant, in nanoseconds after `BASE_TIME`."""
        return TRUE_TIME_ZERO + self.clock.read(true_time)

    def name(self, *, host_names: bool = False) -> str:
        """Return the name of its file. With `host_names`, as `tensorboard_trace_handler` makes it: host, process and
        time."""
        rank = self.record.rank
        stem = f"host{self.host}_{process_id(rank)}.{BASE_TIME + self.stamp(0)}" if host_names else f"rank{rank}"
        return f"{stem}.pt.trace.json"

    def text(self) -> str:
        return "".join(self.parts())

    def parts(self) -> Iterator[str]:
        yield _header(self)
        separator = ""
        for event in self._events():
            yield separator + event
            separator = ",\n"
        yield f'\n  ],\n  "traceName": "rank{self.record.rank}.pt.trace.json"\n}}'

    def write(self, path: Path, *, gzip: bool = False) -> Path:
        data = self.text().encode("ascii")
        # No time stamp and no name in the gzip header: the same cluster gives the same bytes.
        path.write_bytes(gzip_module.compress(data, compresslevel=6, mtime=0) if gzip else data)
        return path

    def _events(self) -> Iterator[str]:
        writer = _EventWriter(self)
        for index, event in enumerate(self.record.host_events):
            if not event.lost:
                yield from writer.host(event, index)
        for device_event in self.record.device_events:
            if not device_event.lost:
                yield from writer.device(device_event)
        yield from map(writer.memory, self.allocated)
        yield from _closing(self)


@dataclass(frozen=True, slots=True)
class Traces(Sequence[Trace]):
    """The traces of all ranks, by rank."""

    by_rank: tuple[Trace, ...]

    def write(self, folder: Path | str, *, gzip: bool = False, host_names: bool = False) -> list[Path]:
        """Write `rank{R}.pt.trace.json` (`.gz`) for every rank into `folder`, which is created if missing.

        With `host_names`, the name contains the host (`host{H}_{process}.{time}.pt.trace.json`), and ranks of one host
        are known to share a clock.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        suffix = ".gz" if gzip else ""
        return [trace.write(folder / (trace.name(host_names=host_names) + suffix), gzip=gzip) for trace in self.by_rank]

    def __len__(self) -> int:
        return len(self.by_rank)

    @overload
    def __getitem__(self, index: int) -> Trace: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Trace, ...]: ...
    def __getitem__(self, index: int | slice) -> Trace | tuple[Trace, ...]:
        return self.by_rank[index]


def process_id(rank: int) -> int:
    return 1000 + rank


def thread_id(rank: int, thread: int) -> int:
    return process_id(rank) + (100_000 if thread == AUTOGRAD else 0)


class _EventWriter:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        rank = trace.record.rank
        self._threads = tuple(f'"pid": {process_id(rank)}, "tid": {thread_id(rank, t)}' for t in (MAIN, AUTOGRAD))

    def host(self, event: HostEvent, index: int) -> Iterator[str]:
        start = self._trace.stamp(event.start)
        thread, ts = self._threads[event.thread], microseconds(start)
        yield (
            f'  {{\n    "ph": "X", "cat": "{event.category}", "name": "{event.name}", {thread},\n'
            f'    "ts": {ts}, "dur": {microseconds(self._trace.stamp(event.stop) - start)},\n'
            f'    "args": {{\n      {self._host_args(event, index)}\n    }}\n  }}'
        )
        if event.launches:
            yield (
                f'  {{\n    "ph": "s", "id": {event.correlation}, {thread}, "ts": {ts},\n'
                '    "cat": "ac2g", "name": "ac2g"\n  }'
            )
        elif event.sequence >= 0:
            phase, bind = ("f", ', "bp": "e"') if event.backward else ("s", "")
            yield (
                f'  {{\n    "ph": "{phase}", "id": {event.sequence}, {thread}, "ts": {ts},\n'
                f'    "cat": "fwdbwd", "name": "fwdbwd"{bind}\n  }}'
            )

    def _host_args(self, event: HostEvent, index: int) -> str:
        if event.category == "python_function":
            return f'"Python parent id": {event.parent or "null"}, "Python id": {event.external_id}, "Ev Idx": {index}'
        identity = f'"External id": {event.external_id},'
        if event.category == "cuda_runtime":
            return f'{identity}      "cbid": {_CALLBACK_IDS[event.name]}, "correlation": {event.correlation}'
        if event.collective is not None:
            details = _record_param_comms_args(event.collective, self._trace)
        else:
            details = _input_args(event.dims, event.shape, event.dtype)
        if event.sequence >= 0:
            details += f'"Sequence number": {event.sequence}, "Fwd thread id": {1 if event.backward else 0}, '
        return f'{identity}"Record function id": 0, {details}"Ev Idx": {index}'

    def device(self, event: DeviceEvent) -> Iterator[str]:
        start, device = self._trace.stamp(event.start), self._trace.device
        lane, ts = f'"pid": {device}, "tid": {event.stream}', microseconds(start)
        duration = self._trace.stamp(event.stop) - start
        place = f'"context": 1,      "stream": {event.stream}, "correlation": {event.launch.correlation}'
        if event.category == "kernel":
            args = f'"queued": 0, "device": {device}, {place},      {self._kernel_args(event)}'
        else:
            rate = event.bytes / duration
            args = f'"device": {device}, {place},      "bytes": {event.bytes}, "memory bandwidth (GB/s)": {rate!r}'
        yield (
            f'  {{\n    "ph": "X", "cat": "{event.category}", "name": "{event.name}", {lane},\n'
            f'    "ts": {ts}, "dur": {microseconds(duration)},\n'
            f'    "args": {{\n      "External id": {event.launch.external_id},      {args}\n    }}\n  }}'
        )
        yield (
            f'  {{\n    "ph": "f", "id": {event.launch.correlation}, {lane}, "ts": {ts},\n'
            f'    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }}'
        )

    def memory(self, change: MemoryChange) -> str:
        totals = f'"Total Reserved": {change.reserved}, "Total Allocated": {change.allocated}, "Bytes": {change.bytes}'
        return (
            f'  {{\n    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", '
            f'{self._threads[change.thread]},\n    "ts": {microseconds(self._trace.stamp(change.time))},\n'
            f'    "args": {{\n      {totals}, "Device Id": {self._trace.device}, "Device Type": 1, '
            f'"Addr": {change.address}\n    }}\n  }}'
        )

    def _kernel_args(self, event: DeviceEvent) -> str:
        collective = event.collective
        registers, shared, blocks, threads, occupancy = (
            (64, 0, 132, 256, 50) if collective is None else (96, 103808, 24, 544, 0)
        )
        shape = (
            f'"registers per thread": {registers},      "shared memory": {shared},      '
            f'"blocks per SM": {blocks / 132:.6f},      "warps per SM": {blocks * threads / 32 / 132:.6f},      '
            f'"grid": [{blocks}, 1, 1],      "block": [{threads}, 1, 1],      "est. achieved occupancy %": {occupancy}'
        )
        if collective is None or event.metadata_lost:
            return shape
        return f"{shape}, {_collective_args(collective, self._trace)}"


@lru_cache(maxsize=1024)
def _input_args(dims: tuple[int, int, int] | None, shape: tuple[int, ...], dtype: Dtype) -> str:
    """Return the arguments of an op with two operands: those of a matmul, or two of one shape."""
    if dims is None and not shape:
        return ""
    shapes = [list(shape)] * 2 if dims is None else [[dims[0], dims[1]], [dims[1], dims[2]]]
    strides = [[prod(sizes[place + 1 :]) for place in range(len(sizes))] for sizes in shapes]
    name = _SCALAR_TYPES[dtype]
    return (
        f'"Concrete Inputs": ["", ""], "Input type": ["{name}", "{name}"], '
        f'"Input Strides": {strides}, "Input Dims": {shapes}, '
    )


@lru_cache(maxsize=4096)
def _rank_list(ranks: tuple[int, ...]) -> str:
    """Format ranks as torch prints them: of more than 30 members, only the first 29 and the last are shown."""
    if len(ranks) <= 30:
        return f"[{', '.join(map(str, ranks))}]"
    return f"[{', '.join(map(str, ranks[:29]))}, ..., {ranks[-1]}]"


def _collective_name(collective: SyntheticCollective, rank: int) -> str:
    if collective.is_p2p:
        return "send" if collective.members[0] == rank else "recv"
    return {"all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base"}.get(collective.op, "allreduce")


def _collective_args(collective: SyntheticCollective, trace: Trace) -> str:
    rank, group, elements = trace.record.rank, collective.group, collective.bytes // 2
    shard = elements // len(group.ranks)
    sent = shard if collective.op == "all_gather" else elements
    received = shard if collective.op == "reduce_scatter" else elements
    name = _collective_name(collective, rank)
    peer = ""
    if collective.is_p2p:
        peer = f', "{"Dst" if name == "send" else "Src"} Rank": {collective.peer(rank)}'
    seq = f', "Seq": {collective.seqs[rank]}' if trace.record_seq else ""
    return (
        f'"Collective name": "{name}", "In msg nelems": {sent}, "Out msg nelems": {received}, '
        f'"Group size": {len(group.ranks)}, "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", '
        f'"Process Group Name": "{group.name}", "Process Group Description": "{group.description}", '
        f'"Process Group Ranks": "{_rank_list(group.ranks)}"{peer}{seq}'
    )


def _record_param_comms_args(collective: SyntheticCollective, trace: Trace) -> str:
    ranks = collective.group.ranks
    # For a send or receive torch records the peer's position in the group here, not the caller's.
    position = ranks.index(collective.peer(trace.record.rank) if collective.is_p2p else trace.record.rank)
    stride = ranks[1] - ranks[0]
    return (
        f'{_collective_args(collective, trace)}, "Rank": {position}, "Global rank start": {ranks[0]}, '
        f'"Global rank stride": {stride}, "Input Dims": [[{collective.bytes // 2}]], '
        '"Input type": ["c10::BFloat16"], '
    )


def _header(trace: Trace) -> str:
    devices = ",\n".join(
        "    {\n"
        f'      "id": {index}, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85028372480,\n'
        '      "computeMajor": 9, "computeMinor": 0,\n'
        '      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,\n'
        '      "regsPerBlock": 65536, "warpSize": 32,\n'
        '      "sharedMemPerBlock": 49152, "numSms": 132\n'
        '    , "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472\n'
        "    }"
        for index in range(trace.devices)
    )
    groups = [
        {
            "pg_name": group.name,
            "pg_desc": group.description,
            "backend_config": "cuda:nccl",
            "pg_size": len(group.ranks),
            "ranks": list(group.ranks),
        }
        for group in trace.groups
    ]
    info = {
        "backend": "nccl",
        "rank": trace.record.rank,
        "world_size": trace.world_size,
        "pg_count": len(groups),
        "pg_config": groups,
        "nccl_version": "2.27.5",
    }
    return (
        f'\n  {{\n    "schemaVersion": 1,\n    "deviceProperties": [\n{devices}\n    ],\n'
        '      "cupti_version": 24,\n      "cuda_runtime_version": 12060,\n      "cuda_driver_version": 12080,\n'
        f'      "distributedInfo": {json.dumps(info)},\n      "record_shapes": 1,\n'
        f'      "trace_id": "{trace.record.rank:032X}",\n  "displayTimeUnit": "ms",\n'
        f'  "baseTimeNanoseconds": {BASE_TIME},\n  "traceEvents": [\n'
    )


def _closing(trace: Trace) -> Iterator[str]:
    rank = trace.record.rank
    first = min(event.start for event in trace.record.host_events)
    stops = [event.stop for event in trace.record.host_events]
    last = max(stops + [event.stop for event in trace.record.device_events])
    ts, end = microseconds(trace.stamp(first)), microseconds(trace.stamp(last))
    span = microseconds(trace.stamp(last) - trace.stamp(first))

    def metadata(kind: str, pid: int, tid: int, argument: str, value: str | int) -> str:
        return (
            f'  {{\n    "name": "{kind}", "ph": "M", "ts": {ts}, "pid": {pid}, "tid": {tid},\n'
            f'    "args": {{\n      "{argument}": {json.dumps(value)}\n    }}\n  }}'
        )

    for pid, label, order in ((process_id(rank), "CPU", rank), (trace.device, f"GPU {trace.device}", 5_000_000)):
        yield metadata("process_name", pid, 0, "name", "python")
        yield metadata("process_labels", pid, 0, "labels", label)
        yield metadata("process_sort_index", pid, 0, "sort_index", order)
    for thread, name in ((MAIN, "python"), (AUTOGRAD, f"pt_autograd_{trace.device}")):
        tid = thread_id(rank, thread)
        yield metadata("thread_name", process_id(rank), tid, "name", f"thread {tid} ({name})")
    for stream in sorted({event.stream for event in trace.record.device_events}):
        yield metadata("thread_name", trace.device, stream, "name", f"stream {stream} ")
    yield (
        f'  {{\n    "ph": "X", "cat": "Trace", "ts": {ts}, "dur": {span},\n'
        '    "pid": "Spans", "tid": "PyTorch Profiler",\n'
        '    "name": "PyTorch Profiler (0)",\n    "args": {\n      "Op count": 0\n    }\n  }'
    )
    yield (
        '  {\n    "name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g",\n'
        f'    "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": {ts}\n  }}'
    )
    yield f'  {{\n    "name": "Record Window End", "ph": "i", "s": "g",\n    "pid": "", "tid": "", "ts": {end}\n  }}'

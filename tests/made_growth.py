"""Inputs that grow in one dimension only: many ranks, threads, names, groups, or headers without frames."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb

from lostflops.collect.capture import frame_bytes
from made_captures import BASE, MS, collectives, end, session, step
from made_nsys import Export

Grow = Callable[[Path, int], None]
"""Writes an input of this size into a folder."""


def write_fake_headers(folder: Path, size: int) -> None:
    """A capture of headers only: each states a payload as long as half of the file, and none has its checksum."""
    header = struct.pack("<4sIII", b"\x89LFC", 0, 8 * size, 12345)
    whole = frame_bytes(0, "s", 0, 0, [session(0, 1), end(MS)])
    (folder / "rank-00000.capture").write_bytes(whole + header * size)


def write_capture_ranks(folder: Path, size: int) -> None:
    """The capture of a host on which very many ranks ran one step."""
    with (folder / "host-node0.capture").open("wb") as file:
        for rank in range(size):
            records = [session(rank, size), step(0, 0, (MS, MS, MS, MS, MS)), end(9 * MS)]
            file.write(frame_bytes(rank, f"session {rank}", 0, 0, records))


def write_capture_sessions(folder: Path, size: int) -> None:
    """The capture of a rank that was started again and again, all at one time."""
    with (folder / "rank-00000.capture").open("wb") as file:
        for number in range(size):
            records = [session(0, 1, restart=number), step(0, 0, (MS, MS, MS, MS, MS)), end(9 * MS)]
            file.write(frame_bytes(0, f"session {number}", 0, 0, records))


def write_capture_groups(folder: Path, size: int) -> None:
    """The capture of a rank that used each of its groups once."""
    with (folder / "rank-00000.capture").open("wb") as file:
        file.write(frame_bytes(0, "s", 0, 0, [session(0, 2)]))
        for number in range(size):
            records = [collectives((number, number), group=f"group {number}")]
            file.write(frame_bytes(0, "s", number + 1, 0, records))


def write_capture_stacks(folder: Path, size: int) -> None:
    """The capture of a rank whose samples all have stacks of their own."""
    names = {str(number): f"main;f{number}" for number in range(size)}
    stacks = {"kind": "stacks", "samples": [[BASE + number, number] for number in range(size)], "names": names}
    records = [session(0, 1), step(0, 0, (MS, MS, MS, MS, MS)), stacks, end(9 * MS)]
    (folder / "rank-00000.capture").write_bytes(frame_bytes(0, "s", 0, 0, records))


def write_op_types(folder: Path, size: int) -> None:
    """An op trace in which every op has a type of its own, one in two a collective."""
    _write_ops(folder, size, "0 as rank, 0 as dp_rank, 'op ' || i || if(i % 2 = 0, '-all-reduce', '') as optype")


def write_op_ranks(folder: Path, size: int) -> None:
    """An op trace with one op of each of very many ranks, all in one group."""
    _write_ops(folder, size, "i as rank, i as dp_rank, 'grads-reduce-scatter' as optype")


def write_op_steps(folder: Path, size: int) -> None:
    """An op trace with one op in each of very many steps."""
    _write_ops(folder, size, "0 as rank, 0 as dp_rank, 'forward-compute' as optype", step="i")


def _write_ops(folder: Path, size: int, columns: str, step: str = "0") -> None:
    more = f"0 as stage, {step} as step, 0.001::float as start_ts, 0.001::float as duration, 0 as mc, 0 as mb_id"
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(
            f"copy (select {columns}, {more} from range({size}) r(i)) to '{folder / 'trace.parquet'}' (format parquet)"
        )


def write_names(folder: Path, size: int) -> None:
    """A trace in which every op and every kernel has a name of its own."""
    _write_trace(folder, (_event(f"op {i}", i) if i % 2 else _kernel(f"kernel {i}", i) for i in range(size)))


def write_threads(folder: Path, size: int) -> None:
    """A trace in which every op runs on a thread of its own."""
    _write_trace(folder, (_event("op", i, tid=i + 1) for i in range(size)))


def write_busy_threads(folder: Path, size: int) -> None:
    """A trace in which every thread has an annotation, an op and a launch of its own."""
    _write_trace(folder, (event for i in range(size) for event in _busy_thread(i)))


def write_streams(folder: Path, size: int) -> None:
    """A trace in which every kernel runs on a stream of its own."""
    _write_trace(folder, (_kernel("kernel", i, stream=i) for i in range(size)))


def write_processes(folder: Path, size: int) -> None:
    """A trace in which every op runs in a process of its own."""
    _write_trace(folder, (_event("op", i, pid=i + 1) for i in range(size)))


def write_groups(folder: Path, size: int) -> None:
    """A trace in which every collective is in a group of its own."""
    _write_trace(folder, (_collective(i, f"group {i}", "[0, 1]") for i in range(size)))


def write_members(folder: Path, size: int) -> None:
    """A trace with one group of very many ranks, without a stride."""
    members = json.dumps([rank * rank % 999_983 for rank in range(size)])
    _write_trace(folder, (_collective(i, "0", members) for i in range(4)))


def write_steps(folder: Path, size: int) -> None:
    """A trace of very many steps with one op each."""
    marks = (_event(f"ProfilerStep#{i}", 10 * i, dur=10, cat="user_annotation") for i in range(size))
    _write_trace(folder, (event for i, mark in enumerate(marks) for event in (mark, _event("op", 10 * i))))


def write_nesting(folder: Path, size: int) -> None:
    """A trace in which every op is inside of the one before it."""
    _write_trace(folder, (_event("op", i, dur=2 * (size - i) + 1) for i in range(size)))


def write_shapes(folder: Path, size: int) -> None:
    """A trace in which every op has shapes of its own."""
    _write_trace(folder, (_event("aten::mm", i, args={"Input Dims": [[i, 2], [2, i]]}) for i in range(size)))


def write_export_names(folder: Path, size: int) -> None:
    """An export of Nsight Systems in which every kernel has a name and a stream of its own."""
    made = Export()
    for number in range(size):
        made.launched(f"kernel {number}", 10 * number, 10 * number + 6, 10 * number + 9, stream=number)
    made.write(folder / "rank0.sqlite")


def write_export_ranks(folder: Path, size: int) -> None:
    """An export of Nsight Systems with one kernel of each of very many processes."""
    made = Export()
    for number in range(size):
        made.launched("kernel", 10, 16, 19, pid=number + 1)
    made.write(folder / "all.sqlite")


def write_flight_entries(folder: Path, size: int) -> None:
    """A dump of the Flight Recorder in which every entry is in a group of its own."""
    entries = [
        {
            "record_id": i,
            "pg_id": i,
            "process_group": (f"{i}", "pg"),
            "collective_seq_id": 1,
            "p2p_seq_id": 0,
            "op_id": 1,
        }
        | {"profiling_name": "nccl:all_reduce", "time_created_ns": BASE + i, "state": "completed", "is_p2p": False}
        | {"input_sizes": [[i]], "input_dtypes": ["Float"], "output_sizes": [[i]], "output_dtypes": ["Float"]}
        | {"time_discovered_started_ns": BASE + i, "time_discovered_completed_ns": BASE + i, "retired": True}
        | {"timeout_ms": 1000, "frames": [{"name": f"f{i}", "filename": "train.py", "line": i}]}
        for i in range(size)
    ]
    groups = {f"{i}": {"name": f"{i}", "desc": "pg", "ranks": "[0, 1]"} for i in range(size)}
    dump = {"version": "2.9", "pg_config": groups, "pg_status": {}, "entries": entries}
    (folder / "dump_0").write_bytes(pickle.dumps(dump, 4))


def write_snapshot_blocks(folder: Path, size: int) -> None:
    """A snapshot of the CUDA allocator with very many segments of one block."""
    segments = [
        {"device": 0, "address": 4096 * (i + 1), "total_size": 512, "stream": 0, "segment_type": "small"}
        | {"blocks": [{"size": 512, "requested_size": 512, "state": "active_allocated", "address": 4096 * (i + 1)}]}
        for i in range(size)
    ]
    allocations = [
        {"action": "alloc", "addr": 4096 * (i + 1), "size": 512, "stream": 0, "time_us": i + 1}
        | {"frames": [{"name": f"f{i}", "filename": "train.py", "line": i}]}
        for i in range(size)
    ]
    (folder / "rank0.pickle").write_bytes(pickle.dumps({"segments": segments, "device_traces": [allocations]}, 4))


def write_schedule_steps(folder: Path, size: int) -> None:
    """A measured pipeline schedule of very many iterations."""
    passes = {"fwd_start": [0], "fwd_end": [1], "bwd_start": [1], "bwd_end": [2]}
    schedule = {str(number): {"total": 2} | passes for number in range(size)}
    (folder / "pp_rank_0.json").write_text(json.dumps(schedule), encoding="utf-8")


def write_files(folder: Path, size: int) -> None:
    """Traces of very many ranks, each with one op."""
    for rank in range(size):
        _write_trace(folder, [_event("op", 1)], rank, size)


def _write_trace(folder: Path, events: Iterable[dict[str, Any]], rank: int = 0, world_size: int = 2) -> None:
    info = {"rank": rank, "world_size": world_size, "backend": "nccl"}
    with (folder / f"rank{rank}.json").open("w", encoding="utf-8") as file:
        file.write(f'{{"schemaVersion": 1, "distributedInfo": {json.dumps(info)}, "traceEvents": [\n')
        file.write(",\n".join(map(json.dumps, events)))
        file.write("\n]}")


def _event(name: str, ts: int, *, dur: int = 2, cat: str = "cpu_op", **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {}} | more


def _kernel(name: str, ts: int, stream: int = 7) -> dict[str, Any]:
    args = {"device": 0, "stream": stream, "correlation": ts + 1}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": 1, "args": args}


def _busy_thread(number: int) -> Iterable[dict[str, Any]]:
    ts, tid = 10 * number, number + 1
    yield _event("forward", ts, dur=8, cat="user_annotation", tid=tid)
    yield _event("aten::mm", ts + 1, dur=6, tid=tid, args={"Input Dims": [[2, 2], [2, 2]]})
    yield _event("cudaLaunchKernel", ts + 2, dur=1, cat="cuda_runtime", tid=tid, args={"correlation": ts + 5})
    yield _kernel("gemm", ts + 4)


def _collective(ts: int, group: str, members: str) -> dict[str, Any]:
    kernel = _kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", ts)
    args = {"Collective name": "allreduce", "Process Group Name": group, "Process Group Ranks": members}
    return kernel | {"args": kernel["args"] | args | {"In msg nelems": 4, "dtype": "Float", "Group size": 2}}

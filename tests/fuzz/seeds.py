"""Small valid inputs of every reader, from which fuzzing begins; all are made by our own writers."""

from __future__ import annotations

import functools
import gzip
import json
import pickle
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from lostflops.collect import capture
from lostflops.ingest.reduce import reduce
from lostflops.predict.costs.calibration import (
    CalibratedCollective,
    CalibratedHost,
    CalibratedMemory,
    Calibration,
    Copy,
    Launch,
    Matmul,
)
from lostflops.predict.whatif import predictions
from lostflops.store.seals import seal
from lostflops.testing import SyntheticCluster
from lostflops.testing.store_run import store
from tests import made_captures, made_nccl_log
from tests.fuzz.exports import export
from tests.made_allocator import MB, Allocator, frame

Json = dict[str, Any]

# Traces of the profiler, and dumps of the Flight Recorder.

_COMM = {
    "Collective name": "allreduce",
    "In msg nelems": 1024,
    "Out msg nelems": 1024,
    "Group size": 2,
    "dtype": "BFloat16",
    "In split size": "[]",
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1]",
    "Seq": 12,
}
_SHAPES = {
    "Concrete Inputs": ["", "[4, 4]", "True"],
    "Input type": ["c10::BFloat16", "ScalarList", "Scalar"],
    "Input Strides": [[64, 1], [], []],
    "Input Dims": [[32, 64], [], []],
}
_DEVICE = {"device": 0, "context": 1, "stream": 7}
_KERNEL = {
    "registers per thread": 96,
    "shared memory": 1024,
    "blocks per SM": 1.5,
    "warps per SM": 6.0,
    "grid": [8, 12, 1],
    "block": [128, 1, 1],
    "est. achieved occupancy %": 14,
}
_MEMORY = {
    "Addr": 140001,
    "Bytes": 512,
    "Total Allocated": 1024,
    "Total Reserved": 4096,
    "Device Type": 1,
    "Device Id": 0,
}
_STACK = "train.py(12): step;/usr/lib/python3.11/site-packages/torch/nn/module.py(9): __call__"


def _timed(  # noqa: PLR0917 - a table of events is easier to read without names
    category: str, name: str, ts: float, dur: float, args: Json, tid: Any = 81, pid: Any = 81
) -> Json:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def _new_events() -> list[Json]:
    t = 6322354273000.0
    on_device = {"pid": 0, "tid": 7}
    return [
        _timed("user_annotation", "ProfilerStep#3", t, 900.5, {"External id": 1, "Ev Idx": 0}),
        _timed("cpu_op", 'aten::mm "{[quoted\\]}"', t + 1.39, 89.6, {"External id": 2, "Sequence number": 7} | _SHAPES),
        _timed("cpu_op", "aten::add", t + 3.5, 1.25, {"External id": 3, "Fwd thread id": 1, "Call stack": _STACK}),
        _timed("python_function", "train.py(12): step", t + 4, 30.0, {"Python id": 1}),
        _timed("cpu_op", "record_param_comms", t + 100.1, 20.0, {"External id": 4, "Rank": 0} | _COMM | _SHAPES),
        {"ph": "s", "id": 1, "pid": 81, "tid": 81, "ts": t + 1.39, "cat": "fwdbwd", "name": "fwdbwd"},
        {"ph": "f", "id": 1, "pid": 81, "tid": 82, "ts": t + 9.5, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"},
        _timed("cuda_runtime", "cudaLaunchKernel", t + 2.25, 1.5, {"External id": 2, "cbid": 211, "correlation": 11}),
        {"ph": "s", "id": 11, "pid": 81, "tid": 81, "ts": t + 2.25, "cat": "ac2g", "name": "ac2g"},
        _timed("kernel", "gemm<int, 4>", t + 8, 40.9, {"External id": 2, "correlation": 11} | _DEVICE | _KERNEL, 7, 0),
        {"ph": "f", "id": 11, **on_device, "ts": t + 8, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        _timed("cuda_driver", "cuLaunchKernel", t + 101.5, 1.5, {"External id": 4, "cbid": 307, "correlation": 12}),
        _timed(
            "kernel", "ncclDevKernel_AllReduce", t + 110, 60.1, {"correlation": 12} | _DEVICE | _KERNEL | _COMM, 7, 0
        ),
        _timed("cuda_runtime", "cudaMemcpyAsync", t + 60.5, 2.5, {"cbid": 41, "correlation": 13}),
        _timed("gpu_memcpy", "Memcpy DtoD", t + 71, 1.7, {"correlation": 13, "bytes": 2048} | _DEVICE, 7, 0),
        _timed("gpu_memset", "Memset (Device)", t + 75, 0.8, {"correlation": 14, "bytes": 64} | _DEVICE, 7, 0),
        _timed("cuda_sync", "Stream Wait Event", t + 80, 5.0, _DEVICE | {"wait_on_stream": 9, "correlation": 15}, 7, 0),
        _timed("gpu_user_annotation", "ProfilerStep#3", t + 8, 200.0, {"External id": 1}, 7, 0),
        _timed("user_annotation", "gloo:all_reduce", t + 300, 20.0, {"External id": 5} | _SHAPES),
        _timed("overhead", "Buffer Flush", t + 400, 9.5, {}),
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 81, "tid": 81, "ts": t + 5, "args": _MEMORY},
        {"ph": "M", "name": "thread_name", "pid": 81, "tid": 81, "ts": t, "args": {"name": "thread 81 (python)"}},
        _timed("user_annotation", "ProfilerStep#4", t + 901, 100.5, {"External id": 6}),
        _timed("Trace", "PyTorch Profiler (0)", t, 1002.0, {"Op count": 0}, "PyTorch Profiler", "Spans"),
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": t + 1002},
    ]


def _old_events() -> list[Json]:
    """Names of categories and identifiers as profilers before 1.13 wrote them, times in whole microseconds."""
    t = 1621401187223000
    numbers = {"external id": 7, "correlation": 21}
    return [
        _timed("Operator", "aten::mm", t, 50, {"External id": 7, "Input Dims": [[4, 4]]}, "1234 (thread)"),
        _timed("Runtime", "cudaLaunchKernel", t + 5, 3, numbers),
        _timed("Kernel", "volta_sgemm", t + 12, 30, numbers | _DEVICE | _KERNEL, "stream 7", 0),
        _timed("Memcpy", "Memcpy HtoD", t + 50, 3, numbers | _DEVICE | {"bytes": 4096}, "stream 7", 0),
        _timed("Memset", "Memset (Device)", t + 60, 1, numbers | _DEVICE | {"bytes": 8}, "stream 7", 0),
        _timed("mtia_ccp_events", "dma_request", t + 70, 1, {"size": 64, "correlation": 3}, 3, 1),
        _timed("unheard_of", "mystery", t + 80, 1, {}),
        {"ph": "B", "name": "begin", "pid": 1, "tid": 1, "ts": t},
    ]


_HEADER: Json = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85028372480, "numSms": 132}],
    "distributedInfo": {
        "backend": "nccl",
        "rank": 0,
        "world_size": 2,
        "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [0, 1]}],
    },
    "record_shapes": 1,
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1759300074000000000,
}
_ENTRY: Json = {
    "record_id": 7,
    "pg_id": 0,
    "process_group": ["0", "default_pg"],
    "collective_seq_id": 3,
    "p2p_seq_id": 0,
    "op_id": 4,
    "profiling_name": "nccl:_all_gather_base",
    "time_created_ns": 1_700_000_000_000_000_000,
    "input_sizes": [[4, 2]],
    "input_dtypes": ["BFloat16"],
    "output_sizes": [[8, 2]],
    "output_dtypes": ["BFloat16"],
    "state": "completed",
    "time_discovered_started_ns": 1_700_000_000_000_000_010,
    "time_discovered_completed_ns": 1_700_000_000_000_000_020,
    "retired": True,
    "timeout_ms": 600_000,
    "is_p2p": False,
    "frames": [{"name": "train", "filename": "/job/train.py", "line": 12}],
}
DUMP: Json = {
    "version": "2.9",
    "comm_lib_version": "2.27.5",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 4, "last_started_collective": 4, "last_completed_collective": 3}},
    "entries": [_ENTRY, _ENTRY | {"record_id": 8, "collective_seq_id": 4, "profiling_name": "gloo:all_reduce"}],
}


def _pretty(header: Json, events: Iterable[Json], trailer: str = '"traceName": "trace.json"') -> bytes:
    """In Kineto's layout: every event on several lines."""
    texts = []
    for event in events:
        rest = ", ".join(
            f"{json.dumps(key)}: {json.dumps(event[key])}" for key in event if key not in ("ts", "dur", "args")
        )
        times = ", ".join(f"{json.dumps(key)}: {event[key]}" for key in ("ts", "dur") if key in event)
        inner = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in event.get("args", {}).items())
        args = f',\n    "args": {{\n      {inner}\n    }}' if "args" in event else ""
        texts.append(f"  {{\n    {rest},\n    {times}{args}\n  }}")
    top = "".join(f"    {json.dumps(key)}: {json.dumps(value)},\n" for key, value in header.items())
    return f'\n  {{\n{top}  "traceEvents": [\n{",".join(texts)}\n  ],\n  {trailer}\n}}\n'.encode()


@functools.cache
def bases() -> dict[str, bytes]:
    compact = json.dumps(_HEADER | {"traceEvents": _new_events()}, separators=(",", ":")).encode()
    return {
        "pretty": _pretty(_HEADER, _new_events()),
        "compact": compact,
        "header last": json.dumps({"traceEvents": _new_events()} | _HEADER).encode(),
        "old": _pretty({"schemaVersion": 1}, _old_events()),
        "bare array": json.dumps(_old_events()).encode(),
        "flight json": json.dumps(DUMP).encode(),
        "flight pickle 2": pickle.dumps(DUMP, 2),
        "flight pickle 4": pickle.dumps(DUMP, 4),
        "nsys": export(),
    }


def is_pickle(base: str) -> bool:
    return base.startswith("flight pickle")


def plain_name(base: str) -> str:
    """What a file of this kind is called."""
    return "_dump_0" if is_pickle(base) else "rank0.sqlite" if base == "nsys" else "rank0_trace.json"


def kineto() -> list[bytes]:
    texts = [bases()[name] for name in ("pretty", "compact", "header last", "old", "bare array")]
    return [*texts, gzip.compress(texts[1], 1, mtime=0)]


def few_events() -> list[bytes]:
    """Traces of a few events each: plain Python scans them byte by byte."""
    events = _new_events()
    chosen = (events[1:2] + events[9:10], events[4:5], events[12:13] + events[20:21], events[16:19] + events[23:])
    return [_pretty({"schemaVersion": 1}, some) for some in chosen]


def nsys() -> list[bytes]:
    return [export()]


def flight() -> list[bytes]:
    dumps = [bases()[name] for name in ("flight json", "flight pickle 2", "flight pickle 4")]
    return [*dumps, gzip.compress(dumps[1], 1, mtime=0)]


# Other formats.


def _records() -> list[Json]:
    """One record of every kind that the collector writes."""
    ms, base = made_captures.MS, made_captures.BASE
    window = {"kind": "window", "window": 0, "first": 2, "steps": 1}
    ran_out = {"asked": 4096, "allocated": 8192, "reserved": 9000, "free": 10, "device": 0, "time": base + ms}
    return [
        made_captures.session(0),
        made_captures.step(1, 10 * ms, [ms, 2 * ms, 3 * ms, ms, 0], samples=4, tokens=64, peak_memory=1 << 20),
        made_captures.step(2, 20 * ms, [ms, 2 * ms, 3 * ms, ms, 0], profiled=True),
        {"kind": "device_step", "step": 1, "time": 6 * ms, "forward": ms},
        made_captures.collectives((1, 11 * ms), (2, 12 * ms)),
        {"kind": "parameters", "parameters": [
            {"name": "a.weight", "module": "a", "shape": [4, 4], "local_shape": [2, 4], "dtype": "float32",
             "bytes": 64, "trainable": True, "bucket": 0, "unit": "a"}]},
        {"kind": "job", "key": "ddp", "value": {"bucket_cap_mb": 25, "find_unused_parameters": False}},
        {"kind": "job", "key": "groups", "value": {"0": {"ranks": [0, 1], "description": "default_pg"}}},
        {"kind": "job", "key": "threads", "value": {"time": 5, "threads": [["loader", 3, "a.py:3"]]}},
        {"kind": "job", "key": "out_of_memory", "value": ran_out},
        {"kind": "clock", "wall": base + ms, "monotonic": ms, "peer": 1, "peer_wall": base + ms + 5},
        {**window, "state": "started", "time": base + 20 * ms},
        {"kind": "stacks", "names": {"0": "<module> train.py:1;f train.py:2"}, "samples": [[base + 21 * ms, 0]]},
        {"kind": "holdings", "window": 0, "time": base + ms, "before": True, "gone": [9],
         "rows": [[0, 1, 0, 4096, 512, "parameter", "a.weight", "train.py:3"]]},
        {**window, "state": "exported", "time": base + 29 * ms, "cost": ms, "file": "x"},
        {"kind": "note", "what": "sampling_failed", "count": 2, "reason": "OSError"},
        {"kind": "overhead", "step": 2, "own_share": 0.1, "level": 2, "reason": "budget"},
        made_captures.end(40 * ms),
    ]  # fmt: skip


@functools.cache
def captures() -> list[bytes]:
    records, ms = _records(), made_captures.MS
    restarted = [made_captures.session(0, wall=50 * ms, restart=1), made_captures.step(3, 60 * ms, [ms] * 5)]
    one = made_captures.frames(0, "a", records[:4], records[4:])
    host = b"".join(capture.frame_bytes(rank, f"s{rank}", 0, rank, records[:5]) for rank in (0, 1))
    return [one, one + made_captures.frames(0, "b", restarted), host, gzip.compress(host, 1, mtime=0)]


@functools.cache
def allocator() -> list[bytes]:
    made = Allocator()
    first = made.malloc(1000, frame("forward", "/job/train.py", 12), frame("linear", "torch/nn/functional.py", 9))
    second = made.malloc(3 * MB, frame("forward", "/job/train.py", 14))
    made.free(first)
    made.free(second, is_used=True)
    made.malloc(12 * MB, stream=7)
    made.fail(1 << 40, 4096, frame("forward", "/job/train.py", 15))
    snapshot = made.snapshot()
    return [pickle.dumps(snapshot, 2), pickle.dumps(snapshot, 4), pickle.dumps(snapshot["segments"], 4)]


OP_COLUMNS = {
    "dp_rank": "TINYINT", "stage": "TINYINT", "rank": "SMALLINT", "step": "BIGINT", "optype": "VARCHAR",
    "start_ts": "FLOAT", "duration": "FLOAT", "seq_id": "INTEGER", "mc": "TINYINT", "mb_id": "TINYINT",
    "gmc": "SMALLINT",
}  # fmt: skip


@functools.cache
def op_trace() -> list[bytes]:
    ops = ("params-all-gather", "forward-compute", "forward-send", "backward-recv", "backward-compute", "gc",
           "grads-reduce-scatter", "optimizer")  # fmt: skip
    rows = [
        (0, stage, stage, step, op, at / 8, 0.125, 0, 0, at % 2, -1)
        for stage in (0, 1)
        for step in (3, 4)
        for at, op in enumerate(ops)
    ]
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        declared = ", ".join(f"{name} {kind}" for name, kind in OP_COLUMNS.items())
        connection.execute(f"create table ops ({declared})")
        connection.executemany(f"insert into ops values ({', '.join('?' * len(OP_COLUMNS))})", rows)
        connection.execute(f"copy ops to '{folder}/ops' (format parquet)")
        return [Path(folder, "ops").read_bytes()]


@functools.cache
def reduced() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "rank0_trace.json")
        trace.write_bytes(bases()["compact"])
        return [reduce(trace, Path(folder)).read_bytes()]


def schedules() -> list[bytes]:
    """A schedule, and after a null byte the file of sizes next to it."""
    iteration = {"total": 9.5, "fwd_start": [0.0, 1.5], "fwd_end": [1.0, 2.5], "bwd_start": [3, 5], "bwd_end": [4, 6]}
    text = json.dumps({"1": iteration, "2": iteration}).encode()
    return [
        text,
        text + b"\0" + json.dumps({"pp_size": 2, "num_mbs": 2, "world_size": 4}).encode(),
        text + b"\0" + json.dumps({"pp_size": 1, "num_mbs": 1, "vp_size": 2}).encode(),
    ]


def nccl_info_logs() -> list[bytes]:
    """Merged logs of several versions of NCCL: starts, connections, calls and choices."""
    split = "ncclCommSplit comm 0xc0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1 parent 0xa000 splitCount 1 color 7 "
    said = (
        "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
        "NCCL_PROTO set by environment to simple",
        "AllReduce: opCount 3 sendbuff 7 recvbuff 8 count 256 datatype 7 op 0 root 0 comm 0xa000 [nranks=4] stream 0",
        "1024 Bytes -> Algo 1 proto 0 time 9.0",
        "AllGather: 4096 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..1}",
        split + "key 0- Init START",
        "Channel 00/1 : 0[0] -> 1[1] via SHM/direct/direct comm 0xa000 nRanks 04",
        "comm 0xa000 rank 0 nranks 4 cudaDev 0 busId 10000 - Destroy COMPLETE",
    )
    more = [f"{made_nccl_log.prefix(0, 4, 2)} {line}" for line in said]
    return [made_nccl_log.log(4, hosts=2, more=more).encode(), made_nccl_log.log(across="NET/Socket/0").encode()]


# Files about clusters, models and predictions.


def calibrations() -> list[bytes]:
    sizes = (1 << 10, 1 << 14, 1 << 18, 1 << 22)
    made = Calibration(
        date="2026-01-01", backend="nccl", device="cuda", device_name="NVIDIA H100 80GB HBM3", world_size=8,
        hosts=(CalibratedHost(host="a", ranks=(0, 1, 2, 3), cpu="x", cores=4, memory=1 << 30),),
        collectives=tuple(
            CalibratedCollective(op=op, level=level, ranks=8, hosts=hosts, bytes=size, ns=(900 + size, 950 + size))
            for op in ("all_reduce", "all_gather")
            for level, hosts in (("host", 1), ("world", 2))
            for size in sizes
        ),
        matmuls=tuple(Matmul(dtype="bfloat16", m=size, n=size, k=64, ns=(size, size + 9)) for size in sizes),
        memory=tuple(CalibratedMemory(kind="copy", bytes=size, ns=(size, size + 9)) for size in sizes),
        launches=(Launch(kind="empty", ns=(4000, 4100)),),
        copies=(Copy(direction="h2d", bytes=1 << 20, ns=(5000,), pinned=True),),
        notes=("a note",),
    )  # fmt: skip
    return [msgspec.json.encode(made), msgspec.json.encode(Calibration(collectives=made.collectives[:4]))]


def nccl_logs() -> list[bytes]:
    lines = [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20",
        "# all_reduce_perf",
    ]
    lines += [f"#  Rank {rank:2} Group  0 Pid  7{rank} on node{rank} device  0 [0x1] Test 40GB" for rank in (0, 1)]
    lines += ["NCCL version 2.18.3+cuda12.2", "# nccl-library=21803", "  0  0  float  sum  -1  0.14 0 0 0 0.14 0 0 0"]
    for power in (10, 12, 14):
        lines.append(f"  {2**power}  {2**power // 4}  float  sum  -1  {10 + power}.5  1.0  1.5  0  N/A  1.0  1.5  N/A")
    text = "\n".join([*lines, "# Out of bounds values : 0 OK"]).encode()
    return [text, gzip.compress(text, 1, mtime=0)]


def topologies() -> list[bytes]:
    return [
        b'device = "NVIDIA H100 80GB HBM3"\ngpus_per_host = 8\nnics_per_host = 8\nnic_gbs = 50\n',
        b'name = "x"\ngpus_per_host = 4\nscaleup_gbs = 25.5\nlink = "pci"\ncpu = "amd"\nsource = "y"\nnvls = false\n',
        b'{"device": "A100-SXM4-80GB", "gpus_per_host": 8, "scaleup_gbs": 300, "nvls": true, "link": "nvlink"}',
    ]


def descriptions() -> list[bytes]:
    model: Json = {"name": "m", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "vocabulary": 1000}
    job: Json = {"sequence": 128, "dp": 2, "microbatch": 1, "batch": 4, "zero": 2, "recompute": "full", "pp": 2}
    more: Json = {"experts": 8, "experts_per_token": 2, "norm": "layer", "head": "mlm", "tp": 2, "dtype": "fp8"}
    toml = "".join(f"{key} = {json.dumps(value)}\n" for key, value in (model | job).items())
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000,
              "max_position_embeddings": 128, "tie_word_embeddings": False}  # fmt: skip
    return [toml.encode(), json.dumps(model | job | more).encode(), json.dumps(config).encode()]


def stored_predictions() -> list[bytes]:
    origin = predictions.Origin(path="run", data="0123", ranks=2, device="H100", backend="nccl", recorded="2026-01-01")
    score = predictions.Score(
        run=origin, date="2026-01-02T00:00:00+00:00", measured_ns=90, steps=3, predicted_ns=91, error=0.01, inside=True,
        in_advance=True, gain=0.1, sign_right=None,
    )  # fmt: skip
    made = predictions.StoredPrediction(
        id="p-7f3a2c91", date="2026-01-01T00:00:00+00:00", lostflops="0", run=origin,
        changes=[predictions.Asked("bucket_mb", "50")], baseline=predictions.PredictionCheck(100, 101, 0.01),
        predicted_ns=91, interval=(90, 95), gain=0.09, scores=[score],
    )  # fmt: skip
    return [seal(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")]


def requests() -> list[bytes]:
    return [capture.WindowRequest(0, 10, 3).to_bytes(), capture.WindowRequest(7, 2, 1, "0,8,16").to_bytes()]


def queries() -> list[bytes]:
    return [
        b"select kind, count(*) from events group by kind order by 2 desc limit 5",
        b"with late as (select rank, max(start) as last from events group by rank) from late join ranks using (rank)",
        b"from steps select step, stop - start as ns where rank = 0",
        b"describe events", b"show tables", b"summarize steps", b"explain select * from ranks",
        b"select json_extract(reason, '$.a'), [1, 2, 3][1], {'a': 1}.a, x -> x + 1 from stats",
        b"select * from generate_series(1, 3) t(n) union all select * from range(2)",
        b"select * from read_parquet('x'); copy events to 'y'",
        b"with recursive r as (select 1 as n union all select n + 1 from r where n < 3) select * from r",
        b"select query('select 1'), * from query_table('events') pivot (count(*) for kind in ('op'))",
    ]  # fmt: skip


@functools.cache
def run_files() -> dict[str, bytes]:
    """All files of a small run, by their path in it."""
    with tempfile.TemporaryDirectory() as folder:
        made = store(SyntheticCluster(ranks=2, steps=2, memory=True).generate(), Path(folder, "run"))
        return {str(path.relative_to(made)): path.read_bytes() for path in sorted(made.rglob("*")) if path.is_file()}


def manifests() -> list[bytes]:
    return [run_files()["run.json"], b'{"schema": 1, "sources": [], "files": {}}']


def whole() -> list[bytes]:
    return [
        *kineto(),
        *flight(),
        export(),
        *captures(),
        *allocator(),
        *op_trace(),
        *reduced(),
        schedules()[0],
        nccl_info_logs()[0],
    ]

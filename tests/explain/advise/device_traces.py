"""Traces of one device, declared op by op: what each launches, how long it takes, and in which phase of a step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from lostflops.ingest import ingest

MAIN, STREAM = 100, 7
LATENCY = 2


@dataclass(frozen=True)
class Op:
    """Times are microseconds; `call_us` is the launching call within the op, which takes `host_us` in all. `blocks`:
    the call returns when the work is done. Of phase `forward`, `backward` or `optimizer`; `again` is a forward op in
    backward."""

    name: str
    kernel: str = ""
    us: int = 10
    shapes: Sequence[object] = ()
    dtype: str = "float"
    phase: str = "forward"
    host_us: int = 6
    call: str = "cudaLaunchKernel"
    call_us: int = 3
    blocks: bool = False
    again: bool = False
    size: int = 0
    stream: int = STREAM


def trace(folder: Path, ops: Sequence[Op], *, device: str = "NVIDIA A100-SXM4-80GB", steps: int = 4) -> Path:
    """A run of `steps` steps that all do the same; the host runs ahead where kernels take longer than calls."""
    events: list[dict[str, Any]] = []
    clock, free, correlation = 1000, 1000, 0
    for step in range(steps):
        begin = clock
        for phase, group in groupby(ops, key=lambda op: op.phase):
            start = clock
            for op in group:
                correlation += 1
                made, clock, free = _op(op, clock, free, correlation)
                events += made
            events += _around(phase, start, clock, correlation)
            clock += 2
        events.append(_event("user_annotation", f"ProfilerStep#{step}", begin, clock - begin))
        clock += 5
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rank0.pt.trace.json"
    properties = [{"id": 0, "name": device}]
    file.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}))
    ingest([file], folder / "run", workers=1)
    return folder / "run"


def _op(op: Op, clock: int, free: int, correlation: int) -> tuple[list[dict[str, Any]], int, int]:
    """Its events, and when host and device are free again."""
    arguments: dict[str, Any] = {"External id": correlation}
    if op.shapes:
        tensors = [shape for shape in op.shapes if shape]
        arguments["Input Dims"] = list(op.shapes)
        arguments["Input type"] = [op.dtype if shape in tensors else "Scalar" for shape in op.shapes]
    if op.again or op.phase == "forward":
        arguments |= {"Sequence number": correlation, "Fwd thread id": 0}
    call = clock + 1
    launched = call + op.call_us
    begin = max(call + LATENCY, free)
    if op.kernel:
        free = begin + op.us
        launched = max(launched, free) if op.blocks else launched
    host = max(op.host_us, launched + 1 - clock)
    found = [_event("cpu_op", op.name, clock, host, arguments)]
    if op.call:
        found.append(_event("cuda_runtime", op.call, call, launched - call, {"correlation": correlation}))
    if op.kernel:
        kind = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}.get(op.kernel[:6], "kernel")
        told: dict[str, Any] = {"correlation": correlation, "stream": op.stream, "device": 0}
        if op.size:
            told["bytes"] = op.size
        found.append(_event(kind, op.kernel, begin, op.us, told, process=0, thread=op.stream))
    return found, clock + host, free


def _around(phase: str, start: int, stop: int, number: int) -> list[dict[str, Any]]:
    if phase == "backward":
        told = {"Sequence number": number, "Fwd thread id": 1}
        return [_event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", start - 1, stop - start + 2, told)]
    if phase == "optimizer":
        return [_event("user_annotation", "Optimizer.step#AdamW.step", start - 1, stop - start + 2)]
    return []


def _event(
    category: str,
    name: str,
    start: int,
    length: int,
    arguments: dict[str, Any] | None = None,
    *,
    process: int = MAIN,
    thread: int = MAIN,
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": start,
        "dur": length,
        "args": arguments or {},
    }

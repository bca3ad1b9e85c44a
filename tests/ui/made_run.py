"""A run of which every view of a page has something to show: a synthetic cluster, recorded with memory and samples."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lostflops.account.derive.derive import derive
from lostflops.collect.capture import trace_file
from lostflops.ingest import ingest
from lostflops.testing import BASE_TIME, Losses, Straggler, SyntheticCluster, store
from made_captures import frames, session, write

RANKS = 4
STACKS = (
    "main /job/train.py:3;load /job/data.py:9",
    "main /job/train.py:3;load /job/data.py:9;read /job/data.py:17",
    "main /job/train.py:5;step /venv/lib/python3.12/site-packages/torch/optim/adam.py:70",
)
SAMPLES = 60
"""Of each rank: enough on most lines that functions can be told."""
MB = 1_000_000

Event = dict[str, Any]


def recorded_run(folder: Path) -> Path:
    """A pipeline of two stages, each on two ranks of which one is slow; every second step waits for its data."""
    cluster = SyntheticCluster(
        ranks=RANKS,
        steps=4,
        pipeline_parallel=2,
        microbatches=4,
        losses=Losses(data=5_000_000, copy_bytes=4_000_000, sync=1, steps=(11, 13)),
        stragglers=(Straggler(2, "slow_kernels", factor=1.5),),
    )
    capture = folder / "capture"
    capture.mkdir()
    for rank, trace in enumerate(cluster.generate().traces):
        document = json.loads(trace.text())
        events = document["traceEvents"]
        told = [session(rank, RANKS), _samples(events)]
        document["traceEvents"] = [*events, *_allocations(events, rank)]
        trace_file(capture, rank, 0).write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))
        write(capture, rank, frames(rank, f"s{rank}", told))
    ingest([capture], folder / "run", workers=1)
    return folder / "run"


def hosted_run(folder: Path) -> Path:
    """A pipeline of two stages on two hosts, four ranks each: the kernels of rank 5 are slow, and more so those of
    rank 2."""
    cluster = SyntheticCluster(
        ranks=8,
        ranks_per_host=4,
        steps=4,
        pipeline_parallel=2,
        microbatches=2,
        stragglers=(Straggler(5, "slow_kernels", factor=1.2), Straggler(2, "slow_kernels", factor=1.6)),
    )
    path = store(cluster.generate(), folder / "run", host_names=True)
    derive(path)
    return path


def _allocations(events: list[Event], rank: int) -> Iterator[Event]:
    """Ops allocate some MB each, more on later ranks, and the sixth op after frees them."""
    ops = sorted((one for one in events if one.get("cat") == "cpu_op"), key=lambda one: one["ts"])[::5]
    total = 100 * MB
    for number, op in enumerate(ops):
        for block, sign in ((number - 6, -1), (number, 1)):
            if block < 0:
                continue
            size = sign * (1 + rank + block % 7) * MB
            total += size
            place = {"Device Type": 1, "Device Id": 0, "Addr": 4096 * (block + 1)}
            args = {**place, "Bytes": size, "Total Allocated": total, "Total Reserved": 200 * MB}
            where = {"pid": op["pid"], "tid": op["tid"], "ts": op["ts"]}
            yield {"ph": "i", "s": "t", "name": "[memory]", **where, "args": args}


def _samples(events: list[Event]) -> Event:
    times = [one["ts"] for one in events if one.get("ph") == "X"]
    first, last = min(times), max(times)
    taken = [BASE_TIME + round(1000 * (first + (last - first) * place / SAMPLES)) for place in range(SAMPLES)]
    names = {str(number): stack for number, stack in enumerate(STACKS)}
    samples = [[time, place % len(STACKS)] for place, time in enumerate(taken)]
    return {"kind": "stacks", "names": names, "samples": samples}

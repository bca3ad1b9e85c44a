"""A simulated job as the collector records it: a trace per rank, and a capture with host, stacks and memory.

Stacks are those of a loop whose loader works on the training thread; they are read every 10 ms, as the collector does.
"""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lostflops.collect import capture

from .cluster import SyntheticCluster
from .kineto import BASE_TIME, Trace
from .recorded_names import FUSED_UPDATE, READ_BACK
from .records import AUTOGRAD, HostEvent, RankRecord

INTERVAL = 10_000_000
_WINDOW = 0
_CUDA = 1
_LOOP = "<module> train.py:142"
_STACKS = {
    "data": (
        f"{_LOOP};_BaseDataLoaderIter.__next__ torch/utils/data/dataloader.py:734;"
        "_SingleProcessDataLoaderIter._next_data torch/utils/data/dataloader.py:790;Shards.__getitem__ dataset.py:31;"
        "decode dataset.py:18"
    ),
    "forward": f"{_LOOP};train_step train.py:71;Module._call_impl torch/nn/modules/module.py:1789;"
    "Block.forward model.py:46",
    "sync": f"{_LOOP};train_step train.py:72;log_loss train.py:88",
    "backward": f"{_LOOP};train_step train.py:74;Tensor.backward torch/_tensor.py:630;"
    "_engine_run_backward torch/autograd/graph.py:841",
    "optimizer": f"{_LOOP};train_step train.py:77;AdamW.step torch/optim/adamw.py:220;"
    "_fused_adamw torch/optim/adamw.py:612",
}


def write_captured(cluster: SyntheticCluster, folder: Path) -> None:
    """Write the capture of a cluster into a folder, which is created if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for trace in cluster.generate().traces:
        rank = trace.record.rank
        trace.write(capture.trace_file(folder, rank, _WINDOW), gzip=True)
        frame = capture.frame_bytes(rank, f"synthetic-{rank}", 0, 0, list(_records(cluster, trace)))
        capture.rank_file(folder, rank).write_bytes(frame)


def _records(cluster: SyntheticCluster, trace: Trace) -> Iterator[dict[str, Any]]:
    record = trace.record
    first = min(event.start for event in record.host_events)
    last = max(event.stop for event in record.host_events)

    def wall(time: int) -> int:
        return BASE_TIME + trace.stamp(time)

    yield {
        "kind": "session", "version": capture.VERSION, "wall": wall(first), "host": f"host{trace.host}",
        "rank": record.rank, "world_size": trace.world_size, "local_rank": trace.device, "backend": "nccl",
        "device": "cuda", "device_name": "NVIDIA H100 80GB HBM3", "script": "train.py",
    }  # fmt: skip
    window = {"window": _WINDOW, "first": cluster.first_step, "steps": cluster.steps}
    yield {"kind": "window", **window, "state": "started", "time": wall(first)}
    if cluster.memory:
        rows = [
            [number, _CUDA, trace.device, held.address, held.bytes, held.owner, held.name]
            for number, held in enumerate(cluster.allocations_of(record).held)
        ]
        yield {"kind": "holdings", "window": _WINDOW, "time": wall(first), "before": True, "rows": rows}
    numbers = {phase: number for number, phase in enumerate(_STACKS)}
    # Samplers of ranks do not know of each other.
    read = range(first + INTERVAL * record.rank // trace.world_size, last, INTERVAL)
    yield {
        "kind": "stacks",
        "names": {str(numbers[phase]): stack for phase, stack in _STACKS.items()},
        "samples": [(wall(time), numbers[phase]) for time, phase in phases(record, read)],
    }
    yield {"kind": "window", **window, "state": "exported", "time": wall(last)}
    yield {"kind": "end", "wall": wall(last), "reason": "exit"}


def phases(record: RankRecord, times: range) -> Iterator[tuple[int, str]]:
    """Yield the phase of the training thread at these times; between two ops it is still in the first."""
    events = [event for event in record.host_events if event.category == "cpu_op"]
    starts = [event.start for event in events]
    for time in times:
        if any(start <= time < stop for start, stop in record.data_spans):
            yield time, "data"
        elif place := bisect_right(starts, time):
            yield time, _phase(events[place - 1])


def _phase(event: HostEvent) -> str:
    if event.thread == AUTOGRAD:
        return "backward"
    if event.name == READ_BACK:
        return "sync"
    return "optimizer" if event.name == FUSED_UPDATE else "forward"

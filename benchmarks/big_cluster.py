"""A run of thousands of ranks with known clocks and stragglers, made column by column instead of event by event.

    python benchmarks/big_cluster.py RUN --ranks 1000
    python benchmarks/big_cluster.py RUN --ranks 8 --host 4 --layers 2000 --steps 40

Hosts of eight ranks, tensor parallel within a host and data parallel across them. A step is fifty layers of four
kernels, each with the collective that follows it: three of the tensor group, one of the data group. A call launches
a kernel and its collective together, as a CUDA graph does; the host waits for the device at the end of a step. Rank
`slow` has slower kernels, and rank `late` waits longer for its data.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lostflops.ingest.common.group_ids import group_id
from lostflops.ingest.timeline.observations import KINETO_OBSERVATIONS
from lostflops.store.commit import RANKS_PER_FILE, RunWriter
from lostflops.store.manifest import DataFile, Source
from lostflops.store.parquet import ColumnData, ConstantColumn, ParquetWriter, TextColumn
from lostflops.store.tables import COLLECTIVES, EVENTS, GROUPS, LANES, STATS, STEPS, TableSchema

Ns = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FIRST_STEP, CALLS_OF_LAYER = 10, 4
BASE_TIME = 1_759_300_074_000_000_000

KERNEL, NOISE, TENSOR_TRANSFER, DATA_TRANSFER = 80_000, 0.02, 15_000, 30_000
FETCH, LAUNCH_EVERY, LAUNCH_TAKES, LATENCY, SYNC_RETURN = 50_000, 8_000, 3_000, 4_000, 2_000
SLOWER, LATER = 1.2, 3_000_000
LOST = 0.005
MOST_OFFSET, MOST_DRIFT_PPB = 1_000_000_000, 50_000

NULL = np.iinfo(np.int64).min
THREAD, COMPUTE, TENSOR, DATA = range(4)
KINDS = (None, "annotation", "op", "runtime", "kernel", "comm")
ANNOTATION, OP, RUNTIME, DEVICE_KERNEL, COMM = range(1, 6)
NAMES: tuple[str | None, ...] = (
    None,
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "CompiledFxGraph",
    "cudaGraphLaunch",
    "cudaStreamSynchronize",
    "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)
FETCHING, LAYER, LAUNCH, SYNC, MATMUL, ALL_REDUCE, FIRST_STEP_NAME = range(1, 8)


@dataclass(frozen=True, slots=True)
class Shape:
    """`host` are the ranks of each host."""

    ranks: int
    host: int = 8
    steps: int = 5
    layers: int = 50

    def __post_init__(self) -> None:
        if self.ranks % self.host or self.ranks < 2 * self.host:
            raise SystemExit(f"{self.ranks} ranks are not two or more hosts of {self.host}")

    @property
    def hosts(self) -> int:
        return self.ranks // self.host

    @property
    def calls(self) -> int:
        return self.layers * CALLS_OF_LAYER

    @property
    def is_data(self) -> Flags:
        """Of the calls of a step."""
        return np.arange(self.calls) % CALLS_OF_LAYER == CALLS_OF_LAYER - 1

    @property
    def numbers(self) -> Ns:
        return FIRST_STEP + np.arange(self.steps)


@dataclass(frozen=True, slots=True)
class Truth:
    """Clocks by host: what they show is true time + offset + drift. True time counts from `base_time`."""

    ranks: int
    slow: int
    late: int
    offset: list[int]
    drift_ppb: list[int]
    base_time: int = BASE_TIME


@dataclass(frozen=True, slots=True)
class Timeline:
    """True times: of calls by (step, call, rank), of steps by (step, rank)."""

    launch: Ns
    start: Ns
    arrival: Ns
    stop: Ns
    begin: Ns
    fetched: Ns
    end: Ns


def simulate(truth: Truth, shape: Shape, draw: np.random.Generator) -> Timeline:
    ranks, is_data = truth.ranks, shape.is_data.tolist()
    by_call = [np.empty((shape.steps, shape.calls, ranks), np.int64) for _ in range(4)]
    by_step = [np.empty((shape.steps, ranks), np.int64) for _ in range(3)]
    time = Timeline(*by_call, *by_step)
    slower, fetch = np.ones(ranks), np.full(ranks, FETCH)
    slower[truth.slow], fetch[truth.late] = SLOWER, FETCH + LATER
    host = np.zeros(ranks, np.int64)
    for step in range(shape.steps):
        time.begin[step], time.fetched[step] = host, host + fetch
        free = time.fetched[step]
        for call in range(shape.calls):
            launch = time.launch[step, call] = time.fetched[step] + (call + 1) * LAUNCH_EVERY
            start = time.start[step, call] = np.maximum(free, launch + LATENCY)
            kernel = KERNEL * slower * (1 + NOISE * draw.standard_normal(ranks))
            arrival = time.arrival[step, call] = start + kernel.astype(np.int64)
            free = time.stop[step, call] = _meet(arrival, is_data[call], shape.host)
        host = time.end[step] = free + SYNC_RETURN
    return time


def _meet(arrival: Ns, is_data: bool, host: int) -> Ns:
    """When a collective ends: tensor groups are the rows, data groups the columns."""
    grid = arrival.reshape(-1, host)
    last = grid.max(axis=0 if is_data else 1, keepdims=True)
    ends = last + (DATA_TRANSFER if is_data else TENSOR_TRANSFER)
    return np.broadcast_to(ends, grid.shape).reshape(-1)


@dataclass(frozen=True, slots=True)
class Rows:
    """Events of some ranks: one row per rank, one column per event that a whole trace has; lost ones are not `kept`."""

    start: Ns
    dur: Ns
    step: Ns
    kept: Flags
    kind: npt.NDArray[np.uint32]
    name: npt.NDArray[np.uint32]
    lane: Ns
    correlation: Ns
    op: Ns

    def number(self) -> Ns:
        """Of each event within its rank, lost ones left out."""
        return np.cumsum(self.kept, axis=1) - 1


def _patterns(shape: Shape) -> tuple[Ns, ...]:
    """Kind, name, lane, correlation, op and step of the events of a whole trace, the same for all ranks.

    Events are in this order: steps, fetches, layers, launches, syncs; kernels, collectives.
    """
    calls, steps = np.arange(shape.steps * shape.calls), np.arange(shape.steps)
    layers = np.arange(shape.steps * shape.layers)
    of_call = (calls + 1, calls // CALLS_OF_LAYER + 1, calls // shape.calls)
    on_group = np.tile(np.where(shape.is_data, DATA, TENSOR), shape.steps)
    none = np.full(shape.steps, NULL)
    pieces = (
        (ANNOTATION, FIRST_STEP_NAME + steps, THREAD, none, none, steps),
        (ANNOTATION, FETCHING, THREAD, none, none, steps),
        (OP, LAYER, THREAD, np.full(layers.size, NULL), layers + 1, layers // shape.layers),
        (RUNTIME, LAUNCH, THREAD, *of_call),
        (RUNTIME, SYNC, THREAD, calls.size + steps + 1, none, steps),
        (DEVICE_KERNEL, MATMUL, COMPUTE, *of_call),
        (COMM, ALL_REDUCE, on_group, *of_call),
    )
    return tuple(
        np.concatenate([np.broadcast_to(piece[column], piece[5].shape) for piece in pieces]) for column in range(6)
    )


def rows_of(time: Timeline, truth: Truth, shape: Shape, ranks: Ns, draw: np.random.Generator) -> Rows:
    kind, name, lane, correlation, op, step = _patterns(shape)

    def flat(times: Ns) -> Ns:
        """Ranks first, then all calls or steps in order."""
        return np.moveaxis(times[..., ranks], -1, 0).reshape(ranks.size, -1)

    launch, first = flat(time.launch), flat(time.launch[:, ::CALLS_OF_LAYER])
    last = flat(time.launch[:, CALLS_OF_LAYER - 1 :: CALLS_OF_LAYER]) + LAUNCH_TAKES
    launched = flat(time.launch[:, -1]) + LAUNCH_TAKES
    begin, end, start, arrival = flat(time.begin), flat(time.end), flat(time.start), flat(time.arrival)
    starts = np.hstack((begin, begin, first - 1_000, launch, launched + 2_000, start, arrival))
    stops = np.hstack((end, flat(time.fetched), last + 1_000, launch + LAUNCH_TAKES, end, arrival, flat(time.stop)))
    hosts = ranks // shape.host
    starts, stops = _read(starts, truth, hosts), _read(stops, truth, hosts)
    lost = draw.random(starts.shape) < LOST
    lost[:, kind < RUNTIME] = False
    of_launch = np.flatnonzero(name == LAUNCH)
    steps = np.broadcast_to(step + FIRST_STEP, starts.shape).copy()
    for on_device in (DEVICE_KERNEL, COMM):
        own = kind == on_device
        steps[:, own] = np.where(lost[:, of_launch], NULL, steps[:, own])
    codes = (kind.astype(np.uint32), name.astype(np.uint32))
    return Rows(starts, stops - starts, steps, ~lost, *codes, lane, correlation, op)


def _read(times: Ns, truth: Truth, hosts: Ns) -> Ns:
    """What the clocks of these hosts show."""
    offset, drift = np.array(truth.offset)[hosts, None], np.array(truth.drift_ppb)[hosts, None]
    shown: Ns = BASE_TIME + times + offset + times * drift // 1_000_000_000
    return shown


def event_columns(rows: Rows, shape: Shape, ranks: Ns) -> dict[str, ColumnData]:
    kept = rows.kept
    names = (*NAMES, *(f"ProfilerStep#{number}" for number in shape.numbers.tolist()))
    return {
        "rank": _every(ranks[:, None], kept),
        "event": rows.number()[kept],
        "lane": _every(rows.lane, kept),
        "kind": TextColumn(_every(rows.kind, kept), KINDS),
        "name": TextColumn(_every(rows.name, kept), names),
        "start": rows.start[kept],
        "dur": rows.dur[kept],
        "correlation": _every(rows.correlation, kept),
        "external_id": _every(rows.op, kept),
        "step": rows.step[kept],
    }


def _every(values: npt.NDArray[Any], kept: Flags) -> npt.NDArray[Any]:
    return np.broadcast_to(values, kept.shape)[kept]


def collective_columns(rows: Rows, shape: Shape, ranks: Ns, groups: list[str]) -> dict[str, ColumnData]:
    own = rows.kind == COMM
    kept, start = rows.kept[:, own], rows.start[:, own]
    is_data = np.tile(shape.is_data, shape.steps)
    seq = np.where(is_data, np.cumsum(is_data), np.cumsum(~is_data))
    seen = np.where(is_data, np.cumsum(kept & is_data, axis=1), np.cumsum(kept & ~is_data, axis=1))
    # Code 0 of a text column is null.
    codes = np.where(is_data, data_group(shape, ranks)[:, None], tensor_group(shape, ranks)[:, None]) + 1
    return {
        "rank": _every(ranks[:, None], kept),
        "event": rows.number()[:, own][kept],
        "group_id": TextColumn(codes[kept].astype(np.uint32), (None, *groups)),
        "group_size": _every(np.where(is_data, shape.hosts, shape.host), kept),
        "seq": _every(seq, kept),
        "ordinal": (seen - 1)[kept],
        "order_source": ConstantColumn("seq"),
        "op": ConstantColumn("all_reduce"),
        "dtype": ConstantColumn("BFloat16"),
        "bytes_in": ConstantColumn(1_000_000),
        "bytes_out": ConstantColumn(1_000_000),
        "start": start[kept],
        "stop": (start + rows.dur[:, own])[kept],
        "lane": _every(rows.lane[own], kept),
        "step": rows.step[:, own][kept],
        "metadata": ConstantColumn("kernel"),
    }


def group_names(shape: Shape) -> list[str]:
    """The world, the tensor groups, the data groups."""
    host, hosts = shape.host, shape.hosts
    tensor = [group_id(str(1 + place), range(place * host, place * host + host)) for place in range(hosts)]
    data = [group_id(str(1 + hosts + place), range(place, shape.ranks, host)) for place in range(host)]
    return [group_id("0", range(shape.ranks)), *tensor, *data]


def tensor_group(shape: Shape, ranks: Ns) -> Ns:
    """Its place among the names of all groups."""
    return 1 + ranks // shape.host


def data_group(shape: Shape, ranks: Ns) -> Ns:
    return 1 + shape.hosts + ranks % shape.host


def group_columns(shape: Shape, ranks: Ns, groups: list[str]) -> dict[str, ColumnData]:
    number = np.stack((np.zeros_like(ranks), tensor_group(shape, ranks), data_group(shape, ranks)), axis=1)
    position = np.stack((ranks, ranks % shape.host, ranks // shape.host), axis=1)
    return {
        "rank": np.repeat(ranks, 3),
        "group_id": [groups[place] for place in number.ravel().tolist()],
        "position": position.ravel(),
        "size": np.tile([shape.ranks, shape.host, shape.hosts], ranks.size),
        "name": [str(place) for place in number.ravel().tolist()],
        "description": ["default_pg", "mesh_tp", "mesh_dp"] * ranks.size,
        "backend": ConstantColumn("cuda:nccl"),
    }


def lane_columns(shape: Shape, ranks: Ns) -> dict[str, ColumnData]:
    lanes, process = 4, 1000 + ranks
    is_thread = np.tile(np.arange(lanes) == THREAD, ranks.size)
    streams = np.tile([0, 7, 20, 24], ranks.size)
    return {
        "rank": np.repeat(ranks, lanes),
        "lane": np.tile(np.arange(lanes), ranks.size),
        "kind": np.where(is_thread, "thread", "stream").tolist(),
        "process": np.where(is_thread, np.repeat(process, lanes), NULL),
        "thread": np.where(is_thread, np.repeat(process, lanes), NULL),
        "device": np.where(is_thread, NULL, np.repeat(ranks % shape.host, lanes)),
        "stream": np.where(is_thread, NULL, streams),
        "name": ["python", "stream 7 ", "stream 20 ", "stream 24 "] * ranks.size,
    }


def step_columns(rows: Rows, shape: Shape, ranks: Ns) -> dict[str, ColumnData]:
    """Edges of the device are those of the events that were kept with their launch."""
    own = np.flatnonzero(rows.name >= FIRST_STEP_NAME)
    on_device = rows.kind >= DEVICE_KERNEL
    start, step = rows.start[:, on_device], np.where(rows.kept[:, on_device], rows.step[:, on_device], NULL)
    stop = start + rows.dur[:, on_device]
    most = np.iinfo(np.int64).max
    inside = [step == number for number in shape.numbers.tolist()]
    return {
        "rank": np.repeat(ranks, shape.steps),
        "step": np.tile(shape.numbers, ranks.size),
        "lane": np.full(ranks.size * shape.steps, THREAD),
        "start": rows.start[:, own].ravel(),
        "stop": (rows.start + rows.dur)[:, own].ravel(),
        "device_start": np.stack([np.where(own, start, most).min(axis=1) for own in inside], axis=1).ravel(),
        "device_stop": np.stack([np.where(own, stop, -most).max(axis=1) for own in inside], axis=1).ravel(),
    }


def stat_columns(rows: Rows, ranks: Ns) -> dict[str, ColumnData]:
    on_device = rows.kind >= DEVICE_KERNEL
    missing = (rows.kept & (rows.step == NULL))[:, on_device].sum(axis=1)
    what, (effect, reason) = "kernels_without_launch", KINETO_OBSERVATIONS["kernels_without_launch"]
    texts = {"format": "kineto", "what": what, "effect": effect, "reason": reason}
    return {"rank": ranks[missing > 0], "count": missing[missing > 0]} | {
        k: ConstantColumn(v) for k, v in texts.items()
    }


def source(rank: int, shape: Shape, events: int) -> Source:
    return Source(
        path=f"/traces/host{rank // shape.host}_{1000 + rank}.{BASE_TIME}.pt.trace.json",
        size=0,
        modified_ns=0,
        hash="",
        format="kineto",
        rank=rank,
        rank_source="recorded",
        host=f"host{rank // shape.host}",
        device="NVIDIA H100 80GB HBM3",
        device_index=rank % shape.host,
        world_size=shape.ranks,
        backend="nccl",
        base_time=BASE_TIME,
        events=events,
    )


def make_truth(shape: Shape, draw: np.random.Generator) -> Truth:
    ranks, hosts = shape.ranks, shape.hosts
    return Truth(
        ranks,
        slow=ranks // 3,
        late=ranks - 5,
        offset=draw.integers(-MOST_OFFSET, MOST_OFFSET, hosts, endpoint=True).tolist(),
        drift_ppb=draw.integers(-MOST_DRIFT_PPB, MOST_DRIFT_PPB, hosts, endpoint=True).tolist(),
    )


def write_run(folder: Path, shape: Shape, seed: int = 0) -> Truth:
    """Write a run that is not aligned yet: the step of ingest before its last one."""
    draw = np.random.default_rng([seed, shape.ranks])
    truth = make_truth(shape, draw)
    time, groups = simulate(truth, shape, draw), group_names(shape)
    files: dict[str, list[DataFile]] = {}
    sources: list[Source] = []
    writer = ParquetWriter()
    with RunWriter(folder.resolve()) as run:
        for first in range(0, shape.ranks, RANKS_PER_FILE):
            own = np.arange(first, min(first + RANKS_PER_FILE, shape.ranks))
            rows = rows_of(time, truth, shape, own, draw)
            tables: dict[TableSchema, dict[str, ColumnData]] = {
                EVENTS: event_columns(rows, shape, own),
                COLLECTIVES: collective_columns(rows, shape, own, groups),
                STEPS: step_columns(rows, shape, own),
                GROUPS: group_columns(shape, own, groups),
                LANES: lane_columns(shape, own),
                STATS: stat_columns(rows, own),
            }
            for table, columns in tables.items():
                path = run.staging / table.name / f"kineto-ranks-{first:06d}-{first + RANKS_PER_FILE - 1:06d}.parquet"
                writer.write(table, columns, path)
                file = DataFile(path=run.relative(path), format="kineto", ranks=own.tolist())
                files.setdefault(table.name, []).append(file)
            counts = rows.kept.sum(axis=1).tolist()
            sources += [source(rank, shape, events) for rank, events in zip(own.tolist(), counts, strict=True)]
        run.commit(sources, files)
    writer.close()
    return truth


def asked(description: str | None, place: str) -> tuple[Path, Shape, int]:
    """Where to write, what, and the seed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", metavar=place, type=Path)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--host", type=int, default=8, help="ranks of a host")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--layers", type=int, default=50, help="of a step; each is 13 events")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    return options.place, Shape(options.ranks, options.host, options.steps, options.layers), options.seed


def main() -> int:
    print(json.dumps(asdict(write_run(*asked(__doc__, "RUN")))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

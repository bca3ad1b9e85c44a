"""Mini traces for the verbs that analyse a run: events in microseconds, as a profiler writes them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lostflops.ingest import ingest

HOST, THREAD, AUTOGRAD = 100, 1, 2
H100 = "NVIDIA H100 80GB HBM3"
MATMUL = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
"""Of 2 x 64 x 32 x 16 = 65,536 FLOPs."""
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NVJET = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT"
SGEMM = "volta_sgemm_128x64_tn"
TRITON = "triton_tem_fused_mm_3"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

Event = dict[str, Any]


def event(cat: str, name: str, ts: float, dur: float, lane: tuple[int, int] = (HOST, THREAD), **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": lane[0], "tid": lane[1], "ts": ts, "dur": dur, "args": args}


def op(name: str, ts: float, dur: float, thread: int = THREAD, **args: Any) -> Event:
    return event("cpu_op", name, ts, dur, (HOST, thread), **args)


def note(name: str, ts: float, dur: float) -> Event:
    return event("user_annotation", name, ts, dur)


def step(number: int, ts: float, dur: float) -> Event:
    return note(f"ProfilerStep#{number}", ts, dur)


def launch(correlation: int, ts: float, thread: int = THREAD, name: str = "cudaLaunchKernel") -> Event:
    return event("cuda_runtime", name, ts, 2, (HOST, thread), correlation=correlation)


def kernel(correlation: int, ts: float, dur: float, name: str = NVJET, stream: int = 7, **args: Any) -> Event:
    place = {"device": 0, "stream": stream, "correlation": correlation}
    return event("kernel", name, ts, dur, (0, stream), **place, **args)


def copy(correlation: int, ts: float, dur: float, name: str = "Memcpy HtoD (Pinned -> Device)") -> Event:
    return kernel(correlation, ts, dur, name) | {"cat": "gpu_memcpy"}


def occupied(percent: float) -> dict[str, float]:
    return {"est. achieved occupancy %": percent}


def collective(name: str, elements_in: int, elements_out: int, *, group: str = "0", ranks: str = "[0, 1]") -> Event:
    """Metadata of a collective on floats of 4 bytes."""
    return {
        "Collective name": name,
        "In msg nelems": elements_in,
        "Out msg nelems": elements_out,
        "Group size": ranks.count(",") + 1,
        "dtype": "Float",
        "Process Group Name": group,
        "Process Group Ranks": ranks,
    }


def make_run(folder: Path, *ranks: Sequence[Event], device: str = H100, **document: Any) -> Path:
    """Ingest one trace for each rank; an empty name means no accelerator."""
    files = []
    folder.mkdir(parents=True, exist_ok=True)
    for rank, events in enumerate(ranks):
        whole = {
            "schemaVersion": 1,
            "distributedInfo": {"rank": rank, "world_size": len(ranks)},
            "deviceProperties": [{"id": 0, "name": device}] if device else [],
            **document,
            "traceEvents": list(events),
        }
        files.append(folder / f"rank{rank}.json")
        files[-1].write_text(json.dumps(whole))
    ingest(files, folder / "run", workers=1)
    return folder / "run"


# Two steps on a device, its window from 10 to 182. What ends each gap was launched 6 or more before it starts.
BUSY = (
    step(10, 0, 100),
    note("forward", 0, 30),
    op("aten::mm", 2, 8, **MATMUL),
    launch(1, 4),
    kernel(1, 10, 20, **occupied(50)),
    op("aten::add", 12, 4),
    launch(2, 13),
    kernel(2, 30, 10, ELEMENTWISE, **occupied(25)),
    op("record_param_comms", 20, 8),
    launch(3, 22),
    # Compute hides 5 of it; 20 are exposed.
    kernel(3, 35, 25, NCCL, 20, **collective("allreduce", 1_000_000, 1_000_000)),
    # Launched at 54, before the gap from 60 to 70 began: the device itself waited.
    op("MmBackward0", 50, 8, AUTOGRAD),
    op("aten::mm", 51, 6, AUTOGRAD, **MATMUL),
    launch(4, 54, AUTOGRAD),
    kernel(4, 70, 10, SGEMM),
    # From 80 to 130 idle: Python for 20, waiting for data for 20, 2 of dispatch, 6 of launch, 2 of queueing.
    step(11, 100, 100),
    note(LOADER, 100, 20),
    op("aten::copy_", 120, 6),
    launch(5, 122, name="cudaMemcpyAsync"),
    copy(5, 130, 5),
    # Launched at 128, before the gap from 135 to 136.
    op("aten::mm", 126, 8, **MATMUL),
    launch(6, 128),
    kernel(6, 136, 20, **occupied(75)),
    # From 156 to 172 idle: Python for 4, 4 of dispatch, 6 of launch, 2 of queueing.
    note("validation", 158, 12),
    op("aten::mm", 160, 8, **MATMUL),
    launch(7, 164),
    kernel(7, 172, 10, TRITON),
)

# The same steps on a rank that computes more, its window from 10 to 150; idle from 60 to 110.
CALM = (
    step(10, 0, 100),
    op("aten::mm", 2, 8, **MATMUL),
    launch(1, 4),
    kernel(1, 10, 50),
    step(11, 100, 100),
    op("aten::mm", 102, 8, **MATMUL),
    launch(2, 104),
    kernel(2, 110, 40),
)

BUSY_LINES = {
    "compute": 70_000,
    "comm.transfer": 20_000,
    "copy": 5_000,
    "idle.data": 20_000,
    "idle.host": 18_000,
    "idle.python": 24_000,
    "idle.dependency": 15_000,
}
CALM_LINES = {"compute": 90_000, "idle.host": 8_000, "idle.python": 42_000}

CPU_RANK = (
    step(10, 0, 100),
    op("aten::addmm", 10, 40),
    # Hidden under the product for 10, exposed for 20.
    op("gloo:all_reduce", 40, 30, 5, **{"Input Dims": [[1000]], "Input type": ["float"]}),
    op("aten::relu", 80, 10),
)

FLIGHT_DUMP = {
    "version": "2.9",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "entries": [
        {
            "record_id": 1,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": 1,
            "p2p_seq_id": 0,
            "op_id": 1,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": 1_700_000_000_000_000_000,
            "input_sizes": [[4]],
            "input_dtypes": ["Float"],
            "output_sizes": [[4]],
            "output_dtypes": ["Float"],
            "state": "completed",
            "is_p2p": False,
            "frames": [],
        }
    ],
}


def make_flight_run(folder: Path) -> Path:
    """Two ranks of which only the Flight Recorder tells: they have no timed events."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"_dump_{rank}" for rank in (0, 1)]
    for file in files:
        file.write_text(json.dumps(FLIGHT_DUMP))
    ingest(files, folder / "run", workers=1)
    return folder / "run"

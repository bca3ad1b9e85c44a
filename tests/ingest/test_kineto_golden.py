"""A tiny trace, a question, the expected rows."""

import json
import random

import pytest

from lostflops.core.errors import BrokenSource
from lostflops.ingest import ingest
from lostflops.ingest.common import byte_stream, columns
from lostflops.ingest.common.columns import whole_numbers
from lostflops.ingest.timeline.lookups import innermost

HOST, THREAD = 100, 1


def event(cat, name, ts, dur, tid=THREAD, pid=HOST, **args):  # noqa: PLR0917 - as a trace writes them
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def op(name, ts, dur, tid=THREAD, **args):
    return event("cpu_op", name, ts, dur, tid, **args)


def note(name, ts, dur, tid=THREAD):
    return event("user_annotation", name, ts, dur, tid)


def step(number, ts, dur, tid=THREAD):
    return note(f"ProfilerStep#{number}", ts, dur, tid)


def launch(correlation, ts, dur=2, tid=THREAD, name="cudaLaunchKernel"):
    return event("cuda_runtime", name, ts, dur, tid, correlation=correlation)


def kernel(correlation, ts, dur, name="gemm", *, stream=7, device=0, **args):
    args = {"device": device, "stream": stream, "correlation": correlation} | args
    return event("kernel", name, ts, dur, stream, device, **args)


def call(ts, dur, tid=THREAD, **args):
    return op("record_param_comms", ts, dur, tid, **args)


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
METADATA = {
    "Collective name": "allreduce",
    "In msg nelems": 1000,
    "Out msg nelems": 1000,
    "Group size": 2,
    "dtype": "Float",
    "Process Group Name": "5",
    "Process Group Description": "tp",
    "Process Group Ranks": "[0, 2]",
    "Seq": 41,
}
STATS = "select what, effect, count from stats where what <> 'no_steps' order by what"


# --- events and lanes ---------------------------------------------------------------------------------------------


def test_new_dialect_one_event_of_each_kind(rows):
    trace = [
        op("aten::mm", 1.001, 5.5, **{"External id": 9, "Sequence number": 3, "Fwd thread id": 2}),
        note("forward", 1, 20),
        event("python_function", "train.py(12): step", 1, 30),
        launch(77, 2),
        event("cuda_driver", "cuLaunchKernel", 2.5, 0.5, correlation=78),
        event("overhead", "Buffer Flush", 3, 1),
        event("Trace", "PyTorch Profiler (0)", 0, 50, "PyTorch Profiler", "Spans"),
        op("gloo:all_reduce", 4, 1),
        kernel(77, 10, 3, **{"External id": 9}),
        kernel(78, 14, 1, NCCL),
        event("gpu_memcpy", "Memcpy HtoD", 16, 1, 7, 0, device=0, stream=7, correlation=79, bytes=4096),
        event("gpu_memset", "Memset", 18, 0, 7, 0, device=0, stream=7, correlation=80, bytes=16),
        event("cuda_sync", "Stream Wait Event", 19, 1, 7, 0, device=0, stream=7, correlation=81, wait_on_stream=8,
              wait_on_cuda_event_record_corr_id=70),
        event("gpu_user_annotation", "forward", 10, 5, 7, 0),
        event("surprise", "what", 5, 1),
    ]  # fmt: skip
    found = rows(
        "select kind, name, start, dur, correlation, external_id, sequence, bytes from events order by kind, start",
        trace,
    )
    assert found == [
        ("annotation", "forward", 1_000, 20_000, None, None, None, None),
        ("comm", NCCL, 14_000, 1_000, 78, None, None, None),
        ("device_annotation", "forward", 10_000, 5_000, None, None, None, None),
        ("host_comm", "gloo:all_reduce", 4_000, 1_000, None, None, None, None),
        ("kernel", "gemm", 10_000, 3_000, 77, 9, None, None),
        ("memcpy", "Memcpy HtoD", 16_000, 1_000, 79, None, None, 4096),
        ("memset", "Memset", 18_000, 0, 80, None, None, 16),
        ("op", "aten::mm", 1_001, 5_500, None, 9, 3, None),
        ("other", "what", 5_000, 1_000, None, None, None, None),
        ("overhead", "Buffer Flush", 3_000, 1_000, None, None, None, None),
        ("python", "train.py(12): step", 1_000, 30_000, None, None, None, None),
        ("runtime", "cudaLaunchKernel", 2_000, 2_000, 77, None, None, None),
        ("runtime", "cuLaunchKernel", 2_500, 500, 78, None, None, None),
        ("span", "PyTorch Profiler (0)", 0, 50_000, None, None, None, None),
        ("sync", "Stream Wait Event", 19_000, 1_000, 81, None, None, None),
    ]


def test_details_of_events(rows, traces):
    trace = [
        op("aten::mm", 0, 1, **{"Input Dims": [[2, 3], []], "Input type": ["float", ""], "Concrete Inputs": ["", "1"],
                                "Fwd thread id": 1, "Call stack": "/env/site-packages/x.py(3): f;/job/train.py(7): g"}),
        event("python_function", "train.py(12): step", 2, 1),
        event("python_function", "<built-in method run>", 4, 1),
        kernel(1, 0, 1, grid=[8, 2, 1], block=[128, 1, 1], **{"registers per thread": 32, "shared memory": 1024,
                                                             "est. achieved occupancy %": 37.5}),
        kernel(2, 5, 1),
        event("cuda_sync", "Stream Wait Event", 9, 1, 7, 0, device=0, stream=7, wait_on_stream=8,
              wait_on_cuda_event_record_corr_id=70),
    ]  # fmt: skip
    host = """select name, source, forward_thread, shapes, dtypes, inputs from events
        where kind in ('op', 'python') order by start"""
    assert [tuple(str(v).replace(" ", "").replace("\n", "") if v else v for v in row) for row in rows(host, trace)] == [
        ("aten::mm", "/job/train.py(7):g", "1", "[[2,3],[]]", '["float",""]', '["","1"]'),
        ("train.py(12):step", "train.py(12):step", None, None, None, None),
        ("<built-inmethodrun>", None, None, None, None, None),
    ]
    grid = """select grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, shared_memory, occupancy
        from events where kind = 'kernel' order by start"""
    assert traces.ask(grid) == [(8, 2, 1, 128, 1, 1, 32, 1024, 37.5), (None,) * 9]
    assert traces.ask("select wait_stream, wait_correlation from events where kind = 'sync'") == [(8, 70)]


def test_event_numbers_are_unique_and_collectives_point_at_theirs(rows):
    trace = [
        op("a", 0, 1),
        kernel(1, 5, 1),
        kernel(2, 7, 1, NCCL),
        launch(1, 0),
        op("gloo:broadcast", 3, 1),
        op("b", 1, 1),
    ]
    query = "select c.metadata, e.name from collectives c join events e using (rank, event) order by 1"
    assert rows(query, trace) == [("gloo", "gloo:broadcast"), ("name", NCCL)]
    assert rows("select count(*), count(distinct event), min(event), max(event) from events", trace) == [(6, 6, 0, 5)]


def test_lanes(rows):
    trace = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": "stream 7 "}},
        op("a", 0, 1),
        op("b", 1, 1, tid=2),
        kernel(1, 0, 1, stream=7),
        kernel(2, 0, 1, stream=20),
        kernel(3, 0, 1, stream=7, device=1),
        {"ph": "M", "name": "thread_name", "pid": HOST, "tid": 2, "args": {"name": "thread 2 (autograd)"}},
        {"ph": "M", "name": "process_name", "pid": HOST, "tid": 2, "args": {"name": "python"}},
    ]
    query = (
        "select l.kind, process, thread, device, stream, l.name, e.name from lanes l join events e using (rank, lane)"
    )
    assert sorted(rows(query, trace), key=str) == [
        ("stream", None, None, 0, 20, None, "gemm"),
        ("stream", None, None, 0, 7, "stream 7 ", "gemm"),
        ("stream", None, None, 1, 7, None, "gemm"),
        ("thread", 100, 1, None, None, None, "a"),
        ("thread", 100, 2, None, None, "thread 2 (autograd)", "b"),
    ]


def test_base_time_is_added_to_every_time(rows, traces):
    base = 1_700_000_000_000_000_000
    trace = [
        step(1, 0.5, 9),
        launch(1, 1),
        kernel(1, 2, 3.25, NCCL),
        {"ph": "i", "name": "[memory]", "pid": HOST, "tid": 1, "ts": 4, "args": {"Bytes": 8}},
        {"ph": "s", "cat": "fwdbwd", "id": 1, "pid": HOST, "tid": 1, "ts": 5},
        {"ph": "f", "cat": "fwdbwd", "id": 1, "pid": HOST, "tid": 1, "ts": 6},
    ]
    assert rows("select start - base_time, dur from events, ranks order by start", trace, baseTimeNanoseconds=base) == [
        (500, 9_000), (1_000, 2_000), (2_000, 3_250),
    ]  # fmt: skip
    assert traces.ask("select base_time from ranks") == [(base,)]
    times = """select start - base_time, stop - base_time, device_start - base_time, device_stop - base_time
        from steps, ranks"""
    assert traces.ask(times) == [(500, 9_500, 2_000, 5_250)]
    assert traces.ask("select start - base_time, stop - base_time from collectives, ranks") == [(2_000, 5_250)]
    assert traces.ask("select time - base_time from memory, ranks") == [(4_000,)]
    assert traces.ask("select from_start - base_time, to_start - base_time from links, ranks") == [(5_000, 6_000)]


def test_times_are_exact_where_a_float_is_not(rows):
    text = '[{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1698955063520869.241, "dur": 0.003}]'
    assert rows("select start, dur from events", text) == [(1_698_955_063_520_869_241, 3)]
    assert round(float("1698955063520869.241") * 1000) != 1_698_955_063_520_869_241


# --- dialects -----------------------------------------------------------------------------------------------------


def test_old_dialect(rows, traces):
    trace = [
        {"ph": "X", "cat": "Operator", "name": "ProfilerStep#4", "pid": 9, "tid": "9", "ts": 100, "dur": 50,
         "args": {"External id": 1}},
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 9, "tid": "9", "ts": 101, "dur": 5,
         "args": {"External id": 2, "Input dims": [[1]]}},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": "9", "ts": 102, "dur": 1,
         "args": {"external id": 2, "correlation": 30, "external ts": "101"}},
        {"ph": "X", "cat": "Kernel", "name": "gemm", "pid": 0, "tid": "stream 7", "ts": 110, "dur": 4,
         "args": {"device": 0, "context": 1, "stream": 7, "correlation": 30, "external id": 2,
                  "grid": [1, 2, 3], "block": [4, 5, 6]}},
        {"ph": "X", "cat": "Memcpy", "name": "Memcpy DtoH", "pid": 0, "tid": "stream 7", "ts": 120, "dur": 2,
         "args": {"device": 0, "stream": 7, "correlation": 31, "external id": 2, "bytes": 4}},
        {"ph": "X", "cat": "Memset", "name": "Memset (Device)", "pid": 0, "tid": "stream 7", "ts": 130, "dur": 1,
         "args": {"device": 0, "stream": 7, "correlation": 32, "external id": 2, "bytes": 8}},
        {"ph": "M", "name": "thread_name", "pid": 9, "tid": "9", "args": {"name": "thread 9 (python)"}},
    ]  # fmt: skip
    assert rows("select kind, external_id, correlation, step, grid_y, bytes from events order by start", trace) == [
        ("annotation", 1, None, 4, None, None),
        ("op", 2, None, 4, None, None),
        ("runtime", 2, 30, 4, None, None),
        ("kernel", 2, 30, 4, 2, None),
        ("memcpy", 2, 31, None, None, 4),
        ("memset", 2, 32, None, None, 8),
    ]
    assert traces.ask("select kind, process, thread, device, stream, name from lanes order by kind") == [
        ("stream", None, None, 0, 7, None),
        ("thread", 9, 9, None, None, "thread 9 (python)"),
    ]
    assert traces.ask("select step, start, stop, device_start, device_stop from steps") == [
        (4, 100_000, 150_000, 110_000, 114_000)
    ]


def test_amd_writes_sizes_as_text(rows):
    trace = [
        event("gpu_memcpy", "CopyHostToDevice", 1, 1, 0, 2, device=2, stream=0, correlation=5, bytes="4096"),
        event("gpu_memcpy", "CopyDeviceToHost", 3, 1, 0, 2, device=2, stream=0, correlation=6, bytes=512),
        event("gpu_memset", "FillBuffer", 5, 1, 0, 2, device=2, stream=0, correlation=7, bytes="many"),
        kernel(8, 7, 1, "Cijk_Ailk", device=2, stream=0, grid=[1, 1, 1], block=[256, 1, 1]),
    ]
    assert rows("select kind, bytes, shared_memory from events order by start", trace) == [
        ("memcpy", 4096, None), ("memcpy", 512, None), ("memset", None, None), ("kernel", None, None),
    ]  # fmt: skip


def test_mtia_has_its_device_and_stream_as_process_and_thread(rows, traces):
    trace = [
        event("mtia_runtime", "enqueue", 1, 1, correlation=4),
        event("mtia_ccp_events", "kernel_a", 3, 2, 3, 1, correlation=4),
        event("mtia_ccp_events", "dma_request", 6, 1, 3, 1, correlation=5, size=2048),
        event("mtia_ccp_events", "event_wait", 8, 1, 3, 1, correlation=6),
    ]
    assert rows("select kind, name, bytes from events order by start", trace) == [
        ("runtime", "enqueue", None), ("kernel", "kernel_a", None), ("memcpy", "dma_request", 2048),
        ("sync", "event_wait", None),
    ]  # fmt: skip
    assert traces.ask("select device, stream from lanes where kind = 'stream'") == [(1, 3)]
    assert traces.ask("select device_index from ranks") == [(1,)]


def test_a_cpu_rank_with_gloo(rows, traces):
    trace = [
        step(1, 0, 100),
        op("aten::mm", 5, 10),
        op("gloo:all_reduce", 20, 30, tid=5, **{"Input Dims": [[10, 4]], "Input type": ["float"]}),
        note("gloo:all_gather", 60, 10, tid=5),
        op("gloo:broadcast", 55, 1, tid=6, **{"Input Dims": [[]], "Input type": ["long int"]}),
    ]
    query = """select op, group_id, seq, ordinal, order_source, dtype, bytes_in, bytes_out, start, stop, step, metadata
        from collectives order by start"""
    assert rows(query, trace) == [
        ("all_reduce", None, None, 0, "lane ordinal", "float", 160, None, 20_000, 50_000, 1, "gloo"),
        ("broadcast", None, None, 0, "lane ordinal", "long int", 8, None, 55_000, 56_000, 1, "gloo"),
        ("all_gather", None, None, 1, "lane ordinal", None, None, None, 60_000, 70_000, 1, "gloo"),
    ]
    assert traces.ask("select device, device_index from ranks") == [(None, None)]
    assert traces.ask(STATS) == [("collectives_without_group", "missing", 3)]


def test_device_and_job_of_a_rank(rows):
    found = rows(
        "select rank, rank_source, host, device, device_index, world_size, backend, formats, events from ranks",
        [kernel(1, 0, 1, device=3), kernel(2, 5, 1, device=3), kernel(3, 0, 1, device=0)],
        distributedInfo={"backend": "nccl", "rank": 11, "world_size": 16},
        deviceProperties=[{"id": 0, "name": "A100"}, {"id": 3, "name": "H100"}],
        host_name="node4",
    )
    assert found == [(11, "recorded", "node4", "H100", 3, 16, "nccl", "kineto", 3)]


@pytest.mark.parametrize(
    ("listed", "device"),
    [
        ([(0, "MI300X")], "MI300X"),  # ROCm: two CPUs are numbered first, and the process may use one device
        ([(0, "MI300X"), (1, "MI300X")], "MI300X"),
        ([(0, "MI300X"), (1, "MI210")], None),
        ([(0, "MI210"), (2, "MI300X")], "MI300X"),
        ([(0, "MI300X"), (2, "")], None),
        ([], None),
    ],
)
def test_a_device_that_is_not_listed_has_the_name_of_all_that_are(rows, listed, device):
    properties = [{"id": number, "name": name} for number, name in listed]
    found = rows("select device, device_index from ranks", [kernel(1, 0, 1, device=2)], deviceProperties=properties)
    assert found == [(device, 2)]


# --- steps, annotations, launches ---------------------------------------------------------------------------------


def test_kernels_belong_to_the_step_of_their_launch(rows, traces):
    trace = [
        step(1, 0, 10),
        step(2, 10, 10),
        launch(1, 3),
        launch(2, 9, dur=4),  # begins in step 1, ends in step 2
        launch(3, 10),
        launch(4, 25),
        kernel(1, 12, 2),  # runs in step 2
        kernel(2, 15, 2),
        kernel(3, 40, 2),  # runs behind all steps
        kernel(4, 50, 2),  # launched outside of steps
        kernel(9, 5, 1),  # no launch recorded, though it runs in step 1
    ]
    query = "select correlation, step from events where kind = 'kernel' order by correlation"
    assert rows(query, trace) == [(1, 1), (2, 1), (3, 2), (4, None), (9, None)]
    assert traces.ask("select step, start, stop, device_start, device_stop from steps order by step") == [
        (1, 0, 10_000, 12_000, 17_000),
        (2, 10_000, 20_000, 40_000, 42_000),
    ]
    assert traces.ask(STATS) == [("kernels_without_launch", "missing", 1)]


def test_host_events_belong_to_the_step_running_at_their_start_on_any_thread(rows):
    trace = [
        step(5, 10, 10),
        step(6, 20, 10),
        op("a", 9, 5),
        op("b", 10, 5),
        op("c", 20, 1),
        op("d", 25, 1, tid=2),
        op("e", 31, 1),
    ]
    query = "select name, step from events where kind = 'op' order by name"
    assert rows(query, trace) == [("a", None), ("b", 5), ("c", 6), ("d", 6), ("e", None)]


def test_a_step_is_half_open(rows):
    """Steps are [start, stop): what starts at the end of the last one is outside."""
    assert rows("select step from events where name = 'late'", [step(5, 10, 10), op("late", 20, 1)]) == [(None,)]


def test_step_numbers_that_repeat_or_are_left_out(rows, traces):
    trace = [step(1, 0, 10), step(2, 10, 10), step(2, 20, 10), step(5, 30, 10), op("a", 25, 1)]
    assert rows("select step, start from steps order by start", trace) == [(1, 0), (2, 10_000), (5, 30_000)]
    assert traces.ask(STATS) == [("missing_steps", "missing", 2), ("repeated_steps", "dropped", 1)]


def test_no_steps_is_said(rows):
    assert rows("select what, effect, count from stats", [op("a", 0, 1)]) == [("no_steps", "missing", 1)]


def test_the_innermost_annotation_of_the_same_thread(rows):
    trace = [
        step(1, 0, 100),
        note("outer", 10, 50),
        note("inner", 20, 10),
        note("other thread", 0, 100, tid=2),
        op("before", 5, 1),
        op("in outer", 15, 1),
        op("in inner", 20, 1),
        op("behind inner", 30, 1),
        op("behind outer", 60, 1),
        op("elsewhere", 25, 1, tid=3),
        launch(1, 25),
        launch(2, 70),
        kernel(1, 80, 5),
        kernel(2, 90, 5),
        kernel(3, 22, 1, "no launch"),
    ]
    query = "select name, annotation from events where kind in ('op', 'kernel') order by start"
    assert rows(query, trace) == [
        ("before", None),
        ("in outer", "outer"),
        ("in inner", "inner"),
        ("no launch", None),
        ("elsewhere", None),
        ("behind inner", "outer"),
        ("behind outer", None),
        ("gemm", "inner"),
        ("gemm", None),
    ]


def test_an_annotation_is_around_others_not_around_itself(rows):
    trace = [note("outer", 10, 50), note("inner", 20, 10)]
    assert rows("select name, annotation from events order by start", trace) == [("outer", None), ("inner", "outer")]


def test_annotations_that_cross(rows):
    """`record_function` can be entered and left by hand, and microseconds are rounded: an inner one may end later."""
    trace = [
        note("a", 0, 10),
        note("b", 5, 10),
        note("c", 30, 10),
        *(op(f"at {ts}", ts, 1) for ts in (2, 7, 12, 20, 33, 45)),
    ]
    query = "select name, annotation from events where kind = 'op' order by start"
    assert rows(query, trace) == [
        ("at 2", "a"), ("at 7", "b"), ("at 12", "b"), ("at 20", None), ("at 33", "c"), ("at 45", None),
    ]  # fmt: skip


def test_innermost_against_a_naive_search():
    """Innermost = of those running, the one that started last; of these the one that ends first."""
    import numpy as np

    dice = random.Random(4)
    for _ in range(300):
        spans = [
            (start, start + dice.randint(1, 8)) for start in (dice.randint(0, 20) for _ in range(dice.randint(1, 6)))
        ]
        spans = list(dict.fromkeys(spans))
        start, stop = (np.array([span[i] for span in spans], np.int64) for i in (0, 1))
        times, inner, _ = innermost(start, stop)
        assert (np.diff(times) > 0).all(), f"{spans} gives times out of order: {times}"
        for at in range(-1, 30):
            index = int(np.searchsorted(times, at, side="right")) - 1
            found = int(inner[index]) + 1 if index >= 0 else 0
            running = [(-a, b, code) for code, (a, b) in enumerate(spans, 1) if a <= at < b]
            assert found == (min(running)[2] if running else 0), (spans, at)


def test_one_graph_launch_for_many_kernels(rows, traces):
    trace = [
        step(1, 0, 10),
        note("replay", 0, 8),
        launch(50, 2, name="cudaGraphLaunch"),
        *(kernel(50, 20 + i, 1, f"k{i}") for i in range(3)),
        kernel(51, 30, 1, "stray"),
    ]
    query = "select name, correlation, step, annotation from events where kind = 'kernel' order by name"
    assert rows(query, trace) == [
        ("k0", 50, 1, "replay"), ("k1", 50, 1, "replay"), ("k2", 50, 1, "replay"), ("stray", 51, None, None),
    ]  # fmt: skip
    assert traces.ask("select device_start, device_stop from steps") == [(20_000, 23_000)]
    assert traces.ask(STATS) == [("kernels_without_launch", "missing", 1)]


@pytest.mark.parametrize("far", [10, 1 << 40, -5, (1 << 62) + 1])
def test_correlations_may_be_any_numbers(rows, far):
    trace = [step(1, 0, 10), launch(3, 1), launch(far, 2), kernel(3, 20, 1), kernel(far, 30, 1), kernel(4, 40, 1)]
    found = rows("select correlation, step from events where kind = 'kernel' order by start", trace)
    assert found == [(3, 1), (far, 1), (4, None)]


# --- collectives --------------------------------------------------------------------------------------------------

COLLECTIVE = (
    "select op, group_id, group_size, seq, ordinal, order_source, dtype, bytes_in, bytes_out, peer, metadata "
    "from collectives order by start"
)


def test_metadata_of_the_kernel(rows, traces):
    trace = [step(3, 0, 10), launch(1, 1), kernel(1, 5, 4, NCCL, stream=20, **METADATA)]
    assert rows(COLLECTIVE, trace) == [
        ("all_reduce", "5@0-2/2", 2, 41, 0, "seq", "Float", 4000, 4000, None, "kernel"),
    ]
    assert traces.ask("select start, stop, c.step, l.stream from collectives c join lanes l using (rank, lane)") == [
        (5_000, 9_000, 3, 20)
    ]
    assert traces.ask("select group_id, rank, position, size, name, description from groups") == [
        ("5@0-2/2", 0, 0, 2, "5", "tp")
    ]
    assert traces.ask(STATS) == []


def test_metadata_of_the_call_around_the_launch(rows):
    trace = [call(0, 10, **METADATA), launch(1, 3), kernel(1, 50, 4, NCCL)]
    assert rows(COLLECTIVE, trace) == [
        ("all_reduce", "5@0-2/2", 2, 41, 0, "seq", "Float", 4000, 4000, None, "record_param_comms"),
    ]


@pytest.mark.parametrize(
    "trace",
    [
        [call(0, 10, **METADATA), launch(1, 3, tid=2), kernel(1, 5, 4, NCCL)],  # launched by another thread
        [call(0, 10, **METADATA), launch(1, 11), kernel(1, 12, 4, NCCL)],  # launched behind the call
        [call(0, 10, **METADATA), kernel(1, 5, 4, NCCL)],  # no launch recorded
        [call(0, 10), launch(1, 3), kernel(1, 5, 4, NCCL)],  # the call tells nothing
    ],
)
def test_collectives_by_name_only(rows, traces, trace):
    assert rows(COLLECTIVE, trace) == [
        ("all_reduce", None, None, None, 0, "lane ordinal", None, None, None, None, "name"),
    ]
    assert traces.ask("select effect, count from stats where what = 'collectives_without_metadata'") == [("guessed", 1)]


def test_the_kernels_own_metadata_wins_and_the_call_completes_it(rows):
    own = {"Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 8, "Out msg nelems": 16}
    trace = [call(0, 10, **METADATA), launch(1, 3), kernel(1, 50, 4, NCCL, **own)]
    assert rows(COLLECTIVE, trace) == [
        ("all_gather", "5@0-2/2", 2, 41, 0, "seq", "BFloat16", 16, 32, None, "kernel"),
    ]


def test_a_custom_kernel_with_metadata_communicates(rows):
    trace = [kernel(1, 5, 4, "my_fused_thing", **METADATA), kernel(2, 15, 4, "my_fused_thing")]
    assert rows("select name, kind from events order by start", trace) == [
        ("my_fused_thing", "comm"),
        ("my_fused_thing", "kernel"),
    ]


def test_a_call_within_a_coalesced_call(rows):
    outer = METADATA | {"Collective name": "allreduce_coalesced", "Seq": 1}
    inner = METADATA | {"Seq": 2}
    trace = [
        call(0, 100, **outer),
        call(10, 10, **inner),
        launch(1, 15),
        kernel(1, 200, 1, NCCL),
        launch(2, 50),
        kernel(2, 210, 1, NCCL),
    ]
    assert rows("select seq from collectives order by start", trace) == [(2,), (1,)]


def test_a_launch_at_the_end_of_a_coalesced_call_with_many_members(rows):
    outer = METADATA | {"Collective name": "allreduce_coalesced", "Seq": 1}
    trace = [
        call(0, 100, **outer),
        *(call(ts, 5, **METADATA) for ts in (10, 20, 30)),
        launch(1, 50),
        kernel(1, 200, 1, NCCL),
    ]
    assert rows("select seq, metadata from collectives", trace) == [(1, "record_param_comms")]


def test_point_to_point(rows):
    name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    send = METADATA | {"Collective name": "send", "Src Rank": 0, "Dst Rank": 2, "Out msg nelems": 0}
    recv = METADATA | {"Collective name": "recv", "Src Rank": 2, "Dst Rank": 0, "Seq": 42}
    trace = [kernel(1, 5, 1, name, **send), kernel(2, 7, 1, name, **recv), kernel(3, 9, 1, name)]
    assert rows("select op, peer, seq, bytes_in, bytes_out, metadata from collectives order by start", trace) == [
        ("send", 2, 41, 4000, 0, "kernel"),
        ("recv", 2, 42, 4000, 4000, "kernel"),
        ("send_recv", None, None, None, None, "name"),
    ]


def test_ordinals_count_per_group_and_where_there_is_none_per_lane(rows):
    world = METADATA | {"Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3]"}
    without = {key: value for key, value in METADATA.items() if key != "Seq"}
    trace = [
        kernel(5, 50, 1, NCCL, stream=9),
        kernel(4, 40, 1, NCCL, stream=8),
        kernel(3, 30, 1, NCCL, stream=7, **without),
        kernel(2, 20, 1, NCCL, stream=8, **world),
        kernel(1, 10, 1, NCCL, stream=7, **METADATA),
        kernel(6, 60, 1, NCCL, stream=8),
    ]
    assert rows("select group_id, ordinal, order_source from collectives order by start", trace) == [
        ("5@0-2/2", 0, "seq"),
        ("0@0-3", 0, "seq"),
        ("5@0-2/2", 1, "group ordinal"),
        (None, 0, "lane ordinal"),
        (None, 0, "lane ordinal"),
        (None, 1, "lane ordinal"),
    ]


PG_CONFIG = [
    {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 4, "ranks": [0, 1, 2, 3]},
    {"pg_name": "5", "pg_desc": "tp", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [2, 0]},
    {"pg_name": "6", "pg_desc": "undefined", "backend_config": "", "pg_size": 2, "ranks": [1, 3]},
    {"pg_name": "5", "pg_desc": "tp", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [2, 0]},
    {"pg_name": "7"},
    "?",
]


def test_groups_of_the_rank(rows):
    found = rows(
        "select group_id, rank, position, size, name, description, backend from groups order by name",
        [op("a", 0, 1)],
        distributedInfo={"rank": 0, "world_size": 4, "pg_config": PG_CONFIG},
    )
    assert found == [
        ("0@0-3", 0, 0, 4, "0", "default_pg", "cuda:nccl"),
        ("5@0-2/2", 0, 1, 2, "5", "tp", "cuda:nccl"),
    ]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"Process Group Ranks": "[0, 2]"}, "5@0-2/2"),
        ({"Process Group Ranks": "[0, 1, ...]"}, "5@0-2/2"),  # shortened: by name from the trace's own list
        ({}, "5@0-2/2"),
        ({"Process Group Name": "9", "Global rank start": 0, "Global rank stride": 4, "Group size": 3}, "9@0-8/4"),
        ({"Process Group Name": "9", "Process Group Ranks": "[0, 1, ...]"}, None),
        ({"Process Group Name": ""}, None),
    ],
)
def test_group_ids(rows, told, expected):
    bare = {key: value for key, value in METADATA.items() if key != "Process Group Ranks"}
    info = {"rank": 0, "pg_config": PG_CONFIG}
    assert rows("select group_id from collectives", [kernel(1, 0, 1, NCCL, **(bare | told))], distributedInfo=info) == [
        (expected,)
    ]


def test_calls_without_a_kernel_are_counted(rows):
    trace = [
        call(0, 10, **METADATA),
        call(20, 10, **METADATA),
        call(40, 1, **{"Collective name": "wait"}),
        launch(1, 3),
        kernel(1, 50, 1, NCCL),
    ]
    assert rows(STATS, trace) == [("comms_without_kernel", "missing", 1)]


def test_many_collectives_and_one_huge_one(rows):
    """4 GB in one of many: what a sample of the rows says about sizes is not true of all."""
    small = METADATA | {"In msg nelems": 10, "Out msg nelems": 10}
    huge = METADATA | {"Seq": 1 << 40, "In msg nelems": 1 << 30}
    trace = [kernel(i, 10 * i, 1, NCCL, **(huge if i == 3_777 else small)) for i in range(4_000)]
    assert rows("select max(bytes_in), max(seq), count(*) from collectives", trace) == [(1 << 32, 1 << 40, 4_000)]


# --- memory and links ---------------------------------------------------------------------------------------------


def test_memory(rows):
    def memory(ts, **args):
        return {"ph": "i", "s": "t", "name": "[memory]", "pid": HOST, "tid": 1, "ts": ts, "args": args}

    trace = [
        step(2, 0, 10),
        memory(
            1.5,
            **{
                "Total Reserved": 900,
                "Total Allocated": 512,
                "Bytes": 512,
                "Addr": 140_000,
                "Device Id": 0,
                "Device Type": 1,
            },
        ),
        memory(
            20,
            **{
                "Total Reserved": 900,
                "Total Allocated": 0,
                "Bytes": -512,
                "Addr": 140_000,
                "Device Id": -1,
                "Device Type": 0,
            },
        ),
        memory(None),
    ]
    query = (
        "select time, step, device_type, device_index, address, bytes, allocated, reserved from memory order by time"
    )
    assert rows(query, trace) == [
        (1_500, 2, 1, 0, 140_000, 512, 512, 900),
        (20_000, None, 0, -1, 140_000, -512, 0, 900),
    ]
    assert rows(STATS, trace) == [("events_without_time", "dropped", 1)]


def test_links_from_forward_to_backward(rows):
    def arrow(ph, number, ts, tid, cat="fwdbwd"):
        return {"ph": ph, "cat": cat, "name": cat, "id": number, "pid": HOST, "tid": tid, "ts": ts}

    trace = [
        arrow("f", 1, 50, 2),  # the end may stand before the start
        arrow("s", 1, 10, 1),
        arrow("s", 2, 11, 1),
        arrow("f", 2, 45, 2),
        arrow("s", 3, 12, 1),  # never ends
        arrow("f", 4, 60, 2),  # never began
        arrow("s", 9, 13, 1, "ac2g"),
        arrow("f", 9, 14, 1, "ac2g"),
    ]
    query = """select a.thread, from_start, b.thread, to_start from links
        join lanes a on a.lane = from_lane join lanes b on b.lane = to_lane order by from_start"""
    assert rows(query, trace) == [(1, 10_000, 2, 50_000), (1, 11_000, 2, 45_000)]
    assert rows(STATS, trace) == [("unpaired_arrows", "note", 1)]


# --- damage -------------------------------------------------------------------------------------------------------


def test_times_that_cannot_be(rows, traces):
    trace = [
        op("good", 1, 2),
        op("negative", 5, -1),
        op("no time", None, 1),
        op("no duration", 1, None),
        op("text", "soon", 1),
        op("far", 1e16, 1),
        op("long", 1, 1e16),
        {key: value for key, value in op("missing", 1, 1).items() if key != "ts"},
        kernel(1, 5, -0.001),
    ]
    assert rows("select name from events", trace) == [("good",)]
    assert traces.ask(STATS) == [
        ("events_without_time", "dropped", 6),
        ("negative_durations", "dropped", 2),
    ]


def test_phases_and_categories_that_kineto_does_not_write(rows, traces):
    trace = [
        op("a", 0, 1),
        {"ph": "B", "name": "b", "ts": 1},
        {"ph": "E", "ts": 2},
        {},
        {"ph": "i", "name": "mark", "ts": 1},
        event("", "c", 3, 1),
    ]
    assert rows("select name, kind from events order by start", trace) == [("a", "op"), ("c", "other")]
    assert traces.ask(STATS) == [("unknown_categories", "note", 1), ("unknown_phases", "dropped", 3)]


def test_overlapping_device_events_are_noted_per_stream(rows):
    trace = [
        kernel(1, 0, 10),
        kernel(2, 5, 10),
        kernel(3, 15, 1),
        kernel(4, 0, 100, stream=8),
        launch(1, 0),
        launch(2, 0),
        launch(3, 0),
        launch(4, 0),
    ]
    assert rows(STATS, trace) == [("overlapping_events", "note", 1)]


def test_events_that_are_no_events_are_counted(rows, traces):
    trace = [op("a", 0, 1), {"ph": "X", "name": 5, "ts": 1, "dur": 1}, {"ph": "X", "args": [1]}, op("b", 2, 1)]
    assert rows("select name from events order by start", trace) == [("a",), ("b",)]
    assert traces.ask(STATS) == [("unreadable_events", "dropped", 2)]


@pytest.mark.parametrize("value", [None, "7", 1 << 70])
def test_an_argument_of_another_type_does_not_cost_the_kernel(rows, value):
    trace = [kernel(1, 0, 1) | {"args": {"device": 0, "stream": 7, "External id": value}}]
    assert rows("select kind, dur from events", trace) == [("kernel", 1_000)]


HUGE = (1 << 40) + 5


@pytest.mark.parametrize(
    "args",
    [
        {"device": HUGE},
        {"stream": HUGE},
        {"device": -HUGE},
        {"registers per thread": HUGE},
        {"shared memory": HUGE},
        {"grid": [HUGE, 1, 1]},
        METADATA | {"Group size": HUGE},
        METADATA | {"Collective name": "send", "Dst Rank": HUGE},
        METADATA | {"Process Group Ranks": f"[0, {HUGE}]"},
        METADATA | {"Seq": 1 << 62, "In msg nelems": 1 << 62},
    ],
)
def test_numbers_too_large_for_their_column_become_null_not_a_crash(rows, args):
    trace = [kernel(1, 0, 1, NCCL, **args), op("a", 0, 1)]
    assert rows("select count(*) from events", trace) == [(2,)]


def test_numbers_too_large_for_their_column_do_not_wrap_around(rows):
    trace = [op("a", 0, 1, **{"Fwd thread id": (1 << 32) + 5}), kernel(1, 5, 1, **{"registers per thread": 1 << 32})]
    assert rows("select forward_thread, registers from events order by start", trace) == [(None, None), (None, None)]


@pytest.mark.parametrize(
    "info", [{"world_size": HUGE}, {"rank": HUGE}, {"pg_config": [{"pg_name": "0", "ranks": [0, HUGE]}]}]
)
def test_numbers_that_no_job_has_refuse_the_trace(rows, info):
    with pytest.raises(BrokenSource, match="accepts jobs of up to 1,000,000 ranks"):
        rows("select world_size from ranks", [op("a", 0, 1)], distributedInfo={"rank": 0} | info)


@pytest.mark.parametrize(
    "field", ["name", "Input Dims", "Input type", "Concrete Inputs", "Call stack", "grid", "other"]
)
def test_text_that_is_not_utf8_does_not_cost_the_trace(rows, traces, field):
    broken = op("mark", 1, 1, **{field: ["mark"]}) if field != "name" else op("mark", 1, 1)
    text = json.dumps([op("a", 0, 1), broken, op("c", 2, 1)])
    path = traces.write("rank0.json", text)
    path.write_bytes(path.read_bytes().replace(b"mark", b"m\xffrk"))
    ingest([path], traces.run, workers=1)
    assert [name for (name,) in traces.ask("select name from events order by start")] in (
        ["a", "m\ufffdrk", "c"], ["a", "mark", "c"],
    )  # fmt: skip


def test_a_lone_surrogate_does_not_cost_the_trace(rows):
    text = json.dumps([op("a", 0, 1), op("mark", 1, 1), op("c", 2, 1)]).replace("mark", "\\ud800")
    assert [name for (name,) in rows("select name from events order by start", text)][::2] in (["a", "c"], ["a"])
    assert rows("select count(*) from events where name in ('a', 'c')", text) == [(2,)]


def test_names_with_everything_in_them(rows):
    names = ["}, {", '"', "\\", "a\0b", "名", "🦀", "x" * 5_000, "'; drop", "\n", " "]
    trace = [op(name, ts, 1) for ts, name in enumerate(names)]
    assert [name for (name,) in rows("select name from events order by start", trace)] == names


def test_an_empty_name_is_null(rows):
    assert rows("select name from events", [op("", 0, 1)]) == [(None,)]


def test_a_trace_without_events_is_a_rank_all_the_same(rows, traces):
    assert rows("select rank, events from ranks", []) == [(0, 0)]
    assert traces.ask("select count(*) from events") == [(0,)]


def random_trace(seed):
    dice = random.Random(seed)
    trace = [step(i, 100 * i, 90) for i in range(4)]
    for i in range(60):
        ts = dice.randint(0, 400)
        trace.append(op(f"op{i % 7}", ts, dice.randint(0, 9), dice.randint(1, 3), **{"Input Dims": [[i % 5]]}))
        trace.append(launch(i, ts, 1, dice.randint(1, 3)))
        trace.append(kernel(dice.randint(0, 70), ts + 20, 3, dice.choice(["gemm", NCCL]), stream=dice.randint(7, 9)))
        trace.append({"ph": "i", "name": "[memory]", "pid": HOST, "tid": 1, "ts": ts, "args": {"Bytes": i}})
        trace.append(call(ts, 2, dice.randint(1, 3), **METADATA))
    dice.shuffle(trace)
    return trace


@pytest.mark.parametrize(("block", "piece"), [(700, 200_000), (4 << 20, 7), (700, 7)])
def test_blocks_and_pieces_make_no_difference(traces, monkeypatch, block, piece):
    """The same rows whether a trace fits one block and one piece, or is cut into many."""
    path = traces.write("rank0.json", random_trace(1))
    ingest([path], traces.run, workers=1)
    whole = traces.tables("event")
    traces.run = traces.run.with_name("other")
    monkeypatch.setattr(byte_stream.ByteStream.__init__, "__defaults__", (None, block))
    monkeypatch.setattr(columns, "PIECE_ROWS", piece)
    ingest([path], traces.run, workers=1)
    cut = traces.tables("event")
    whole["stats"], cut["stats"] = (
        [row for row in found["stats"] if "overlapping_events" not in row] for found in (whole, cut)
    )  # counted piece by piece: with rows in no order of time, too few
    for name, rows_of_table in whole.items():
        if name != "lanes":
            assert len(cut[name]) == len(rows_of_table), name
    query = """select e.kind, e.name, start, dur, correlation, external_id, step, annotation, shapes,
        process, thread, device, stream
        from events e join lanes using (rank, lane)"""
    small = sorted(traces.ask(query), key=str)
    traces.run = traces.run.with_name("run")
    assert small == sorted(traces.ask(query), key=str)
    assert cut["stats"] == whole["stats"]


@pytest.mark.parametrize("value", [1.5, "7", "x", True, None, 1 << 70, -(1 << 63), 2.0, float("inf"), [1], "-3", "1.5"])
def test_whole_numbers_do_not_depend_on_their_neighbours(value):
    alone = whole_numbers([value]).tolist()
    assert alone == whole_numbers([value, None]).tolist()[:1]
    assert alone == whole_numbers([value, 1.0]).tolist()[:1]
    assert alone == whole_numbers([value, value]).tolist()[:1]


def test_events_far_from_the_recording_are_noted(rows, traces):
    """A kernel at time 0 is a known fault of profilers; it must not pass unseen, for it stretches the window."""
    span = {
        "ph": "X",
        "cat": "Trace",
        "name": "PyTorch Profiler (0)",
        "pid": "Spans",
        "tid": "x",
        "ts": 5e9,
        "dur": 1e6,
    }
    trace = [span, op("a", 5e9, 1), kernel(1, 4_999_999_000, 1), kernel(2, 0, 1)]
    assert rows("select count(*) from events", trace) == [(4,)]
    assert traces.ask("select effect, count from stats where what = 'events_out_of_window'") == [("note", 1)]


def test_a_lane_that_cannot_be_a_key(rows):
    trace = [op("a", 0, 1, tid=1), op("b", 1, 1) | {"tid": [3]}, op("c", 2, 1) | {"tid": {"x": 1}}]
    assert rows("select count(*), count(distinct lane) from events", trace) == [(3, 3)]


def test_a_call_without_metadata_still_shows_the_size(rows):
    bare = call(0, 10, **{"Input Dims": [[512, 2], [], []], "Input type": ["float", "Scalar", ""]})
    trace = [bare, launch(1, 3), kernel(1, 50, 4, NCCL)]
    assert rows("select op, bytes_in, dtype, group_id, metadata from collectives", trace) == [
        ("all_reduce", 4096, "float", None, "name")
    ]


def test_custom_collectives_have_the_op_of_their_name(rows):
    trace = [kernel(1, 5, 1, "void multimem_all_reduce_kernel<c10::BFloat16, 16>(...)")]
    assert rows("select op, metadata from collectives", trace) == [("all_reduce", "name")]


def test_texts_beyond_the_cap_are_counted_by_kind(rows, traces, monkeypatch):
    monkeypatch.setattr("lostflops.ingest.common.vocabulary.MOST_DETAILS", 2)
    trace = [op(f"op {i}", i, 1, **{"Input Dims": [[i]]}) for i in range(5)]
    trace += [kernel(i, 20 + i, 1, grid=[i + 1, 1, 1]) for i in range(5)]
    rows("select 1", trace)
    dropped = dict(traces.ask("select what, count from stats where effect = 'dropped'"))
    assert dropped == {"shapes_dropped": 3, "grids_dropped": 3}


def test_arrows_without_a_beginning(rows):
    arrow = {"cat": "fwdbwd", "name": "fwdbwd", "pid": HOST, "tid": 1, "ts": 5}
    trace = [op("a", 0, 1), arrow | {"ph": "s", "id": "none"}, arrow | {"ph": "f", "id": 7}]
    assert rows("select count(*) from links", trace) == [(0,)]


def test_annotations_that_take_no_time(rows):
    trace = [note("instant", 5, 0), op("a", 5, 1)]
    assert rows("select name, annotation from events where kind = 'op'", trace) == [("a", None)]

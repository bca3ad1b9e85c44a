"""One tiny trace per line and per rule of the ledger, in microseconds: events as (start, stop), then the lines."""

import json
from collections import Counter

import pytest

from lostflops.account.ledger.accounts import account
from lostflops.account.ledger.host_traits import Trait, traits
from lostflops.account.ledger.record import records
from lostflops.account.ledger.windows import WindowKind, choose, window
from lostflops.ingest import ingest
from lostflops.store.run import Run

MAIN, AUTOGRAD, OTHER = 1, 2, 3
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
DATA = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
DTOH_PAGEABLE, DTOH_PINNED = "Memcpy DtoH (Device -> Pageable)", "Memcpy DtoH (Device -> Pinned)"
HTOD_PAGEABLE, HTOD_PINNED = "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"


def event(cat, name, start, stop, pid=100, tid=MAIN, **args):  # noqa: PLR0917 - as a trace writes them
    times = {"ts": start, "dur": round(stop - start, 3)}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args}


def op(name, start, stop, tid=MAIN):
    return event("cpu_op", name, start, stop, tid=tid)


def note(name, start, stop, tid=MAIN):
    return event("user_annotation", name, start, stop, tid=tid)


def step(number, start, stop):
    return note(f"ProfilerStep#{number}", start, stop)


def call(name, start, stop, correlation=900, tid=MAIN, cat="cuda_runtime"):  # noqa: PLR0917
    return event(cat, name, start, stop, tid=tid, correlation=correlation)


def launch(correlation, start, stop, tid=MAIN):
    return call("cudaLaunchKernel", start, stop, correlation, tid)


def kernel(correlation, start, stop, name="gemm", stream=7):
    args = {"device": 0, "stream": stream, "correlation": correlation}
    return event("kernel", name, start, stop, 0, stream, **args)


def copy(correlation, start, stop, name=HTOD_PINNED, stream=7):
    return kernel(correlation, start, stop, name, stream) | {"cat": "gpu_memcpy"}


def gloo(start, stop, tid=OTHER):
    return op("gloo:all_reduce", start, stop, tid)


FIRST = [op("aten::mm", 0, 4), launch(1, 1, 2), kernel(1, 5, 10)]
"""A kernel on [5, 10), 4 us after its launch: unless another is quicker, that is the smallest latency."""


@pytest.fixture
def ledger(tmp_path):
    """The ledger of each trace, or of one, over the whole trace unless steps are asked for."""

    def ask(*traces, kind=WindowKind.TRACE, only=()):
        paths = [tmp_path / f"rank{rank}.json" for rank in range(len(traces))]
        for path, trace in zip(paths, traces, strict=True):
            path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": trace}))
        ingest(paths, tmp_path / "run", workers=1, replace=True)
        with Run.open(tmp_path / "run") as run:
            assert kind is WindowKind.TRACE or choose(run, run.ranks) is WindowKind.STEPS
            found = [account(record, window(record, kind, only)) for record in records(run, run.ranks)]
        return found if len(found) > 1 else found[0]

    return ask


def us(lines):
    assert all(ns % 1000 == 0 for ns in lines.values())
    return {name: ns // 1000 for name, ns in lines.items() if ns}


@pytest.fixture
def lines(ledger):
    def ask(*traces):
        found = ledger(*traces)
        return [us(each.lines) for each in found] if len(traces) > 1 else us(found.lines)

    return ask


@pytest.fixture
def steps(ledger):
    """Start, stop and lines of each step, and what the window notes."""

    def ask(trace, only=()):
        made = ledger(trace, kind=WindowKind.STEPS, only=only)
        edges = zip(made.window.start.tolist(), made.window.stop.tolist(), strict=True)
        found = zip(made.window.number, edges, made.steps, strict=True)
        return {n: (a // 1000, b // 1000, us(own)) for n, (a, b), own in found}, " ".join(made.window.notes)

    return ask


# --- busy -----------------------------------------------------------------------------------------------------------


def test_communication_under_compute(ledger):
    found = ledger([*FIRST, kernel(2, 7, 18, NCCL, stream=8), kernel(3, 16, 20)])
    assert us(found.lines) == {"compute": 9, "comm.transfer": 6}
    assert (found.overlap.compute, found.overlap.comm, found.overlap.hidden) == (9_000, 11_000, 5_000)


def test_copy_under_compute_and_communication(ledger):
    found = ledger([*FIRST, copy(2, 8, 14), kernel(3, 13, 16, NCCL, stream=8), copy(4, 15, 20, DTOH_PINNED, stream=9)])
    assert us(found.lines) == {"compute": 5, "comm.transfer": 3, "copy": 7}
    assert us(found.parts["copy"]) == {"HtoD": 3, "DtoH": 4}


def test_of_several_kernels_at_once_the_class_named_first(ledger):
    found = ledger([*FIRST, kernel(2, 8, 20, "softmax_warp_forward"), kernel(3, 15, 18, "flash_fwd_kernel", stream=8)])
    assert us(found.parts["compute"]) == {"matmul": 5, "normalisation": 7, "attention": 3}


# --- idle: what the launching thread did up to the launch -----------------------------------------------------------


def test_data(lines):
    trace = [*FIRST, note(DATA, 8, 30), op("aten::mm", 32, 40), launch(2, 34, 35), kernel(2, 38, 50)]
    assert lines(trace) == {"compute": 17, "idle.data": 20, "idle.python": 2, "idle.host": 6}


def test_data_comes_before_all_else_that_the_thread_does(lines):
    trace = [*FIRST, call("cudaStreamSynchronize", 6, 11), note(DATA, 12, 30), op("aten::stack", 13, 20)]
    trace += [call("cudaHostAlloc", 14, 18), launch(2, 34, 35), kernel(2, 38, 50)]
    assert lines(trace) == {"compute": 17, "idle.sync": 6, "idle.data": 18, "idle.host": 4}


def test_a_loader_that_runs_ahead_on_another_thread_keeps_nobody_waiting(lines):
    """The training thread counts, and the launching one."""
    rest = [op("aten::mm", 12, 40), launch(2, 34, 35), kernel(2, 38, 50), step(1, 0, 60)]
    backward = [op("MmBackward0", 12, 40, AUTOGRAD), launch(2, 34, 35, AUTOGRAD), *rest[2:]]
    loader = {tid: note(DATA, 8, 30, tid) for tid in (MAIN, AUTOGRAD)}
    assert lines(
        [*FIRST, *rest, loader[AUTOGRAD]], [*FIRST, *backward, loader[MAIN]], [*FIRST, *backward, loader[AUTOGRAD]]
    ) == [
        {"compute": 17, "idle.python": 2, "idle.host": 26},
        {"compute": 17, "idle.data": 20, "idle.host": 8},
        {"compute": 17, "idle.data": 20, "idle.host": 8},
    ]


def test_sync(ledger):
    """From the start of the gap to the first launch after the call returned, though the thread ran ops by then."""
    trace = [*FIRST, op("aten::item", 4, 14), call("cudaStreamSynchronize", 6, 12), op("aten::add", 15, 30)]
    found = ledger([*trace, launch(2, 20, 22), kernel(2, 26, 30)])
    assert us(found.lines) == {"compute": 9, "idle.sync": 10, "idle.host": 4, "idle.dependency": 2}
    assert us(found.parts["idle.sync"]) == {"aten::item (cudaStreamSynchronize)": 10}


def test_sync_ends_with_the_first_launch_whatever_it_launches(lines):
    trace = [*FIRST, call("cudaDeviceSynchronize", 6, 12), launch(3, 16, 17), kernel(3, 40, 44, stream=8)]
    trace += [op("aten::add", 18, 30), launch(2, 20, 22), kernel(2, 26, 40)]
    assert lines(trace) == {"compute": 23, "idle.sync": 6, "idle.host": 7, "idle.python": 1, "idle.dependency": 2}


def test_a_call_that_blocks_on_an_idle_device_has_not_emptied_it(lines):
    """One that begins as the gap does is taken to have been before it."""
    rest = [launch(2, 20, 22), kernel(2, 24, 30)]
    assert lines(*([*FIRST, call("cudaStreamSynchronize", start, 15), *rest] for start in (11, 10))) == [
        {"compute": 11, "idle.host": 8, "idle.python": 6},
        {"compute": 11, "idle.sync": 10, "idle.host": 4},
    ]


def test_a_launch_as_soon_as_the_blocking_call_returns_refills(lines):
    trace = [*FIRST, call("cudaStreamSynchronize", 6, 12), launch(3, 12, 13), kernel(3, 40, 41, stream=8)]
    trace += [launch(2, 20, 22), kernel(2, 24, 40)]
    assert lines(trace) == {"compute": 22, "idle.sync": 2, "idle.host": 5, "idle.python": 7}


def test_a_launch_between_the_sync_and_the_gap_has_refilled_the_queue(lines):
    trace = [*FIRST, call("cudaStreamSynchronize", 3, 6), launch(3, 7, 8), kernel(3, 11, 12)]
    trace += [launch(2, 20, 22), kernel(2, 24, 30)]
    assert lines(trace) == {"compute": 12, "idle.dependency": 1, "idle.python": 8, "idle.host": 4}


def test_sync_by_a_copy_through_pageable_memory(ledger):
    """It was queued early in its call, which then waits for it."""
    trace = [*FIRST, op("aten::to", 4, 16), call("cudaMemcpyAsync", 6, 14, 2), copy(2, 11, 13, DTOH_PAGEABLE)]
    found = ledger([*trace, launch(3, 24, 26), kernel(3, 30, 40)])
    assert us(found.lines) == {"compute": 15, "copy": 2, "idle.host": 4, "idle.sync": 11, "idle.dependency": 3}
    assert us(found.parts["idle.sync"]) == {"aten::to (cudaMemcpyAsync)": 11}


def test_other_asynchronous_copies_do_not_block(lines):
    """Through pinned memory, or with a call that had returned when the copy ended."""
    rest = [op("aten::add", 16, 30), launch(3, 24, 26), kernel(3, 30, 40)]
    copies = (DTOH_PINNED, 14), (HTOD_PINNED, 14), (HTOD_PAGEABLE, 12)
    assert lines(
        *([*FIRST, call("cudaMemcpyAsync", 6, returned, 2), copy(2, 11, 13, name), *rest] for name, returned in copies)
    ) == [
        {"compute": 15, "copy": 2, "idle.host": 13, "idle.python": 2, "idle.dependency": 3},
        {"compute": 15, "copy": 2, "idle.host": 14, "idle.python": 2, "idle.dependency": 2},
        {"compute": 15, "copy": 2, "idle.host": 13, "idle.python": 3, "idle.dependency": 2},
    ]


def test_a_call_that_had_returned_before_the_gap_waited_for_another_stream(lines):
    """By more than the 100 us that clocks may differ."""
    rest = [op("aten::add", 412, 430), launch(2, 420, 421), kernel(2, 424, 430)]
    trace = [op("aten::mm", 0, 4), launch(1, 1, 2), kernel(1, 5, 410)]
    assert lines(*([*trace, call("cudaStreamSynchronize", 6, stop), *rest] for stop in (310, 309))) == [
        {"compute": 411, "idle.sync": 10, "idle.host": 4},
        {"compute": 411, "idle.python": 2, "idle.host": 12},
    ]


def test_only_the_launching_and_the_training_thread_block(lines):
    rest = [op("aten::add", 12, 30), launch(2, 20, 21), kernel(2, 24, 30)]
    waits = {tid: call("cudaStreamSynchronize", 6, 11, tid=tid) for tid in (MAIN, AUTOGRAD)}
    backward = [op("MmBackward0", 12, 30, AUTOGRAD), launch(2, 20, 21, AUTOGRAD), kernel(2, 24, 30), step(1, 0, 40)]
    assert lines([*FIRST, waits[MAIN], *rest], [*FIRST, waits[AUTOGRAD], *rest], [*FIRST, waits[MAIN], *backward]) == [
        {"compute": 11, "idle.sync": 10, "idle.host": 4},
        {"compute": 11, "idle.python": 2, "idle.host": 12},
        {"compute": 11, "idle.sync": 10, "idle.host": 4},
    ]


def test_of_two_calls_that_blocked_the_one_that_still_blocks_is_named(ledger):
    trace = [*FIRST, step(1, 0, 60), call("cudaDeviceSynchronize", 3, 20), op("MmBackward0", 4, 30, AUTOGRAD)]
    trace += [call("cudaEventSynchronize", 5, 6, tid=AUTOGRAD), launch(2, 7, 8, AUTOGRAD), kernel(2, 11, 12)]
    found = ledger([*trace, launch(3, 24, 25, AUTOGRAD), kernel(3, 28, 30)])
    assert us(found.lines) == {"compute": 8, "idle.dependency": 1, "idle.sync": 12, "idle.host": 4}
    assert us(found.parts["idle.sync"]) == {"aten::mm (cudaDeviceSynchronize)": 12}


def test_alloc(ledger):
    trace = [*FIRST, op("aten::empty", 11, 25), call("cudaMalloc", 12, 22), launch(2, 23, 24), kernel(2, 27, 30)]
    found = ledger(trace)
    assert us(found.lines) == {"compute": 8, "idle.python": 1, "idle.host": 6, "idle.alloc": 10}
    assert us(found.parts["idle.alloc"]) == {"cudaMalloc": 10}


def test_an_allocation_is_that_of_the_launching_thread(ledger):
    """Two threads allocate all the time; the first gap is ended by one of them, the second by the other."""
    trace = [*FIRST, call("cudaHostAlloc", 11, 24, tid=AUTOGRAD), call("cudaMalloc", 12, 22), launch(2, 26, 27)]
    trace += [kernel(2, 30, 32), call("cudaHostAlloc", 33, 39, tid=AUTOGRAD), call("cudaMalloc", 33, 40)]
    found = ledger([*trace, launch(3, 46, 47, AUTOGRAD), kernel(3, 50, 51)])
    assert us(found.parts["idle.alloc"]) == {"cudaMalloc": 10, "cudaHostAlloc": 6}


def test_compile(lines):
    trace = [*FIRST, note("_compile.compile_inner (dynamo_timed)", 12, 40), op("aten::mm", 15, 20)]
    trace += [call("cudaMalloc", 16, 19), launch(2, 44, 45), kernel(2, 48, 50)]
    assert lines(trace) == {"compute": 7, "idle.alloc": 3, "idle.compile": 25, "idle.python": 6, "idle.host": 4}


def test_host_is_split_into_dispatch_and_calls(ledger):
    """[12, 15) dispatch, [15, 17) a call, [17, 20) dispatch, [20, 24) the launch and its latency."""
    trace = [*FIRST, op("aten::mm", 12, 24), call("cudaEventRecord", 15, 17), launch(2, 20, 21), kernel(2, 24, 30)]
    found = ledger(trace)
    assert us(found.lines) == {"compute": 11, "idle.python": 2, "idle.host": 12}
    assert us(found.parts["idle.host"]) == {"op dispatch": 6, "launch API": 6}


def test_python_is_named_by_the_annotation_that_it_ran_in(ledger):
    trace = [*FIRST, note("epoch", 8, 60), note("write checkpoint", 9, 40), launch(2, 31, 32), kernel(2, 35, 36)]
    found = ledger([*trace, launch(3, 50, 51), kernel(3, 54, 55), launch(4, 70, 71), kernel(4, 74, 75)])
    assert us(found.lines) == {"compute": 8, "idle.python": 50, "idle.host": 12}
    assert us(found.parts["idle.python"]) == {"write checkpoint": 25, "epoch": 15, "no annotation": 10}


def test_a_thread_without_any_op_cannot_be_told_from_python(lines):
    trace = [*FIRST, call("cudaEventQuery", 12, 14, tid=OTHER), launch(2, 20, 21, OTHER), kernel(2, 24, 30)]
    assert lines(trace, [*trace, op("aten::mm", 50, 51, OTHER)]) == [
        {"compute": 11, "idle.host": 6, "unexplained": 8},
        {"compute": 11, "idle.host": 6, "idle.python": 8},
    ]


def test_a_thread_with_an_op_that_took_no_time_is_not_one_without_ops(lines):
    trace = [*FIRST, op("aten::view", 12, 12, OTHER), launch(2, 20, 21, OTHER), kernel(2, 24, 30)]
    assert lines(trace) == {"compute": 11, "idle.host": 4, "idle.python": 10}


def test_two_launching_threads(lines):
    """Each gap is told by the thread that ended it, whatever the other did."""
    trace = [*FIRST, op("aten::mm", 12, 19), op("MmBackward0", 13, 18, AUTOGRAD), launch(2, 14, 15, AUTOGRAD)]
    trace += [kernel(2, 18, 20), op("AddBackward0", 26, 40, AUTOGRAD), launch(3, 30, 31), kernel(3, 34, 36)]
    assert lines(trace) == {"compute": 9, "idle.python": 3 + 10, "idle.host": 1 + 4 + 4}


# --- idle: from the launch on ---------------------------------------------------------------------------------------


def test_dependency(lines):
    """Launched before the gap, it waited for another stream, whatever the host did meanwhile."""
    trace = [*FIRST, launch(2, 6, 7), note(DATA, 8, 28), op("aten::mm", 30, 36), kernel(2, 40, 45, stream=8)]
    assert lines(trace) == {"compute": 10, "idle.dependency": 30}


def test_a_launch_at_the_start_of_the_gap_is_not_before_it(lines):
    traces = [[*FIRST, launch(2, start, 10), kernel(2, 20, 25)] for start in (10, 9.999)]
    assert lines(*traces) == [
        {"compute": 10, "idle.host": 4, "idle.dependency": 6},
        {"compute": 10, "idle.dependency": 10},
    ]


def test_a_launching_call_that_still_runs_has_not_queued_its_work(lines):
    """It loads a module for hundreds of microseconds: from before the gap, from inside it, to beyond its end."""
    calls = launch(2, 8, 305), launch(2, 15, 305), launch(2, 15, 400)
    assert lines(*([*FIRST, loading, kernel(2, 308, 310)] for loading in calls)) == [
        {"compute": 7, "idle.host": 295, "idle.dependency": 3},
        {"compute": 7, "idle.python": 5, "idle.host": 290, "idle.dependency": 3},
        {"compute": 7, "idle.python": 5, "idle.host": 293},
    ]


def test_latency_is_the_smallest_of_the_rank(lines):
    trace = [*FIRST, launch(2, 10, 11), kernel(2, 20, 21)]
    quicker = [launch(3, 20, 21), kernel(3, 21, 22)]
    assert lines(trace, trace + quicker) == [
        {"compute": 6, "idle.host": 4, "idle.dependency": 6},
        {"compute": 7, "idle.host": 1, "idle.dependency": 9},
    ]


def test_a_graph_is_one_launch(lines):
    """Of the gaps between its kernels the host knows nothing: they wait for each other."""
    trace = [*FIRST, op("aten::mm", 12, 22), call("cudaGraphLaunch", 14, 16, 2)]
    trace += [kernel(2, 20, 22), kernel(2, 25, 26), kernel(2, 24, 25, stream=8), kernel(2, 29, 30)]
    assert lines(trace) == {"compute": 10, "idle.python": 2, "idle.host": 6, "idle.dependency": 2 + 2 + 3}


def test_the_driver_below_the_runtime_has_the_same_correlation(lines):
    """The earliest call is the launch; of two that begin at once the one that lasts longer."""
    drivers = [call("cuLaunchKernel", start, 18, 2, cat="cuda_driver") for start in (15, 13)]
    assert lines(*([*FIRST, driver, launch(2, 13, 30), kernel(2, 32, 33)] for driver in drivers)) == [
        {"compute": 6, "idle.python": 3, "idle.host": 17, "idle.dependency": 2}
    ] * len(drivers)


def test_several_that_start_at_once_are_told_by_the_first_launched(lines):
    trace = [*FIRST, launch(2, 16, 17), launch(3, 12, 13), kernel(2, 20, 25), kernel(3, 20, 22, stream=8)]
    trace += [kernel(4, 20, 21, stream=9)]
    assert lines(trace) == {"compute": 10, "idle.python": 2, "idle.host": 4, "idle.dependency": 4}


def test_an_event_that_takes_no_time_cuts_a_gap(lines):
    trace = [*FIRST, launch(2, 8, 9), copy(2, 16, 16), op("aten::mm", 18, 26), launch(3, 20, 21), kernel(3, 24, 30)]
    assert lines(trace, [e for e in trace if e["dur"]]) == [
        {"compute": 11, "idle.dependency": 6, "idle.python": 2, "idle.host": 6},
        {"compute": 11, "idle.python": 8, "idle.host": 6},
    ]


def test_clocks_that_differ(lines):
    """A kernel that seems to start before its launch was launched when it started; there is no latency then."""
    trace = [*FIRST, op("aten::mm", 14, 30), launch(2, 22, 23), kernel(2, 20, 25), launch(3, 26, 27), kernel(3, 28, 30)]
    assert lines(trace) == {"compute": 12, "idle.python": 4, "idle.host": 6 + 2, "idle.dependency": 1}


# --- idle: what the recording lacks ---------------------------------------------------------------------------------


def test_a_kernel_without_launch(lines):
    assert lines([*FIRST, kernel(2, 20, 30)]) == {"compute": 15, "unexplained": 10}


def test_a_stream_runs_in_order(lines):
    """What comes later on the stream was launched before the gap began: so was the kernel whose launch is not known."""
    trace, others = [*FIRST, kernel(2, 20, 30)], (kernel(3, 40, 45), kernel(3, 40, 45, stream=8), kernel(3, 12, 13))
    assert lines(*([*trace, launch(3, 8, 9), other] for other in others)) == [
        {"compute": 20, "idle.dependency": 20},
        {"compute": 20, "unexplained": 10, "idle.dependency": 10},
        {"compute": 16, "idle.dependency": 2, "unexplained": 7},
    ]


def test_a_later_launch_tells_nothing_of_an_earlier_one(lines):
    """A launch at the start of the gap or in it came too late to tell that the kernel before it was queued."""
    trace = [*FIRST, kernel(2, 20, 30), launch(3, 10, 11), kernel(3, 30, 45)]
    assert lines(trace) == {"compute": 30, "unexplained": 10}


def test_of_several_without_launch_any_may_tell_that_it_was_queued(lines):
    trace = [*FIRST, launch(3, 6, 7), kernel(3, 30, 35), kernel(8, 20, 30, stream=8), kernel(9, 20, 30)]
    assert lines(trace, [*trace[:-2], trace[-1], trace[-2]]) == [{"compute": 20, "idle.dependency": 10}] * 2


def test_before_the_first_record_of_the_host(lines):
    trace = [kernel(9, 0, 10), op("aten::mm", 25, 36), launch(2, 30, 31), kernel(2, 32, 40)]
    assert lines(trace) == {"compute": 18, "unexplained": 15, "idle.host": 7}


# --- CPU ranks ------------------------------------------------------------------------------------------------------


def test_gloo_hidden_and_exposed(ledger):
    found = ledger([op("aten::mm", 0, 20), gloo(10, 35), op("aten::add", 30, 40), gloo(32, 38, AUTOGRAD)])
    assert us(found.lines) == {"compute": 30, "comm.transfer": 10}
    assert (found.overlap.comm, found.overlap.hidden, found.overlap.exposed) == (28_000, 18_000, 10_000)


def test_enqueueing_and_waiting_are_not_compute(lines):
    trace = [op("aten::mm", 0, 10), op("c10d::allreduce_", 10, 14), op("record_param_comms", 11, 13), gloo(13, 25)]
    trace += [op("_c10d_functional::wait_tensor", 16, 27), op("aten::add", 30, 40)]
    assert lines(trace) == {"compute": 20, "comm.transfer": 12, "idle.host": 5, "idle.python": 3}


def test_what_wraps_a_backward_node_is_not_compute(lines):
    trace = [op("autograd::engine::evaluate_function: MmBackward0", 0, 20), op("MmBackward0", 2, 18)]
    trace += [op("aten::mm", 5, 10), gloo(12, 15), op("torch::autograd::AccumulateGrad", 20, 24)]
    trace += [op("CompiledFunctionBackward", 24, 30)]
    assert lines(trace) == {"compute": 11, "comm.transfer": 3, "idle.host": 16}


def test_a_function_of_the_program_waits_while_communication_runs(lines):
    """Unless an op runs inside it."""
    trace = [op("SyncNorm", 0, 20), gloo(5, 10), op("aten::mm", 8, 12)]
    assert lines(trace) == {"compute": 17, "comm.transfer": 3}


@pytest.mark.parametrize("kind", [op, note])
def test_data_with_ops_inside(lines, kind):
    """Old traces record the loader and the optimizer as ops."""
    trace = [op("aten::mm", 0, 10), kind(DATA, 12, 30), op("aten::stack", 14, 20), gloo(25, 28)]
    trace += [kind("Optimizer.step#SGD.step", 30, 40), op("aten::add_", 32, 38), op("aten::mm", 40, 41)]
    around = "idle.host" if kind is op else "idle.python"
    assert lines(trace) == Counter({"compute": 17, "comm.transfer": 3, "idle.data": 15, "idle.python": 2}) + Counter(
        {around: 4}
    )


def test_compile_on_a_cpu_rank(lines):
    """The ops inside are traced, not run."""
    trace = [op("aten::mm", 0, 10), note("compile_fx (dynamo_timed)", 10, 30), op("aten::mm", 15, 18), gloo(28, 31)]
    trace += [op("aten::mm", 34, 40)]
    assert lines(trace) == {"compute": 16, "comm.transfer": 3, "idle.compile": 18, "idle.python": 3}


def test_the_training_thread_is_the_one_with_steps_else_with_most_ops(lines):
    trace = [op("aten::mm", 0, 10), op("aten::mm", 20, 30, OTHER), op("aten::mm", 40, 50, OTHER)]
    assert lines(trace, [*trace, step(1, 0, 60)]) == [{"compute": 20, "idle.python": 10}, {"compute": 10}]


# --- steps ----------------------------------------------------------------------------------------------------------


def test_a_step_begins_with_the_first_event_launched_in_it(steps):
    trace = [step(1, 0, 20), step(2, 20, 40), op("aten::mm", 1, 6), op("aten::mm", 21, 26), kernel(9, 2, 4)]
    trace += [launch(1, 2, 3), kernel(1, 6, 30), launch(2, 22, 23), kernel(2, 32, 38), launch(3, 24, 25)]
    found, notes = steps([*trace, kernel(3, 40, 50), launch(4, 60, 61), kernel(4, 64, 70)])
    assert found == {
        1: (6, 32, {"compute": 24, "idle.dependency": 2}),
        2: (32, 50, {"compute": 16, "idle.dependency": 2}),
    }
    assert notes == ""


def test_steps_that_overlap_on_streams(steps):
    """A copy launched ahead in step 2 starts before step 1 does: step 2 has its turn only after step 1."""
    trace = [step(1, 0, 10), step(2, 10, 20), step(3, 20, 30), op("aten::mm", 0, 1), launch(1, 2, 3), kernel(1, 15, 40)]
    trace += [launch(2, 11, 12), copy(2, 13, 14, stream=8), launch(3, 21, 22), kernel(3, 30, 35, stream=8)]
    found, _ = steps(trace)
    assert found == {1: (15, 15, {}), 2: (15, 30, {"compute": 15}), 3: (30, 35, {"compute": 5})}


def test_the_last_step_ends_with_its_own_last_event(steps):
    trace = [step(1, 0, 10), step(2, 10, 20), op("aten::mm", 0, 1), launch(1, 2, 3), kernel(1, 5, 50)]
    found, _ = steps([*trace, launch(2, 11, 12), kernel(2, 15, 30, stream=8), kernel(8, 60, 70)])
    assert found == {1: (5, 15, {"compute": 10}), 2: (15, 30, {"compute": 15})}


def test_an_empty_step_has_no_time_of_its_own(steps):
    trace = [step(1, 0, 10), step(2, 10, 20), step(3, 20, 30), op("aten::mm", 0, 1), launch(1, 2, 3), kernel(1, 5, 8)]
    found, notes = steps(trace)
    assert found == {1: (5, 8, {"compute": 3})}
    assert "nothing was launched in step" in notes
    assert "2, 3" in notes
    found, notes = steps([*trace, launch(3, 22, 23), kernel(3, 26, 30)])
    assert found == {
        1: (5, 26, {"compute": 3, "idle.python": 14, "idle.host": 3, "idle.dependency": 1}),
        3: (26, 30, {"compute": 4}),
    }
    assert "nothing was launched in step 2" in notes
    assert "3" not in notes


def test_steps_that_were_not_recorded(steps):
    """Between steps 2 and 5 nothing is accounted for."""
    trace = [step(1, 0, 10), step(2, 10, 20), step(5, 20, 30), op("aten::mm", 0, 1), launch(1, 2, 3), kernel(1, 5, 8)]
    found, _ = steps([*trace, launch(2, 12, 13), kernel(2, 15, 18), launch(5, 22, 23), kernel(5, 25, 28)])
    assert found == {
        1: (5, 15, {"compute": 3, "idle.python": 4, "idle.host": 3}),
        2: (15, 18, {"compute": 3}),
        5: (25, 28, {"compute": 3}),
    }


def test_without_launches_steps_have_the_edges_of_the_host(steps):
    trace = [step(1, 0, 10), step(2, 12, 20), step(4, 30, 40), op("aten::mm", 0, 1), kernel(8, 5, 8), kernel(9, 14, 35)]
    found, notes = steps(trace)
    assert found == {
        1: (0, 12, {"unexplained": 9, "compute": 3}),
        2: (12, 20, {"unexplained": 2, "compute": 6}),
        4: (30, 40, {"compute": 5, "unexplained": 5}),
    }
    assert "step boundaries are those of the host" in notes


def test_steps_of_a_cpu_rank(steps):
    trace = [step(1, 0, 10), op("aten::mm", 1, 9), step(2, 12, 20), op("aten::mm", 13, 18), gloo(9, 13)]
    found, notes = steps(trace)
    assert found == {
        1: (0, 12, {"compute": 8, "comm.transfer": 3, "idle.python": 1}),
        2: (12, 20, {"compute": 5, "comm.transfer": 1, "idle.python": 2}),
    }
    assert notes == ""


def test_one_step_alone(steps):
    trace = [step(1, 0, 10), step(2, 10, 20), op("aten::mm", 0, 1), launch(1, 2, 3), kernel(1, 5, 8)]
    trace += [launch(2, 12, 13), kernel(2, 15, 18)]
    assert steps(trace, [1])[0] == {1: (5, 15, {"compute": 3, "idle.python": 4, "idle.host": 3})}
    assert steps(trace, [2])[0] == {2: (15, 18, {"compute": 3})}


def test_a_step_alone_is_the_same_as_among_others(steps):
    trace = [step(1, 0, 10), step(2, 10, 30), op("aten::mm", 2, 4), call("cudaStreamSynchronize", 5, 8)]
    trace += [launch(1, 30, 31), kernel(1, 34, 40)]
    assert steps(trace, [2])[0][2] == steps(trace)[0][2]


# --- phases ---------------------------------------------------------------------------------------------------------


def test_phases(ledger):
    """A gap has the phase of the kernel that ends it; waiting for a batch is data."""
    trace = [*FIRST, op("MmBackward0", 12, 16, AUTOGRAD), launch(2, 13, 14, AUTOGRAD), kernel(2, 20, 24)]
    trace += [note("Optimizer.step#SGD.step", 25, 30), launch(3, 26, 27), kernel(3, 30, 33), note(DATA, 34, 44)]
    found = ledger([*trace, launch(4, 50, 51), kernel(4, 54, 56)])
    assert {phase: us(lines) for phase, lines in found.phases.items()} == {
        "forward": {"compute": 5},
        "backward": {"compute": 4, "idle.python": 2, "idle.host": 5, "idle.dependency": 3},
        "optimizer": {"compute": 3, "idle.python": 2, "idle.host": 4},
        "data": {"idle.data": 10},
        "other": {"compute": 2, "idle.python": 7, "idle.host": 4},
    }


# --- names ----------------------------------------------------------------------------------------------------------

BLOCKING = (
    *("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuCtxSynchronize"),
    *("cuStreamSynchronize", "cuEventSynchronize", "hipStreamSynchronize", "hipDeviceSynchronize"),
    *("hipEventSynchronize", "cudaMemcpy", "cudaMemcpy2D", "cudaMemcpyToSymbol", "hipMemcpy"),
    *("hipMemcpyWithStream", "hipMemcpyDtoH", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"),
)
ALLOCATING = (
    *("cudaMalloc", "cudaMallocAsync", "cudaMallocHost", "cudaMallocManaged", "cudaFree", "cudaFreeAsync"),
    *("cudaFreeHost", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister", "hipMalloc", "hipFree"),
    *("hipHostMalloc", "hipHostFree", "cuMemAlloc_v2", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease"),
    *("cuMemSetAccess", "cuMemAddressReserve", "cuMemAddressFree"),
)
NEITHER = (
    *("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "hipLaunchKernel"),
    *("cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemcpy2DAsync", "hipMemcpyAsync", "cudaMemcpyPeerAsync"),
    *("cuMemcpyDtoHAsync_v2", "cudaMemsetAsync", "cudaEventRecord", "cudaEventQuery", "cudaStreamWaitEvent"),
    *("cudaStreamIsCapturing", "cudaStreamGetCaptureInfo_v2", "cudaFuncGetAttributes"),
    *("cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cuMemGetInfo_v2"),
)


@pytest.mark.parametrize("name", BLOCKING)
def test_calls_that_block(name):
    assert traits("runtime", name) == Trait.RUNTIME | Trait.SYNC
    assert traits("op", name) & ~Trait.FUNCTION == Trait.OP


@pytest.mark.parametrize("name", ALLOCATING)
def test_calls_that_allocate_or_free(name):
    assert traits("runtime", name) == Trait.RUNTIME | Trait.ALLOC


@pytest.mark.parametrize("name", NEITHER)
def test_calls_that_do_neither(name):
    assert traits("runtime", name) == Trait.RUNTIME

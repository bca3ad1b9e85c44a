"""Communication by unit and layer: hand-made timelines with times computed by hand, and a walk over real traces."""

import gzip
import json
from collections import defaultdict
from pathlib import Path

import pytest

from lostflops.account.ledger.windows import WindowKind
from lostflops.api import TrainingRun
from lostflops.core.errors import UsageError
from lostflops.explain.analyze.layers import layers
from lostflops.explain.analyze.report import report
from lostflops.ingest import ingest
from lostflops.store.run import Run
from memory_run import MemoryRun

TRACES = Path(__file__).parents[4] / "shared" / "traces"
COMM = ("comm.transfer", "comm.wait", "comm.bubble")


class HandMade:
    """Rows of one rank: a host thread (lane 0), a compute stream (7) and a communication stream (8)."""

    def __init__(self):
        self.events, self.calls = [], []

    def host(self, kind, name, start, stop, **more):
        self._add(0, kind, name, start, stop, **more)

    def launch(self, at, kind, op, start, stop, *, module=None):
        """Launch a kernel at a time, or without a recorded launch if it is None."""
        number = len(self.events) + 1
        if at is not None:
            self.host("runtime", "cudaLaunchKernel", at, at + 1, correlation=number)
        lane, name = (8, f"ncclDevKernel_{op}") if kind == "comm" else (7, op)
        self._add(lane, kind, name, start, stop, correlation=number, module=module)
        if kind == "comm":
            call = {"rank": 0, "event": len(self.events) - 1, "op": op, "start": start, "stop": stop}
            self.calls.append(call)

    def _add(self, lane, kind, name, start, stop, *, correlation=None, module=None):
        self.events.append(
            {
                "rank": 0,
                "event": len(self.events),
                "lane": lane,
                "kind": kind,
                "name": name,
                "start": start,
                "dur": stop - start,
                "correlation": correlation,
                "module": module,
                "step": 1,
            }
        )

    def run(self):
        begun = [event["start"] for event in self.events if event["lane"] > 0]
        ended = [event["start"] + event["dur"] for event in self.events if event["lane"] > 0]
        step = {"rank": 0, "step": 1, "lane": 0, "start": 0, "stop": 1000}
        step |= {"device_start": min(begun), "device_stop": max(ended)}
        ranks = [{"rank": 0, "events": len(self.events)}]
        return MemoryRun(ranks=ranks, events=self.events, collectives=self.calls, steps=[step])


@pytest.fixture
def fsdp():
    """Forward: layers.0 computes at 150-250, layers.1 at 290-350. Backward: layers.1 at 350-450, then layers.0."""
    made = HandMade()
    made.host("annotation", "FSDP::pre_forward (layers.0)", 10, 20)
    made.host("annotation", "FSDP::all_gather (layers.0)", 11, 15)
    made.launch(12, "comm", "all_gather", 100, 150)
    made.launch(21, "kernel", "gemm", 150, 250)
    made.host("annotation", "FSDP::pre_forward (layers.1)", 30, 40)
    made.host("annotation", "FSDP::all_gather (layers.1)", 31, 35)
    made.launch(32, "comm", "all_gather", 150, 290)
    made.launch(41, "kernel", "gemm", 290, 350)
    made.host("op", "autograd::engine::evaluate_function: MmBackward0", 50, 100)
    made.host("annotation", "FSDP::pre_backward (layers.1)", 51, 59)
    made.host("annotation", "FSDP::backward_prefetch for layers.0", 54, 59)
    made.host("annotation", "FSDP::all_gather (layers.0) [pg=8]", 55, 58)
    made.launch(56, "comm", "all_gather", 350, 380)
    made.launch(60, "kernel", "gemm", 350, 450)
    made.host("annotation", "FSDP::post_backward_reduce (layers.1)", 65, 70)
    made.launch(66, "comm", "reduce_scatter", 450, 530)
    made.host("annotation", "FSDP::pre_backward (layers.0)", 72, 75)
    made.launch(80, "kernel", "gemm", 450, 500)
    made.host("annotation", "FSDP::post_backward_reduce (layers.0)", 85, 90)
    made.launch(86, "comm", "reduce_scatter", 530, 560)
    made.launch(None, "comm", "all_reduce", 600, 610)
    with made.run() as run:
        yield run


def rows_of(table, name):
    keys = ("transfer_ns", "compute_ns", "hidden_ns", "exposed_ns")
    return {(row[name], row["pass"], row["op"]): tuple(row[key] for key in keys) for row in table}


def test_units_by_hand(fsdp):
    found = layers(fsdp).to_json()
    assert rows_of(found["units"], "unit") == {
        ("layers.0", "forward", "all_gather"): (50, 0, 0, 50),
        ("layers.1", "forward", "all_gather"): (140, 100, 100, 40),
        ("layers.0", "backward", "all_gather"): (30, 100, 30, 0),
        ("layers.1", "backward", "reduce_scatter"): (80, 50, 50, 30),
        ("layers.0", "backward", "reduce_scatter"): (30, 0, 0, 30),
    }
    assert {(row["unit"], row["pass"], row["op"]): row["limit"] for row in found["units"]} == {
        ("layers.0", "forward", "all_gather"): "no compute beside it",
        ("layers.1", "forward", "all_gather"): "longer than compute",
        ("layers.0", "backward", "all_gather"): "hidden",
        ("layers.1", "backward", "reduce_scatter"): "longer than compute",
        ("layers.0", "backward", "reduce_scatter"): "no compute beside it",
    }
    assert rows_of(found["layers"], "layer") == {("(no layer)", "unknown", "all_reduce"): (10, None, 0, 10)}
    assert "takes 140 ns, and the compute that could hide it 100 ns" in found["verdict"]
    assert "larger units" in found["verdict"]


def exposed_of(found):
    return sum(row["exposed_ns"] for name in ("units", "layers") for row in found[name])


def ledger_comm(run):
    return sum(row["ns"] for row in report(run).to_json()["ledger"]["lines"] if row["line"] in COMM)


def test_units_and_layers_sum_to_the_ledger(fsdp):
    assert exposed_of(layers(fsdp).to_json()) == ledger_comm(fsdp) == 160


def test_a_gather_that_starts_late_fits():
    """The gather takes 60 of the 100 that the unit before computes, but starts after it."""
    made = HandMade()
    made.host("annotation", "FSDP::pre_forward (a)", 10, 20)
    made.launch(15, "kernel", "gemm", 100, 200)
    made.host("annotation", "FSDP::pre_forward (b)", 30, 40)
    made.host("annotation", "FSDP::all_gather (b)", 31, 35)
    made.launch(32, "comm", "all_gather", 200, 260)
    made.launch(50, "kernel", "gemm", 260, 300)
    made.host("op", "autograd::engine::evaluate_function: MmBackward0", 60, 70)
    with made.run() as run:
        found = layers(run).to_json()
    assert rows_of(found["units"], "unit") == {("b", "forward", "all_gather"): (60, 100, 0, 60)}
    assert found["units"][0]["limit"] == "shorter than compute"
    assert "prefetch" in found["verdict"]


def test_the_verdict_names_the_longest_exposed_call_and_never_prefetches_a_reduction():
    """The gather of b is 30 longer than what hides it; the reduction of b starts 90 too late, and would fit."""
    made = HandMade()
    made.host("annotation", "FSDP::pre_forward (a)", 10, 20)
    made.launch(15, "kernel", "gemm", 100, 110)
    made.host("annotation", "FSDP::pre_forward (b)", 30, 40)
    made.host("annotation", "FSDP::all_gather (b)", 31, 35)
    made.launch(32, "comm", "all_gather", 100, 140)
    made.launch(41, "kernel", "gemm", 140, 200)
    made.host("op", "autograd::engine::evaluate_function: MmBackward0", 50, 100)
    made.host("annotation", "FSDP::pre_backward (b)", 51, 59)
    made.launch(60, "kernel", "gemm", 200, 300)
    made.host("annotation", "FSDP::post_backward_reduce (b)", 65, 70)
    made.launch(66, "comm", "reduce_scatter", 410, 500)
    made.host("annotation", "FSDP::pre_backward (a)", 72, 75)
    made.launch(80, "kernel", "gemm", 300, 410)
    made.host("annotation", "FSDP::post_backward_reduce (a)", 85, 90)
    made.launch(86, "comm", "reduce_scatter", 500, 510)
    with made.run() as run:
        found = layers(run).to_json()
    limits = {(row["unit"], row["op"]): (row["limit"], row["exposed_ns"]) for row in found["units"]}
    assert limits["b", "all_gather"] == ("longer than compute", 30)
    assert limits["b", "reduce_scatter"] == ("shorter than compute", 90)
    assert (
        "The reduce_scatter of b in backward takes 90 ns, and the compute that could hide it 110 ns" in found["verdict"]
    )
    assert "prefetch does not move it" in found["verdict"]


def test_a_recomputed_forward_pass_is_backward():
    """Checkpointing repeats the forward pass of b, with its gather, inside the backward pass."""
    made = HandMade()
    made.host("op", "autograd::engine::evaluate_function: CheckpointFunctionBackward", 5, 90)
    made.host("annotation", "FSDP::pre_backward (c)", 10, 12)
    made.launch(15, "kernel", "gemm", 100, 170)
    made.host("annotation", "FSDP::pre_forward (b)", 20, 30)
    made.host("annotation", "FSDP::all_gather (b)", 21, 29)
    made.launch(22, "comm", "all_gather", 110, 180)
    with made.run() as run:
        found = layers(run).to_json()
    assert rows_of(found["units"], "unit") == {("b", "backward", "all_gather"): (70, 70, 60, 10)}


def test_tensor_parallel_layers_by_hand():
    """Each all-reduce is beside the compute of its own layer, which must have ended."""
    made = HandMade()
    made.launch(10, "kernel", "gemm", 100, 140, module="layers.0.wide")
    made.launch(12, "kernel", "gemm", 140, 160, module="layers.0.narrow")
    made.launch(14, "comm", "all_reduce", 160, 190, module="layers.0.narrow")
    made.launch(16, "kernel", "gemm", 190, 260, module="layers.1.wide")
    made.launch(18, "comm", "all_reduce", 250, 300, module="layers.1.narrow")
    made.host("op", "autograd::engine::evaluate_function: MmBackward0", 30, 60)
    made.launch(32, "kernel", "gemm", 300, 310, module="layers.1.wide")
    made.launch(34, "comm", "all_reduce", 310, 330, module="layers.1.wide")
    with made.run() as run:
        found = layers(run).to_json()
        assert exposed_of(found) == ledger_comm(run) == 90
    assert found["units"] == []
    assert rows_of(found["layers"], "layer") == {
        ("layers.0", "forward", "all_reduce"): (30, 60, 0, 30),
        ("layers.1", "forward", "all_reduce"): (50, 70, 10, 40),
        ("layers.1", "backward", "all_reduce"): (20, 10, 0, 20),
    }


def test_only_one_kind_of_answer_at_a_time(fsdp):
    run = TrainingRun(fsdp)
    with pytest.raises(UsageError, match="choose overlap or layers"):
        run.comm(overlap=True, layers=True)
    assert run.comm(layers=True).to_json() == layers(fsdp).to_json()


def union(spans):
    merged = []
    for start, stop in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], stop)
        else:
            merged.append([start, stop])
    return merged


def length(spans):
    return sum(stop - start for start, stop in union(spans))


def exposed_in_file(path):
    """Return the time in which a trace's NCCL kernels run and no other kernel, in ns, and that of all NCCL kernels."""
    comm, compute = [], []
    for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        if event.get("cat") in {"kernel", "Kernel"} and event.get("ph") == "X":
            start = round(event["ts"] * 1000)
            own = comm if event["name"].startswith("nccl") else compute
            own.append((start, start + round(event["dur"] * 1000)))
    return length([*comm, *compute]) - length(compute), length(comm)


@pytest.mark.parametrize(
    "name",
    [
        "astra-sim__astra-sim/megatron-tp8/megatron_kineto_0.json.gz",
        "KellerJordan__modded-nanogpt/2026-02-12-H2DPrefetch/profile-rank0-trace.json.gz",
    ],
)
def test_public_traces_equal_an_interval_union(name, tmp_path):
    path = TRACES / name
    if not path.exists():
        pytest.skip("the traces are not on this machine")
    ingest([path], tmp_path / "run")
    exposed, whole = exposed_in_file(path)
    with Run.open(tmp_path / "run") as run:
        found = layers(run, window=WindowKind.TRACE).to_json()
    sums = defaultdict(int)
    for row in (*found["units"], *found["layers"]):
        sums["exposed"] += row["exposed_ns"]
        sums["all"] += row["exposed_ns"] + row["hidden_ns"]
    assert sums["exposed"] == pytest.approx(exposed, abs=1000)
    assert sums["all"] == pytest.approx(whole, abs=1000)

"""precision, device, optimizer, recompute, overlap: what kernels take, and what hides behind them."""

from __future__ import annotations

import pytest
from tests.predict.graph.tiny import L, M, T, graph, starts

from lostflops.account.facts.kernel_classes import CLASSES
from lostflops.account.ledger.phases import BACKWARD, FORWARD, OPTIMIZER
from lostflops.core.errors import NotApplicable, UsageError
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import Because, LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes import device, optimizer, overlap, precision, recompute

H100 = Facts(times=None, device="NVIDIA H100 80GB HBM3", dtype="fp32")


def kernel(name, duration, kind, phase=FORWARD, layer=""):
    return T(name, duration, 0, TaskKind.KERNEL, phase=phase, kernel_class=CLASSES.index(kind), layer=layer)


def kernels():
    classes = ("matmul", "elementwise", "normalisation", "optimizer")
    return graph([L(0, LaneKind.STREAM, [kernel(name, 40_000, name) for name in classes])], steps=[(0, 0, "", "")])


def took(edited):
    return starts(edited.graph, edited.graph.tasks.duration)


def test_products_follow_the_peaks_and_elementwise_the_bytes():
    made = kernels()
    short = graph([L(0, LaneKind.STREAM, [kernel("x", 1, "other"), *[kernel("matmul", 40_000, "matmul")]])])
    found = took(precision.CHANGE.apply(made, "tf32", H100))
    assert found["elementwise"] == 40_000
    assert took(precision.CHANGE.apply(short, "bf16", H100))["matmul"] == round(40_000 * 67 / 989)


def test_no_kernel_gets_shorter_than_the_shortest():
    found = took(precision.CHANGE.apply(kernels(), "bf16", H100))
    assert found == dict.fromkeys(("matmul", "elementwise", "normalisation", "optimizer"), 40_000)


@pytest.mark.parametrize(
    ("facts", "value", "says"),
    [
        (H100, "fp32", "already run in fp32"),
        (Facts(times=None, device="Abacus", dtype="fp32"), "bf16", "the peaks of Abacus are not known"),
        (Facts(times=None, device="NVIDIA H100 80GB HBM3"), "bf16", "no shapes were recorded"),
        (
            Facts(times=None, device="Tesla V100-SXM2-16GB", dtype="fp16"),
            "bf16",
            "no confirmed bf16 peak of V100-SXM2 is known; known peaks: .*fp16",
        ),
    ],
)
def test_what_is_not_known_is_refused(facts, value, says):
    with pytest.raises(NotApplicable, match=says):
        precision.CHANGE.apply(kernels(), value, facts)


def test_another_device():
    a100 = Facts(times=None, device="NVIDIA A100-SXM4-80GB", dtype="bf16")
    made = graph(
        [
            L(
                0,
                LaneKind.STREAM,
                [
                    kernel("x", 1, "other"),
                    kernel("mm", 40_000, "matmul"),
                    kernel("add", 40_000, "other"),
                    kernel("gemv2T_kernel_val", 40_000, "matmul"),
                ],
            )
        ]
    )
    found = took(device.CHANGE.apply(made, "H100-SXM5", a100))
    beyond = 40_000 - 2_000  # the shortest time of a kernel does not come from its work
    assert found["mm"] == round(2_000 + beyond * (0.8 * 271) / (0.765 * 794))  # the part of it that training reaches
    assert found["add"] == found["gemv2T_kernel_val"] == round(2_000 + beyond * 2039 / 3350)
    assert found["x"] == 1
    with pytest.raises(UsageError, match=r"device=H100 is not known: give H100-SXM5 or H100-PCIe$"):
        device.CHANGE.apply(made, "H100", a100)
    with pytest.raises(UsageError, match=r"device=Abacus is not known: give one of P4, .*H100-SXM5"):
        device.CHANGE.apply(made, "Abacus", a100)
    with pytest.raises(NotApplicable, match="the run already uses A100-SXM4-80GB"):
        device.CHANGE.apply(made, "A100-SXM4-80GB", a100)


def test_another_device_without_products_needs_no_dtype():
    made = graph([L(0, LaneKind.STREAM, [kernel("add", 40_000, "elementwise")])], steps=[(0, 0, "", "")])
    known = Facts(times=None, device="NVIDIA A100-SXM4-80GB")
    found = device.CHANGE.apply(made, "V100-SXM2", known)
    assert took(found)["add"] == round(2_000 + 38_000 * 2039 / 900)
    assert found.notes[0] == "Kernels take 2.27x as long (memory bandwidth)."
    with pytest.raises(NotApplicable, match="data sheet of TPU v5p"):
        device.CHANGE.apply(made, "TPU v5p", known)


def updating(name="foreach"):
    host = [T(f"launch {i}", 5, 3, TaskKind.LAUNCH, phase=OPTIMIZER) for i in range(4)]
    device_lane = [kernel(f"{name} {i}", 2_000 + 20_000, "optimizer", OPTIMIZER) for i in range(4)]
    return graph(
        [L(0, LaneKind.HOST, host), L(0, LaneKind.STREAM, device_lane)],
        [(f"launch {i}", f"{name} {i}", 2, True) for i in range(4)],
        steps=[(0, 0, "", "")],
        because=Because.LAUNCH,
    )


def test_an_optimizer_in_one_pass():
    edited = optimizer.CHANGE.apply(updating(), "fused", H100).graph
    done = replay(edited)
    assert done.step_times.tolist() == [4 * 7_000]
    assert starts(edited, done.start)["launch 3"] == 5
    with pytest.raises(NotApplicable, match="already fused"):
        optimizer.CHANGE.apply(updating("FusedAdam"), "fused", H100)


def test_a_fused_optimizer_that_is_a_small_part_of_its_phase_is_fused_too():
    """As where the phase also clips gradients."""
    ops = [kernel("aten::_fused_adamw_ 0", 10_000, "optimizer", OPTIMIZER)]
    ops += [kernel(f"aten::norm {i}", 50_000, "optimizer", OPTIMIZER) for i in range(3)]
    with pytest.raises(NotApplicable, match="already fused"):
        optimizer.CHANGE.apply(graph([L(0, LaneKind.HOST, ops)], [], steps=[(0, 0, "", "")]), "fused", H100)


def test_an_optimizer_on_the_host_loses_its_calls():
    """10 us at most of each op are its call; 7/20 of the rest is left."""
    ops = [
        kernel(f"{op} {i}", us * 1_000, "optimizer", OPTIMIZER)
        for op in ("mul", "add", "div")
        for i, us in enumerate([5] * 9 + [110])
    ]
    made = graph([L(0, LaneKind.HOST, ops)], steps=[(0, 0, "", "")])
    found = took(optimizer.CHANGE.apply(made, "fused", Facts(times=None)))
    assert {name: ns for name, ns in found.items() if ns} == {"mul 9": 35_000, "add 9": 35_000, "div 9": 35_000}


def passes():
    tasks = [
        kernel("f1", 10, "matmul", FORWARD, "1"),
        kernel("f2", 20, "matmul", FORWARD, "2"),
        kernel("loss", 3, "other", FORWARD),
        kernel("b2", 40, "matmul", BACKWARD, "2"),
        kernel("b1", 20, "matmul", BACKWARD, "1"),
    ]
    return graph([L(0, LaneKind.STREAM, tasks)], steps=[(0, 0, "", "")])


def test_forward_again_layer_by_layer():
    found = took(recompute.CHANGE.apply(passes(), "on", Facts(times=None)))
    assert found == {"f1": 10, "f2": 20, "loss": 3, "b2": 40 + 20 + 2, "b1": 20 + 10 + 1}


def test_no_longer_again():
    found = took(recompute.CHANGE.apply(passes(), "off", Facts(times=None, recomputed=1.0)))
    assert found == {"f1": 10, "f2": 20, "loss": 3, "b2": 40 - 20 - 2, "b1": 20 - 10 - 1}
    with pytest.raises(NotApplicable, match="recomputes nothing"):
        recompute.CHANGE.apply(passes(), "off", Facts(times=None, recomputed=0.0))
    with pytest.raises(NotApplicable, match="already recomputes the whole"):
        recompute.CHANGE.apply(passes(), "on", Facts(times=None, recomputed=1.0))


def reducing(transfer):
    """Two steps: compute, then a collective on another stream that the next compute waits for."""
    compute = [T(f"k{i}", 10, 0, TaskKind.KERNEL, step=i) for i in range(2)]
    comm = [T(f"c{i}", 0, 0, TaskKind.COMM, f"m{i}", step=i) for i in range(2)]
    return graph(
        [L(0, LaneKind.STREAM, compute), L(0, LaneKind.STREAM, comm)],
        [("k0", "c0"), ("c0", "k1"), ("k1", "c1")],
        {"m0": M(transfer), "m1": M(transfer)},
        because=Because.STREAM,
    )


def test_nothing_waits_for_a_collective():
    edited = overlap.CHANGE.apply(reducing(7), "perfect", H100)
    assert replay(edited.graph).stop.max() == 20 + 7
    assert replay(overlap.CHANGE.apply(reducing(30), "perfect", H100).graph).stop.max() == 10 + 2 * 30
    assert edited.doubt == 0
    assert edited.notes[0].startswith("An upper limit: nothing waits")


def test_collectives_on_the_stream_of_kernels_get_one_of_their_own():
    lane = [T("k0", 10, 1, TaskKind.KERNEL), T("c", 0, 0, TaskKind.COMM, "m"), T("k1", 10, 0, TaskKind.KERNEL)]
    edited = overlap.CHANGE.apply(graph([L(0, LaneKind.STREAM, lane)], meetings={"m": M(7)}), "perfect", H100).graph
    edited.self_check()
    assert starts(edited, replay(edited).start) == {"k0": 0, "c": 11, "k1": 11}


def test_stages_still_wait_for_each_other():
    made = graph(
        [
            L(0, LaneKind.STREAM, [T("a", 10, 0, TaskKind.KERNEL), T("send", 0, 0, TaskKind.COMM, "p")]),
            L(1, LaneKind.STREAM, [T("recv", 0, 0, TaskKind.COMM, "p"), T("b", 10, 0, TaskKind.KERNEL)]),
        ],
        meetings={"p": M(7, "send_recv")},
    )
    assert starts(made, replay(made).start)["b"] == 17
    edited = overlap.CHANGE.apply(made, "perfect", H100).graph
    assert starts(edited, replay(edited).start)["b"] == 10


def test_the_last_step_of_a_thread_waits_for_its_collectives():
    made = graph(
        [
            L(
                0,
                LaneKind.HOST,
                [
                    T("begin", kind=TaskKind.MARK),
                    T("op", 10, 0, TaskKind.KERNEL),
                    T("wait", 1, 0, TaskKind.SYNC),
                    T("end", kind=TaskKind.MARK),
                ],
            ),
            L(0, LaneKind.COMM_THREAD, [T("c", 0, 0, TaskKind.COMM, "m")]),
        ],
        [("op", "c"), ("c", "wait")],
        {"m": M(30)},
        [(0, 0, "begin", "end")],
    )
    assert replay(overlap.CHANGE.apply(made, "perfect", H100).graph).step_times.tolist() == [40]


def test_nothing_communicates():
    with pytest.raises(NotApplicable, match="no communication was recorded"):
        overlap.CHANGE.apply(passes(), "perfect", H100)

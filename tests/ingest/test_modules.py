"""Which module an event belongs to: tiny traces with annotated modules, and what torch itself records."""

from collections import Counter

import pytest
from tests.ingest.test_kineto_golden import THREAD, event, kernel, launch, note, op, step

from lostflops.ingest import ingest
from lostflops.store.run import Run

AUTOGRAD = 2
OPS = "select name, module from events where kind = 'op' order by start, dur desc"


def module(name, ts, dur, tid=THREAD):
    return note(f"lostflops.module: {name}", ts, dur, tid)


def forward(name, ts, dur, sequence, tid=THREAD):
    return op(name, ts, dur, tid, **{"Sequence number": sequence, "Fwd thread id": 0})


def node(name, ts, dur, sequence, *, thread=1, tid=AUTOGRAD):
    """The engine's call, and the node inside."""
    numbers = {"Sequence number": sequence, "Fwd thread id": thread}
    outer = op(f"autograd::engine::evaluate_function: {name}", ts, dur, tid, **numbers)
    return [outer, op(name, ts + 1, dur - 2, tid, **numbers)]


def test_the_collector_writes_ranges_of_modules_as_ops(rows):
    trace = [op("lostflops.module: layers.0", 10, 50), op("aten::mm", 15, 5), op("aten::add", 70, 5)]
    assert rows("select kind, name, module from events order by start", trace) == [
        ("module", "lostflops.module: layers.0", "layers.0"),
        ("op", "aten::mm", "layers.0"),
        ("op", "aten::add", None),
    ]


def test_the_innermost_module_of_the_same_thread(rows):
    trace = [
        module("(root)", 0, 100),
        module("layers.0", 10, 50),
        module("layers.0.up", 20, 20),
        *(op(f"op{ts}", ts, 2) for ts in (0, 15, 20, 39, 40, 60, 100)),
        op("elsewhere", 25, 2, tid=9),
    ]
    assert rows(OPS, trace) == [
        ("op0", "(root)"),
        ("op15", "layers.0"),
        ("op20", "layers.0.up"),
        ("elsewhere", None),
        ("op39", "layers.0.up"),
        ("op40", "layers.0"),
        ("op60", "(root)"),
        ("op100", None),
    ]


@pytest.mark.parametrize("category", ["user_annotation", "cpu_op"])
def test_modules_are_neither_annotations_nor_ops(rows, traces, category):
    head = module("head", 10, 50) | {"cat": category}
    trace = [note("loss", 0, 100), head, op("aten::mm", 20, 5), step(3, 0, 200)]
    assert rows("select annotation, module from events where name = 'aten::mm'", trace) == [("loss", "head")]
    assert traces.ask("select kind, annotation, module from events where name like 'lostflops%'") == [
        ("module", "loss", "head")
    ]
    assert traces.ask("select count(*) from events where annotation like '%module%'") == [(0,)]


def test_backward_has_the_module_of_its_forward_op(rows):
    trace = [
        module("a", 0, 20),
        forward("aten::linear", 2, 10, 5),
        module("b", 20, 20),
        forward("aten::relu", 22, 10, 6),
        forward("aten::mean", 41, 4, 7),
        *node("MeanBackward0", 100, 10, 7),
        *node("ReluBackward0", 110, 10, 6),
        op("aten::threshold_backward", 113, 2, AUTOGRAD),
        *node("LinearBackward0", 120, 10, 5),
        op("aten::mm", 123, 2, AUTOGRAD),
        op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 130, 5, AUTOGRAD),
        *node("OlderBackward0", 140, 10, 1),
    ]
    found = dict(rows(OPS, trace))
    assert found["MeanBackward0"] is None
    assert found["autograd::engine::evaluate_function: ReluBackward0"] == found["ReluBackward0"] == "b"
    assert found["aten::threshold_backward"] == "b"
    assert found["aten::mm"] == found["LinearBackward0"] == "a"
    assert found["autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"] is None
    assert found["OlderBackward0"] is None, "its forward op was not recorded"


def test_of_several_ops_with_one_number_the_last_made_the_node(rows):
    """An op that needs no gradient uses up no number."""
    trace = [
        module("mask", 0, 10),
        forward("aten::ne", 2, 5, 5),
        module("proj", 10, 10),
        forward("aten::mm", 12, 5, 5),
        *node("MmBackward0", 50, 10, 5),
    ]
    assert dict(rows(OPS, trace))["MmBackward0"] == "proj"


def test_recomputation_has_its_own_module(rows):
    trace = [
        module("block", 0, 30),
        forward("CheckpointFunction", 2, 20, 5),
        *node("CheckpointFunctionBackward", 100, 100, 5),
        op("outside", 102, 2, AUTOGRAD),
        module("block.up", 110, 20, AUTOGRAD),
        forward("aten::relu", 112, 10, 0, AUTOGRAD),
        *node("ReluBackward0", 140, 20, 0, thread=2),
        op("inside", 145, 2, AUTOGRAD),
        op("after", 165, 2, AUTOGRAD),
    ]
    arrows = [
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "pid": 100, "tid": AUTOGRAD, "ts": 112, "id": 1},
        {"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "pid": 100, "tid": AUTOGRAD, "ts": 140, "id": 1, "bp": "e"},
    ]
    found = dict(rows(OPS, trace + arrows))
    assert found["outside"] == found["after"] == found["CheckpointFunctionBackward"] == "block"
    assert found["aten::relu"] == found["inside"] == found["ReluBackward0"] == "block.up"


def test_numbers_are_those_of_the_forward_ops_thread(rows):
    """Two threads count from the same number; arrows tell whose it is."""
    trace = []
    for tid, name in ((5, "left"), (6, "right")):
        trace += [module(name, 0, 20, tid), forward(f"aten::{name}", 2, 10, 7, tid)]
    trace += [*node("LeftBackward", 100, 10, 7, thread=31), *node("RightBackward", 120, 10, 7, thread=30)]
    arrow = {"cat": "fwdbwd", "name": "fwdbwd", "pid": 100}
    for number, (origin, ts) in enumerate(((5, 100), (6, 120))):
        trace += [
            arrow | {"ph": "s", "tid": origin, "ts": 2, "id": number},
            arrow | {"ph": "f", "tid": AUTOGRAD, "ts": ts, "id": number, "bp": "e"},
        ]
    found = dict(rows(OPS, trace))
    assert (found["LeftBackward"], found["RightBackward"]) == ("left", "right")


def test_without_arrows_threads_that_count_alike_are_not_told_apart(rows):
    trace = [
        *(event for tid, name in ((THREAD, "a"), (3, "b")) for event in (module(name, 0, 50, tid),)),
        *(forward("aten::mm", 10, 5, 7, tid) for tid in (THREAD, 3)),
        *node("MmBackward0", 100, 10, 7, thread=1),
        *node("MmBackward0", 120, 10, 7, thread=2),
    ]
    query = "select distinct module from events where forward_thread > 0"
    assert rows(query, trace) == [(None,)]


def test_a_device_event_has_the_module_of_its_launch(rows):
    trace = [
        module("up", 0, 20),
        forward("aten::mm", 2, 10, 5),
        launch(1, 4),
        *node("MmBackward0", 100, 20, 5),
        launch(2, 110, tid=AUTOGRAD),
        launch(3, 130, tid=AUTOGRAD),
        kernel(1, 200, 10, "forward"),
        kernel(2, 210, 10, "backward"),
        kernel(3, 220, 10, "other"),
        event("gpu_memcpy", "unlaunched", 230, 5, 7, 0, device=0, stream=7, correlation=99),
    ]
    found = rows("select name, module from events where kind in ('kernel', 'memcpy') order by start", trace)
    assert found == [("forward", "up"), ("backward", "up"), ("other", None), ("unlaunched", None)]


def test_without_modules_the_column_is_null(rows):
    assert rows(OPS, [forward("aten::mm", 0, 5, 1), *node("MmBackward0", 10, 5, 1)])[0] == ("aten::mm", None)


@pytest.mark.parametrize("fast", [False, True], ids=["annotations", "ops"])
@pytest.mark.parametrize("checkpoint", [None, True, False], ids=["plain", "reentrant", "non-reentrant"])
def test_what_torch_records(checkpoint, fast, tmp_path):
    """Each linear layer of a chain has two products backward for each forward one, but the first, whose input needs no
    gradient; a recomputed one has twice the forward products."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    chain = annotated(torch, torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3))), fast=fast)
    path = tmp_path / "rank0.json"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        hidden = chain[1](chain[0](torch.ones(4, 8)))
        if checkpoint is None:
            hidden = chain[2](hidden)
        else:
            hidden = torch.utils.checkpoint.checkpoint(chain[2], hidden, use_reentrant=checkpoint)
        hidden.sum().backward()
    profiler.export_chrome_trace(str(path))
    ingest([path], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = run.sql("select module, name from events where name in ('aten::addmm', 'aten::mm')").fetchall()
    counts = Counter(found)
    assert sorted(counts.items()) == (
        [
            (("0", "aten::addmm"), 1),
            (("0", "aten::mm"), 1),
            (("1", "aten::addmm"), 1),
            (("1", "aten::mm"), 2),
            (("2", "aten::addmm"), 1 if checkpoint is None else 2),
            (("2", "aten::mm"), 2),
        ]
    )


def annotated(torch, model, *, fast=True):
    """The model with hooks that annotate its modules as the collector does, where it can with the fast range."""
    open_notes = []
    make = torch._C._profiler._RecordFunctionFast if fast else torch.profiler.record_function

    def enter(name):
        def hook(*_):
            open_notes.append(make(f"lostflops.module: {name or '(root)'}"))
            open_notes[-1].__enter__()

        return hook

    for name, part in model.named_modules():
        part.register_forward_pre_hook(enter(name))
        part.register_forward_hook(lambda *_: open_notes.pop().__exit__(None, None, None), always_call=True)
    return model

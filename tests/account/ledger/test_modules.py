"""The ledger by module: random traces against a walk over every nanosecond, and what torch itself records."""

import json
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.account.ledger import oracle
from tests.account.ledger import test_partition_golden as golden
from tests.account.ledger.oracle import Oracle
from tests.account.ledger.test_partition_oracle import (
    SKEW,
    cut_down,
    device_traces,
    examples,
    ledger_of,
    module_of,
    placed_events,
    thread_traces,
)
from tests.ingest.test_modules import annotated

from lostflops.account.ledger.lines import COMM_LINES, LINES
from lostflops.account.ledger.modules import NO_MODULE
from lostflops.account.ledger.windows import WindowKind
from lostflops.explain.analyze.report import report
from lostflops.ingest import ingest
from lostflops.store.run import Run


def walked(expected, module):
    """Nanoseconds by line and module, communication aside."""
    found = defaultdict(Counter)
    for time in expected.window():
        if (line := expected.line(time)) not in COMM_LINES:
            found[line][module(time, line) or NO_MODULE] += 1
    return dict(found)


def by_line(ledger):
    cut = {line: {name: lines[line] for name, lines in ledger.modules.items() if lines[line]} for line in LINES}
    return {line: own for line, own in cut.items() if own and line not in COMM_LINES}


@examples(150)
@given(device_traces(), st.sampled_from(WindowKind))
@cut_down
def test_busy_time_goes_with_its_event_and_a_gap_with_what_ends_it(trace, kind):
    expected = Oracle(trace, by_steps=kind is WindowKind.STEPS, skew=SKEW)
    kinds = {"compute": ("kernel",), "copy": ("memcpy", "memset")}

    def module(time, line):
        if line in kinds:
            running = [work for work in oracle.at(trace.device, time) if work.kind in kinds[line]]
            work = min(running, key=lambda work: work.start)
        else:
            work = expected.ender(expected.gap(time))
        return module_of(expected.launch[work]) if work else ""

    assert by_line(ledger_of(trace, kind)) == walked(expected, module)


@examples(150)
@given(thread_traces(), st.sampled_from(WindowKind))
@cut_down
def test_an_instant_of_a_thread_goes_with_what_is_around_it_or_comes_next(trace, kind):
    expected = Oracle(trace, by_steps=kind is WindowKind.STEPS, skew=SKEW)
    placed = [e for e in placed_events(trace) if e.lane == expected.training_lane and e.stop > e.start]

    def module(time, _):
        while not (around := oracle.at(placed, time)):
            if all(event.start < time for event in placed):
                return ""
            time += 1
        return module_of(max(around, key=lambda event: (event.start, -event.stop, placed.index(event))))

    assert by_line(ledger_of(trace, kind)) == walked(expected, module)


def note(name, start, stop):
    return golden.note(f"lostflops.module: {name}", start, stop)


def numbered(name, start, stop, sequence, tid=golden.MAIN, thread=0):  # noqa: PLR0917 - as a trace writes them
    numbers = {"Sequence number": sequence, "Fwd thread id": thread}
    return golden.event("cpu_op", name, start, stop, tid=tid, **numbers)


def test_a_device_whose_backward_pass_another_thread_launches(tmp_path):
    """A gap of 5 before each kernel belongs to the module of that kernel; an all-reduce that a hook of the gradient's
    accumulation launches belongs to none, one that a module launches to it."""
    backward = golden.AUTOGRAD
    trace = [
        note("(root)", 0, 40),
        note("up", 0, 20),
        numbered("aten::mm", 1, 9, 5),
        golden.launch(1, 2, 3),
        golden.kernel(1, 10, 20),
        golden.launch(2, 15, 16),
        golden.kernel(2, 25, 30, golden.NCCL),
        numbered("autograd::engine::evaluate_function: MmBackward0", 31, 33, 5, backward, 1),
        golden.launch(3, 32, 33, backward),
        golden.kernel(3, 35, 45),
        golden.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 33, 37, backward),
        golden.launch(4, 34, 36, backward),
        golden.kernel(4, 50, 60, golden.NCCL),
        golden.launch(5, 39, 40),
        golden.kernel(5, 65, 70),
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": trace}), encoding="utf-8")
    ingest([path], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = {row["name"]: row["lines"] for row in report(run, by="module").to_json()["modules"]}
        annotations = report(run, by="annotation").to_json()["annotations"]
    busy = {name: (lines["compute"], lines["comm.transfer"]) for name, lines in found.items()}
    assert busy == {"up": (20_000, 5_000), NO_MODULE: (0, 10_000), "(root)": (5_000, 0)}
    idle = {name: sum(ns for line, ns in lines.items() if line.startswith("idle.")) for name, lines in found.items()}
    assert idle == {"up": 10_000, NO_MODULE: 5_000, "(root)": 5_000}
    assert [row["name"] for row in annotations] == ["no annotation"]


def test_the_time_of_matrix_products_stands_on_their_modules(tmp_path):
    """What torch records of a chain of layers: forward, backward and the gradients' products of each are its own."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    model = annotated(torch, torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))))
    path = tmp_path / "rank0.json"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            model(torch.ones(32, 64)).sum().backward()
    profiler.export_chrome_trace(str(path))
    ingest([path], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = report(run, by="module").to_json()
        products = run.sql(
            "select module, sum(dur) from events where name in ('aten::addmm', 'aten::mm') group by module"
        ).fetchall()
    compute = {row["name"]: row["lines"]["compute"] for row in found["modules"]}
    assert {name for name, _ in products} == {"0", "1", "2"}
    assert all(compute[name] >= ns for name, ns in products)
    ledger = {line["line"]: line["ns"] for line in found["ledger"]["lines"]}
    for cut in (found["modules"], found["layers"]):
        assert {line: sum(row["lines"][line] for row in cut) for line in LINES} == ledger

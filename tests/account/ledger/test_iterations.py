"""Iterations of a server: their kind, time and throughput, against the marks in the files."""

import bisect
import gzip
import json
import re
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from statistics import median

import pytest
from tests.ingest.conftest import Traces
from tests.ingest.test_kineto_golden import kernel, launch, note, step

from lostflops.account.facts.job_phases import NO_PHASE
from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.iterations import explain_iterations, read_iterations, tabulate_iterations
from lostflops.account.ledger.scope import scope
from lostflops.explain.analyze.report import report
from lostflops.explain.analyze.steps import steps
from lostflops.ingest import ingest
from lostflops.store.run import Run
from shared_data import TRACES, needs_traces

US = 1000
EXTEND, DECODE = "step[EXTEND bs=4 toks=1000]", "step[DECODE bs=8]"


def serve(*batches):
    """Marks, each with a replayed graph of two kernels 10 us after it."""
    trace = []
    for number, (name, ts) in enumerate(batches):
        trace += [note(name, ts, 20), launch(number, ts + 5, name="cudaGraphLaunch")]
        trace += [kernel(number, ts + 10, 10), kernel(number, ts + 25, 10, "graph tail")]
    return trace


@pytest.fixture
def served(tmp_path):
    traces = Traces(tmp_path)

    def read(events):
        ingest([traces.write("rank0.json", events)], traces.run, workers=1, replace=True)
        with Run.open(traces.run) as run:
            return report(run), steps(run), read_iterations(run, run.ranks)

    read.ask = traces.ask
    return read


def test_prefill_and_decode_are_apart(served):
    found = served(serve((EXTEND, 0), (DECODE, 100), (DECODE, 140), (DECODE, 200), (EXTEND, 230)))
    assert [(one.step, one.batch.kind, one.ns // US, one.is_whole) for one in found[2]] == [
        *((0, "prefill", 100, True), (1, "decode", 40, True), (2, "decode", 60, True)),
        *((3, "decode", 30, True), (4, "prefill", 25, False)),
    ]
    decode = {"kind": "decode", "iterations": 3, "ns": 40 * US, "shortest_ns": 30 * US, "longest_ns": 60 * US}
    prefill = {"kind": "prefill", "iterations": 2, "ns": 100 * US, "shortest_ns": 100 * US, "longest_ns": 100 * US}
    expected = [
        decode | {"requests": 8, "tokens": 8, "tokens_per_second": 200_000.0, "is_whole": True},
        prefill | {"requests": 4, "tokens": 1000, "tokens_per_second": 10_000_000.0, "is_whole": True},
    ]
    for answer in found[:2]:
        assert answer.to_json()["iterations"] == expected
        assert not any("ends in the only iteration" in text for text in answer.notes)


def test_kernels_of_a_graph_are_of_the_iteration_that_replayed_it(served):
    served(serve((DECODE, 0), (DECODE, 22), (DECODE, 100)))
    # The second batch is marked before the first one's graph has run.
    assert served.ask("select step, name, start from events where kind = 'kernel' order by start") == [
        *((0, "gemm", 10 * US), (0, "graph tail", 25 * US), (1, "gemm", 32 * US), (1, "graph tail", 47 * US)),
        *((2, "gemm", 110 * US), (2, "graph tail", 125 * US)),
    ]


def test_an_iteration_that_the_recording_ends_is_named(served):
    found = served(serve((EXTEND, 0), (DECODE, 100)))
    assert [row["is_whole"] for row in found[0].to_json()["iterations"]] == [False, True]
    [text] = explain_iterations(found[2])
    assert text.startswith("The recording ends in the only iteration of kind decode: its time may be too short")


def test_tokens_that_a_mark_lacks_are_unknown(served):
    row = served(serve(*((f"[Executor] _forward_step {k}: 2 ctx reqs, 8 gen reqs", 100 * k) for k in range(3))))[0]
    [found] = row.to_json()["iterations"]
    assert [found[name] for name in ("kind", "requests", "tokens", "tokens_per_second")] == ["mixed", 10, None, None]


def test_training_has_no_iterations(served):
    answer = served([step(0, 0, 50), *serve((DECODE, 10))])
    assert answer[2] == []
    assert "iterations" not in answer[0].to_json()


MARK = re.compile(r"step\[(EXTEND|DECODE) bs=(\d+)|execute_32_context_0\(.*_generation_(32)\(")


def read_truth(path):
    """Return start and stop of each step, and the kernels of each, from the JSON alone; times relative, in ns."""
    with gzip.open(path, "rt") as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    marks = sorted(
        (int(event["ts"] * 1000), int((event["ts"] + event["dur"]) * 1000), event["name"])
        for event in events
        if event.get("cat") == "user_annotation" and MARK.match(event["name"])
    )
    starts = [start for start, _, _ in marks]
    edges = [
        (start - starts[0], stop - starts[0]) for start, stop in zip(starts, [*starts[1:], marks[-1][1]], strict=True)
    ]
    called = {
        event["args"]["correlation"]: int(event["ts"] * 1000)
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]
    }
    kernels = Counter()
    for event in events:
        if event.get("cat") == "kernel":
            at = called[event["args"]["correlation"]]
            inside = starts[0] <= at < marks[-1][1]
            kernels[bisect.bisect_right(starts, at) - 1 if inside else None] += 1
    return edges, kernels, [name for _, _, name in marks]


@needs_traces
@pytest.mark.parametrize(
    ("pattern", "kind", "requests", "tokens"),
    [
        ("sgl-project__sglang/*/*TP-0-DECODE*", "decode", 64, 64),
        ("sgl-project__sglang/*/*TP-0-EXTEND*", "prefill", 4, 16384),
        ("AMD-AGI__TraceLens/inference_vllm_decode*", "decode", 32, 32),
    ],
)
def test_steps_of_recorded_servers_equal_their_marks(tmp_path, pattern, kind, requests, tokens):
    [path] = TRACES.glob(pattern)
    edges, kernels, names = read_truth(path)
    ingest([path], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = run.rows("select step, start, stop from steps order by step")
        counted = dict(run.rows("select step, count(*) from events where kind in ('kernel', 'comm') group by step"))
        iterations = read_iterations(run, run.ranks)
        device = [at for (at,) in run.rows("select device_start from steps order by step")]
        [row] = [
            dict(zip([field.name for field in table.fields], table.rows[0], strict=True))
            for table in [tabulate_iterations(iterations)]
        ]
        [ledger] = ledgers(run, scope(run, None))
    begin = found[0][1]
    assert [number for number, _, _ in found] == list(range(len(names)))
    assert [(start - begin, stop - begin) for _, start, stop in found] == edges
    assert counted == kernels
    assert {one.batch.kind for one in iterations} == {kind}
    if len(names) > 1:
        assert row["ns"] == round(median(after - start for start, after in pairwise(device)))
    assert (row["requests"], row["tokens"], row["is_whole"]) == (requests, tokens, len(names) > 1)
    assert sum(sum(lines.values()) for lines in ledger.job_phases.values()) == ledger.window.wall
    assert set(ledger.job_phases) - {NO_PHASE} == {kind}

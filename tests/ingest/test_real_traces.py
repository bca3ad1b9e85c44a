"""Real traces against a naive reading with the standard library: counts, exact times, launches, steps."""

import gzip
import json
import re
from collections import Counter
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import pytest

from lostflops.ingest import ingest
from lostflops.store.run import Run

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
CHOSEN = [
    "AMD-AGI__TraceLens/h100_gaunernst_bert-small-uncased__1016001.json.gz",
    "AMD-AGI__TraceLens/mi210_gpu_only_trace_gpu_only_trace.json.gz",
    "AMD-AGI__TraceLens/inference_vllm_decode_full_graph_execution.json.gz",
    "NVIDIA__Megatron-LM/tp2/rank0_9c44bd29b3f0_1375.pt.trace.json.gz",
    "astra-sim__astra-sim/megatron-tp8/megatron_kineto_0.json.gz",
    "facebookresearch__HolisticTraceAnalysis/amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "facebookresearch__HolisticTraceAnalysis/cpu_only__rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    "facebookresearch__HolisticTraceAnalysis/mtia_inference_trace__mtia_inference_rank_0.json.gz",
    "facebookresearch__HolisticTraceAnalysis/trace_filter__sampled_rank-0.json.gz",
    "facebookresearch__param/dlrm_kineto/worker0_step_12.1694128201545.pt.trace.json.gz",
]
RUNTIME = {"cuda_runtime", "cuda_driver", "Runtime", "mtia_runtime"}
DEVICE = {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset", "mtia_ccp_events"}
KINDS = {
    "op": {"cpu_op", "Operator", "user_annotation"},
    "python": {"python_function"},
    "runtime": RUNTIME,
    "device": DEVICE,
    "sync": {"cuda_sync"},
    "device_annotation": {"gpu_user_annotation"},
    "overhead": {"overhead"},
    "span": {"Trace"},
}
STORED = {
    "annotation": "op", "host_comm": "op", "kernel": "device", "comm": "device", "memcpy": "device", "memset": "device",
}  # fmt: skip


def nanoseconds(value):
    return int((Decimal(value) * 1000).to_integral_value(ROUND_HALF_EVEN))


def scheduled(timed):
    """Steps of a trace that marks none: from where vLLM executes one batch to where it executes the next."""
    batches = [e for e in timed if e["cat"] == "user_annotation" and re.match(r"execute_.*_generation_", e["name"])]
    batches.sort(key=lambda e: nanoseconds(e["ts"]))
    starts = [nanoseconds(e["ts"]) for e in batches]
    stops = [*starts[1:], *(nanoseconds(e["ts"]) + nanoseconds(e["dur"]) for e in batches[-1:])]
    return dict(enumerate(zip(starts, stops, strict=True)))


def naive(path):
    """Number of events and sum of durations by kind; launches found; step of each device event."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        document = json.load(file, parse_float=str, parse_int=str)
    timed = [e for e in document["traceEvents"] if e.get("ph") == "X" and Decimal(e["dur"]) >= 0]
    counts, sums = Counter(), Counter()
    for event in timed:
        kind = next((kind for kind, categories in KINDS.items() if event["cat"] in categories), "other")
        if event["cat"] == "mtia_ccp_events" and event["name"] in ("event_wait", "event_record"):
            kind = "sync"
        counts[kind] += 1
        sums[kind] += nanoseconds(event["dur"])
    steps = {}
    for event in sorted(timed, key=lambda e: nanoseconds(e["ts"])):
        found = re.fullmatch(r"ProfilerStep#(\d+)", event["name"])
        if found and event["cat"] in KINDS["op"]:
            start = nanoseconds(event["ts"])
            steps.setdefault(int(found[1]), (start, start + nanoseconds(event["dur"])))
    steps = steps or scheduled(timed)
    launches = {}
    for event in timed:
        if event["cat"] in RUNTIME and "correlation" in event.get("args", {}):
            at = nanoseconds(event["ts"])
            launches[int(event["args"]["correlation"])] = max(
                (number for number, (start, stop) in steps.items() if start <= at < stop), default=None
            )
    base = int(document.get("baseTimeNanoseconds", 0))
    device = Counter()
    for event in timed:
        if event["cat"] in DEVICE and event["name"] not in ("event_wait", "event_record"):
            correlation = int(event["args"]["correlation"]) if "correlation" in event.get("args", {}) else None
            device[
                nanoseconds(event["ts"]) + base, nanoseconds(event["dur"]), correlation, launches.get(correlation)
            ] += 1
    matched = sum(n for (_, _, correlation, _), n in device.items() if correlation in launches)
    return counts, sums, matched, device


@pytest.mark.skipif(not TRACES.exists(), reason="no real traces beside the checkout")
@pytest.mark.parametrize("name", CHOSEN)
def test_as_the_standard_library_reads_it(name, tmp_path):
    ingest([TRACES / name], tmp_path / "run", workers=1)
    counts, sums, matched, device = naive(TRACES / name)
    found, found_sums = Counter(), Counter()
    work = "kind in ('kernel', 'comm', 'memcpy', 'memset')"
    with Run.open(tmp_path / "run") as run:
        for kind, number, total in run.sql("select kind, count(*), sum(dur) from events group by kind").fetchall():
            found[STORED.get(kind, kind)] += number
            found_sums[STORED.get(kind, kind)] += int(total)
        rows = run.sql(f"select start, dur, correlation, step from events where {work}").fetchall()
        launched = run.sql(
            f"select count(*) from events d where {work} and exists (select 1 from events r where r.kind = 'runtime' "
            "and r.correlation = d.correlation)"
        ).fetchall()
    assert found == counts
    assert +found_sums == +sums
    assert launched == [(matched,)]
    assert Counter(rows) == device

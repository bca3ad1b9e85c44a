"""The written form: valid JSON in Kineto's layout, every event accounted for, times exact."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.testing import brute_force

from lostflops.ingest.common.rank_names import host_in_name, rank_in_name
from lostflops.testing import BASE_TIME, TRUE_TIME_ZERO, Clock, Losses, LostRecords, SyntheticCluster
from lostflops.testing.kineto import microseconds
from lostflops.testing.strategies import small_clusters

SMALL = SyntheticCluster(ranks=4, ranks_per_host=2, steps=2, losses=Losses(data=10_000, copy_bytes=1_000, sync=True))


@given(small_clusters(lost=True))
@settings(max_examples=40, deadline=None)
def test_json_holds_exactly_the_counted_events(cluster: SyntheticCluster) -> None:
    run = cluster.generate()
    for trace, rank in zip(run.traces, run.truth.ranks, strict=True):
        document = json.loads(trace.text())
        written = Counter(event["cat"] for event in document["traceEvents"] if "cat" in event)
        assert written.pop("Trace") == 1
        assert written == Counter(rank.event_counts)
        assert document["distributedInfo"]["rank"] == rank.rank


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    for form, compressed in (("plain", False), ("gzip", True)):
        first = SMALL.generate().traces.write(tmp_path / form / "a", gzip=compressed)
        second = SMALL.generate().traces.write(tmp_path / form / "b", gzip=compressed)
        assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert replace(SMALL, seed=1).generate().traces[0].text() != SMALL.generate().traces[0].text()


def test_files_are_named_by_rank(tmp_path: Path) -> None:
    traces = SMALL.generate().traces
    plain, packed = traces.write(tmp_path / "new" / "folder"), traces.write(tmp_path, gzip=True)
    assert [path.name for path in plain] == [f"rank{rank}.pt.trace.json" for rank in range(4)]
    assert [path.name for path in packed] == [f"rank{rank}.pt.trace.json.gz" for rank in range(4)]
    assert gzip.decompress(packed[1].read_bytes()) == plain[1].read_bytes()


def test_files_are_named_by_host(tmp_path: Path) -> None:
    traces = SMALL.generate().traces
    named = traces.write(tmp_path, host_names=True)
    assert [host_in_name(path.name) for path in named] == ["host0", "host0", "host1", "host1"]
    assert [rank_in_name(path.name) for path in named] == [None] * 4
    assert [path.read_text() for path in named] == [trace.text() for trace in traces]
    packed = traces.write(tmp_path, gzip=True, host_names=True)
    assert [path.name for path in packed] == [f"{path.name}.gz" for path in named]


def test_layout_is_that_of_kineto() -> None:
    text = SMALL.generate().traces[1].text()
    start = text.index('"cat": "kernel", "name": "nccl')
    kernel = text[text.rindex("  {", 0, start) : text.index("\n  },", start)].splitlines()
    assert kernel[0] == "  {"
    assert kernel[1].startswith('    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL')
    assert kernel[1].endswith('"pid": 1, "tid": 24,')
    assert kernel[3:4] + kernel[-1:] == ['    "args": {', "    }"]
    assert '"Process Group Ranks": "[0, 1, 2, 3]", "Seq": 1' in kernel[4]
    assert f'  "baseTimeNanoseconds": {BASE_TIME},\n  "traceEvents": [\n  {{\n' in text


def test_long_rank_lists_are_cut_in_events_but_not_in_the_header() -> None:
    document = json.loads(SyntheticCluster(ranks=31, steps=1).generate().traces[0].text())
    (shown,) = {args["Process Group Ranks"] for e in document["traceEvents"] if "Seq" in (args := e.get("args", {}))}
    assert shown.startswith("[0, 1, ")
    assert shown.endswith(", 28, ..., 30]")
    assert document["distributedInfo"]["pg_config"][0]["ranks"] == list(range(31))


@given(st.integers(0, 10**19))
def test_microseconds_are_exact(ns: int) -> None:
    whole, digits = microseconds(ns).split(".")
    assert len(digits) == 3
    assert int(whole) * 1000 + int(digits) == ns


@pytest.mark.parametrize("clock", [Clock(), Clock(-5_000_123), Clock(7, 40.0), Clock(-1, -99.999)])
def test_stamps_are_the_hosts_clock(clock: Clock) -> None:
    """Host 1 has the clock; host 0 shows true time. Both ends of a collective are known in true time."""
    run = replace(SMALL, clocks={1: clock}).generate()
    documents = [brute_force.load(trace.text()) for trace in run.traces]
    for collective in run.truth.collectives:
        for rank, document in enumerate(documents):
            (kernel,) = (
                e for e in brute_force.device_events(document) if e["args"].get("Seq") == collective.ordinal + 1
            )
            start, stop = collective.arrivals[rank], collective.ends[rank]
            drift = round(clock.drift_ppm * 1000)
            if rank >= 2:
                start += clock.offset + start * drift // 10**9
                stop += clock.offset + stop * drift // 10**9
            assert (kernel["ts"], kernel["end"]) == (TRUE_TIME_ZERO + start, TRUE_TIME_ZERO + stop)


def test_clocks_change_stamps_and_nothing_else() -> None:
    plain, skewed = SMALL.generate().truth, replace(SMALL, clocks={1: Clock(10**6, 50.0)}).generate().truth
    assert skewed.lines == plain.lines
    assert skewed.collectives == plain.collectives
    assert skewed.clocks == {0: Clock(), 1: Clock(10**6, 50.0)}
    assert skewed.ranks[3].own_wall > skewed.ranks[3].wall == plain.ranks[3].wall


def test_launches_lead_to_kernels_and_ops_nest() -> None:
    for trace in SMALL.generate().traces:
        document = brute_force.load(trace.text())
        calls = {e["args"]["correlation"]: e for e in brute_force.complete(document, "cuda_runtime")}
        ops = {e["args"]["External id"]: e for e in brute_force.complete(document, "cpu_op")}
        for event in brute_force.device_events(document):
            call = calls[event["args"]["correlation"]]
            op = ops[event["args"]["External id"]]
            assert op["ts"] <= call["ts"] <= call["end"] <= op["end"]
            assert call["ts"] < event["ts"]
            assert call["tid"] == op["tid"]


def test_a_stream_runs_one_thing_at_a_time() -> None:
    for trace in replace(SMALL, tensor_parallel=2, compute_streams=2).generate().traces:
        free_at: dict[int, int] = {}
        for event in sorted(brute_force.device_events(brute_force.load(trace.text())), key=lambda e: int(e["ts"])):
            assert event["ts"] >= free_at.get(event["tid"], 0)
            free_at[event["tid"]] = event["end"]


def test_forward_and_backward_are_linked_across_threads() -> None:
    document = brute_force.load(SMALL.generate().traces[0].text())
    arrows = [e for e in document["traceEvents"] if e.get("cat") == "fwdbwd"]
    starts = {e["id"]: e for e in arrows if e["ph"] == "s"}
    ends = {e["id"]: e for e in arrows if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert all(starts[key]["tid"] != ends[key]["tid"] and starts[key]["ts"] < ends[key]["ts"] for key in starts)


def test_lost_records_are_missing_and_listed() -> None:
    run = replace(SMALL, lost=LostRecords(kernels=0.2, launches=0.2, metadata=0.5)).generate()
    listed = {kind: {(r.rank, r.correlation) for r in run.truth.lost if r.kind == kind} for kind in _KINDS}
    whole = SMALL.generate()
    for rank, (trace, full) in enumerate(zip(run.traces, whole.traces, strict=True)):
        left, all_of_it = brute_force.load(trace.text()), brute_force.load(full.text())
        missing = _correlations(all_of_it, "kernel", "gpu_memcpy") - _correlations(left, "kernel", "gpu_memcpy")
        assert missing == {c for r, c in listed["kernel"] if r == rank}
        assert _correlations(all_of_it, "cuda_runtime") - _correlations(left, "cuda_runtime") == {
            c for r, c in listed["launch"] if r == rank
        }
        bare = [e for e in brute_force.device_events(left) if brute_force.role(e) == "comm" and "Seq" not in e["args"]]
        assert {(rank, e["args"]["correlation"]) for e in bare} <= listed["metadata"]
    assert all(listed.values())
    assert whole.truth.lost == ()
    assert run.truth.lines == whole.truth.lines


_KINDS = ("kernel", "launch", "metadata")


def _correlations(document: dict[str, object], *categories: str) -> set[int]:
    return {e["args"]["correlation"] for e in brute_force.complete(document, *categories)}

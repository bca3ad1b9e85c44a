"""Recordings of real devices: owners sum to the allocator's total at every event, and the peak is its highest."""

import pytest

from lostflops.account.memory.read import memories
from lostflops.ingest import ingest
from lostflops.store.run import Run
from shared_data import TRACES, needs_traces

WITH_TOTALS = {
    "facebookresearch__HolisticTraceAnalysis/df_index_resolver__df_index_resolver.json.gz": 6_629_508_096,
    "AMD-AGI__TraceLens/h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": 2_088_508_416,
    "AMD-AGI__TraceLens/mi300_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": 2_219_047_936,
    "AMD-AGI__TraceLens/h100_gaunernst_bert-small-uncased__1016001.json.gz": 101_305_344,
    "AMD-AGI__TraceLens/mi300_gaunernst_bert-small-uncased__1016001.json.gz": 146_394_112,
    "AMD-AGI__TraceLens/perf_model_normalization_normalization_layer_test.json.gz": 8_154_624,
}
SAMPLES = "pytorch__kineto/tb_plugin__samples__resnet50_num_workers_"


QUICK = ("facebookresearch", "AMD-AGI__TraceLens/mi300_gaunernst", "AMD-AGI__TraceLens/perf_model")


@needs_traces
@pytest.mark.parametrize(
    "trace", [pytest.param(one, marks=() if one.startswith(QUICK) else pytest.mark.slow) for one in WITH_TOTALS]
)
@pytest.mark.few(1)
def test_the_peak_is_the_highest_of_the_events_own_totals(trace, tmp_path):
    ingest([TRACES / trace], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        told = run.sql("select max(allocated) from memory where device_type <> 0").fetchall()[0][0]
        found = {memory.device.partition(":")[0]: memory for memory in memories(run)}
    for memory in found.values():
        memory.self_check()
    assert found["cuda"].peak_bytes == told == WITH_TOTALS[trace]
    assert not found["cuda"].notes
    assert (found["cuda"].by_owner() >= 0).all()


@needs_traces
@pytest.mark.slow
@pytest.mark.parametrize("name", ["0__worker0.1623143566756", "4__worker0.1623213129365"])
def test_without_addresses_it_closes_and_names_nobody(name, tmp_path):
    ingest([TRACES / f"{SAMPLES}{name}.pt.trace.json.gz"], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = list(memories(run))
    for memory in found:
        memory.self_check()
        assert not memory.by_owner()[:, :-1].any()
        assert "owners are unknown" in memory.notes[0]

"""Kernels that communicate, by their names: libraries write collectives of their own, above all for experts."""

import gzip
import json
from decimal import Decimal

import pytest

from lostflops.account.ledger.answers import total_of
from lostflops.account.ledger.scope import scope
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.diagnose import diagnosis
from lostflops.ingest import ingest
from lostflops.ingest.common.comm_names import is_comm_kernel, op_of_kernel
from lostflops.ingest.common.ops import canonical_op
from lostflops.ingest.timeline.collectives import build_collectives, name_exchange
from lostflops.ingest.timeline.recording import CommRow
from lostflops.store.run import Run
from shared_data import TRACES, needs_traces

EXPERTS = [
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)",
    "void deep_ep::internode_ll::combine<true, 7168, 11, 2>(void*, void*)",
    "void primus_turbo::deep_ep::internode::notify_dispatch<false, 2>(int const*)",
    "void dpsk::ep::internode::cached_notify<false>(int, int)",
    "void hybrid_ep::dispatch_kernel<hybrid_ep::warp_group<1, 0> >(hybrid_ep::param)",
    "EpDispatchIntraNodeKernel_fp8_fnuz",
    "EpCombineIntraNodeKernel_bf16_nop2p",
    "void tensorrt_llm::kernels::mnnvl_throughput::moeA2ADispatchKernel<16, 8>(int)",
    "all_to_all_intra_ll_kernel",
]
OTHERS = [
    "void flash_fwd_mla_combine_kernel<cutlass::bfloat16_t>(int)",
    "void at::native::vectorized_gather_kernel<16, long>(char*)",
    "void flash::flash_fwd_splitkv_combine_kernel<float>(int)",
    "fused_moe_kernel",
    "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<int>(int)",
    "void thd_out_correction_kernel<__nv_bfloat16, 0, 16, true>(float*)",
    "void at::native::sync_stream_kernel<int>(int)",
    "void moe::dev::routing::routingDispatch<int>(int)",
]


@pytest.mark.parametrize("name", EXPERTS)
def test_libraries_of_experts_exchange_tokens(name: str) -> None:
    assert (is_comm_kernel(name), op_of_kernel(name)) == (True, "all_to_all")


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)2>(int, int)", None),
        ("void alltoall_on_stream_kernel<float>(int, float*, float const*, unsigned long)", "all_to_all"),
        ("void fcollect_on_stream_kernel<__half>(int, __half*, __half const*, unsigned long, int)", "all_gather"),
        ("void rdxn_on_stream_kernel<float, (rdxn_ops)4>(int, float*, float const*, unsigned long)", "all_reduce"),
        ("void reducescatter_on_stream_kernel<float, (rdxn_ops)4>(int, float*)", "reduce_scatter"),
        ("c10d::nvshmem_extension::allToAllV(void*, void*, long*, unsigned long, int)", "all_to_all"),
        ("c10d::nvshmem_extension::allToAllV_2d(void*, void*, long*, long*)", "all_to_all"),
        ("void c10d::nvshmem_extension::exchangeSplitAndOffset_2d<false>(long*, long*, int)", "all_to_all"),
        ("c10d::nvshmem_extension::exchangeSplitAndOffset(long*, int, int)", "all_to_all"),
        ("void userbuffers_fp16_sum_inplace_gpu_rw<4>(int, int, int)", "all_reduce"),
        ("void userbuffers_fp16_sum_inplace_gpu_rw_ag<4>(int, int, int)", "all_gather"),
        ("void userbuffers_fp16_sum_inplace_gpu_mc_ag<4>(int, int, int)", "all_gather"),
        ("void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<4>(int, int, int)", "reduce_scatter"),
        ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", None),
        ("kuserbuffers_pushrecv(int, int, int, int, int*, int*, int, unsigned long)", None),
        ("ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)", "all_reduce"),
        ("ncclSymkDevKernel_ReduceScatter_RailA2A_LsaLD_sum_f32(ncclSymkDevWorkArgs4K)", "reduce_scatter"),
        ("ncclSymkDevKernel_AllGather_RailRing_LsaSTMC(ncclSymkDevWorkArgs4K)", "all_gather"),
    ],
)
def test_libraries_name_their_collectives(name: str, op: str | None) -> None:
    assert is_comm_kernel(name)
    assert (canonical_op(name) or op_of_kernel(name)) == op


@pytest.mark.parametrize("name", OTHERS)
def test_words_of_experts_alone_are_no_communication(name: str) -> None:
    assert not is_comm_kernel(name)


def exchange_of(groups: list[dict[str, object]], world: int) -> list[tuple[str | None, int | None]]:
    """Group and size of a dispatch inside a host of 8 ranks, and of a kernel before it whose name has no number."""
    names = ["void deep_ep::intranode::cached_notify_combine(int)", EXPERTS[0]]
    rows = [
        CommRow(
            row=number,
            on_device=True,
            name=name,
            lane=1,
            start=number,
            stop=number + 1,
            correlation=number,
            metadata=None,
            seq=None,
        )
        for number, name in enumerate(names)
    ]
    collectives, _, _ = build_collectives(rows, [], {}, {})
    name_exchange(collectives, groups, world)
    return [(one.group_id, one.group_size) for one in collectives]


def listed(name: str, size: int, description: str | None = None) -> dict[str, object]:
    return {"group_id": f"{name}@0-{size - 1}", "size": size, "description": description}


@pytest.mark.parametrize(
    ("groups", "world", "expected"),
    [
        pytest.param([], 8, "ep@0-7", id="all ranks"),
        pytest.param([listed("3", 8), listed("0", 16)], 16, "3@0-7", id="the only group of this size"),
        pytest.param([listed("3", 8, "tp"), listed("5", 8, "mesh_ep")], 8, "5@0-7", id="the one for experts"),
        pytest.param(
            [listed("3", 8, "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP"), listed("5", 8, "EXPERT_DATA_PARALLEL_GROUP")],
            16,
            "3@0-7",
            id="experts that share tensors",
        ),
        pytest.param([listed("3", 8), listed("5", 8)], 8, None, id="one of two"),
        pytest.param([listed("3", 8, "tp"), listed("5", 4, "mesh_ep")], 8, None, id="not one with another purpose"),
        pytest.param([], 16, None, id="some ranks, nobody knows which"),
    ],
)
def test_kernels_compiled_for_a_number_of_ranks_tell_their_group(groups, world, expected) -> None:
    assert exchange_of(groups, world) == [(expected, 8)] * 2


def sweep(spans: list[tuple[int, int, bool]]) -> tuple[int, int]:
    """Return the time in which an exchange runs, and the part in which nothing else does: one pass over all ends."""
    ends = [(at, change, is_exchange) for first, last, is_exchange in spans for at, change in ((first, 1), (last, -1))]
    running = {True: 0, False: 0}
    total = exposed = before = 0
    for at, change, is_exchange in sorted(ends):
        total += (at - before) * (running[True] > 0)
        exposed += (at - before) * (running[True] > 0 and not running[False])
        running[is_exchange] += change
        before = at
    return total, exposed


def test_the_sweep_counts_each_ns_once() -> None:
    assert sweep([(0, 10, True), (4, 12, True), (8, 20, False), (30, 31, True)]) == (13, 9)


@needs_traces
def test_deepseek_v3_hides_its_exchange_as_the_intervals_say(tmp_path) -> None:
    """The oracle shares no code with the package, and knows only how DeepSeek names its kernels."""
    trace = TRACES / "deepseek-ai__profile-data/train.json.gz"
    events = json.loads(gzip.decompress(trace.read_bytes()), parse_float=Decimal)["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    spans = [(1000 * Decimal(event["ts"]), 1000 * Decimal(event["dur"]), event["name"]) for event in kernels]
    total, exposed = sweep([(int(at), int(at + dur), "dpsk::ep::" in name) for at, dur, name in spans])
    ingest([trace], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = total_of(run, scope(run, None))
        checked = {one.cause: one.why for one in diagnosis(Case(run)).checked}
        assert run.rows("select distinct op, group_id, group_size from collectives") == [("all_to_all", "ep@0-63", 64)]
    assert found.comm == total == 113_440_000
    lines = sum(spent for line, spent in found.lines.items() if line.startswith("comm."))
    assert lines == found.comm - found.hidden == exposed == 4_190_000
    assert "record no sizes" in checked["expert_imbalance"]

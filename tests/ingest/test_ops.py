import pytest

from lostflops.ingest.common.ops import canonical_op, dtype_bytes
from lostflops.store.tables import COLLECTIVES

NAMES = {
    "all_reduce": "allreduce allreduce_coalesced allreduce_sparse nccl:all_reduce gloo:all_reduce "
    "gloo:sparse_all_reduce c10d::allreduce_ c10d::allreduce_coalesced_ _c10d_functional::all_reduce "
    "_c10d_functional::all_reduce_ "
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem) ncclDevKernel_AllReduce_Sum_bf16_TREE_LL "
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl) ncclSymDevKernel_AllReduce_AGxLL_R_sum_bf16 _ALLREDUCE_SPARSE "
    "nccl:allreduce_coalesced",
    "all_gather": "all_gather allgather _allgather_base nccl:_all_gather_base nccl:all_gather_into_tensor_coalesced "
    "allgather_into_tensor_coalesced c10d::_allgather_base_ _c10d_functional::all_gather_into_tensor "
    "ncclDevKernel_AllGather_RING_LL gloo:all_gather nccl:ALLGATHER_coalesced ncclx:all_gather_v",
    "reduce_scatter": "reduce_scatter _reduce_scatter_base reduce_scatter_tensor_coalesced nccl:_reduce_scatter_base "
    "c10d::_reduce_scatter_base_ ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL nccl:REDUCE_SCATTER_coalesced "
    "_c10d_functional::reduce_scatter_tensor",
    "all_to_all": "all_to_all all_to_allv nccl:all_to_all c10d::alltoall_base_ c10d::alltoall_ gloo:all_to_all "
    "_c10d_functional::all_to_all_single c10d_functional::all_to_all_single ALLTOALL_BASE",
    "broadcast": "broadcast _broadcast_oop nccl:_broadcast_oop c10d::broadcast_ gloo:broadcast "
    "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclWorkElem)",
    "reduce": "reduce _reduce_oop nccl:reduce c10d::reduce_ ncclDevKernel_Reduce_Sum_f32_RING_LL",
    "gather": "gather nccl:gather c10d::gather_ gloo:gather",
    "scatter": "scatter nccl:scatter c10d::scatter_ gloo:scatter",
    "send": "send c10d::send gloo:send nccl:send",
    "recv": "recv c10d::recv_ c10d::recv_any_source_ gloo:recvAnySource nccl:recv RECVANYSOURCE",
    "send_recv": "ncclDevKernel_SendRecv ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)",
    "barrier": "barrier c10d::barrier gloo:barrier nccl:all_reduce_barrier",
}


@pytest.mark.parametrize(("recorded", "op"), [(name, op) for op, names in NAMES.items() for name in names.split()])
def test_every_spelling_has_one_name(recorded, op):
    assert canonical_op(recorded) == op


def test_names_with_peers():
    assert canonical_op("nccl:send 0->1") == "send"
    assert canonical_op("nccl:recv 3<-0") == "recv"


@pytest.mark.parametrize(
    "recorded",
    [
        *("", " ", "wait", "init", "nccl:", "nccl:coalesced", "nccl:split", "c10d_functional::wait_tensor"),
        *("ncclDevKernel_Generic", "ncclDevKernel_Generic_4(ncclDevKernelArgs)", "void gemm<float>"),
        *("aten::scatter_", "aten::gather"),
    ],
)
def test_what_is_no_collective_or_does_not_say_is_none(recorded):
    assert canonical_op(recorded) is None


def test_the_documented_ops_are_among_the_names():
    documented = next(column.doc for column in COLLECTIVES.columns if column.name == "op")
    assert {name.strip("` ") for name in documented.replace(", ...", "").split(",")} <= NAMES.keys()


SIZES = {
    1: ["Byte", "Char", "Bool", "bool", "unsigned char", "signed char", "Float8_e4m3fn", "c10::Float8_e5m2", "QInt8"],
    2: ["Half", "BFloat16", "c10::Half", "c10::BFloat16", "Short", "short unsigned int", "UInt16", "bfloat16"],
    4: ["Float", "float", "Int", "int", "unsigned int", "UInt32", "QInt32", "ComplexHalf"],
    8: ["Double", "double", "Long", "long", "long int", "long unsigned int", "ComplexFloat", "c10::complex<float>"],
    16: ["ComplexDouble", "c10::complex<double>"],
}


@pytest.mark.parametrize(("dtype", "size"), [(dtype, size) for size, dtypes in SIZES.items() for dtype in dtypes])
def test_sizes_of_elements(dtype, size):
    assert dtype_bytes(dtype) == size


@pytest.mark.parametrize("dtype", ["", "Scalar", "TensorList", "ScalarList", "GenericList", "Undefined", "UInt4"])
def test_names_that_are_not_of_elements_have_no_size(dtype):
    assert dtype_bytes(dtype) is None


def test_sizes_agree_with_torch():
    torch = pytest.importorskip("torch")
    for name in dir(torch):
        dtype = getattr(torch, name)
        if isinstance(dtype, torch.dtype) and dtype_bytes(str(dtype)) is not None:
            assert dtype_bytes(str(dtype)) == dtype.itemsize, name

"""One name for each collective, from any source, and the size of an element by the name of its type.

    >>> canonical_op("_reduce_scatter_base"), canonical_op("nccl:send 0->1")
    ('reduce_scatter', 'send')
    >>> canonical_op("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    'all_gather'
    >>> dtype_bytes("c10::BFloat16"), dtype_bytes("Long")
    (2, 8)

Names come from PyTorch, torch/csrc/distributed/c10d: ProcessGroupNCCL.cpp (`RECORD_PARAM_COMMS`, profiling titles),
ProcessGroupGloo.cpp (`gloo:*`), Ops.cpp (`c10d::*`), Functional.cpp (`_c10d_functional::*`), Work.hpp (`OpType`), and
torch/distributed/flight_recorder/components/types.py; kernels from NCCL, src/device/generate.py and, before 2.19,
src/collectives/device.
"""

import re

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "all_reduce": (
        "all_reduce",
        "allreduce",
        "all_reduce_coalesced",
        "allreduce_coalesced",
        "allreduce_sparse",
        "all_reduce_sparse",
        "sparse_all_reduce",
    ),
    "all_gather": (
        "all_gather",
        "allgather",
        "all_gather_base",
        "allgather_base",
        "all_gather_v",
        "all_gatherv",
        "allgatherv",
        "allgather_coalesced",
        "all_gather_coalesced",
        "all_gather_single",
        "all_gather_into_tensor",
        "all_gather_into_tensor_coalesced",
        "allgather_into_tensor_coalesced",
        "all_gather_into_tensor_out",
    ),
    "reduce_scatter": (
        "reduce_scatter",
        "reducescatter",
        "reduce_scatter_base",
        "reduce_scatter_v",
        "reduce_scatter_single",
        "reduce_scatter_coalesced",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
        "reduce_scatter_tensor_out",
    ),
    "all_to_all": (
        "all_to_all",
        "alltoall",
        "all_to_allv",
        "alltoallv",
        "alltoall_base",
        "all_to_all_single",
        "all_to_all_v_single",
        "alltoallpivot",
        "alltoallvpivot",
    ),
    "broadcast": ("broadcast", "broadcast_oop", "broadcast_inplace", "broadcast_coalesced"),
    "reduce": ("reduce", "reduce_oop"),
    "gather": ("gather",),
    "scatter": ("scatter",),
    "send": ("send",),
    "recv": ("recv", "recv_any_source", "recvanysource"),
    "send_recv": ("sendrecv", "send_recv"),
    "barrier": ("barrier", "all_reduce_barrier", "monitored_barrier"),
}
_BY_SPELLING = {spelling: op for op, spellings in _SPELLINGS.items() for spelling in spellings}

_PREFIX = re.compile(r"_?c10d(?:_functional)?(?:_autograd)?::|[a-z0-9]+:(?!:)")
_KERNEL = re.compile(
    r"[nr]ccl(?:Symk?)?(?:Dev)?(?:Kernel|Kern)_(?P<new>[A-Za-z0-9]+)"
    r"|[nr]ccl(?P<old>AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv)\w*Kernel"
)


def canonical_op(recorded: str) -> str | None:
    """Return the one name of a collective.

    None if it moves no data (`wait`, `init`), has several ops (`coalesced`) or does not name its op (`Generic`).

    >>> canonical_op("wait"), canonical_op("ncclDevKernel_Generic"), canonical_op("aten::scatter_")
    (None, None, None)
    """
    kernel = _KERNEL.search(recorded)
    if kernel:
        return _BY_SPELLING.get((kernel["new"] or kernel["old"]).lower())
    words = _PREFIX.sub("", recorded, count=1).split()
    return _BY_SPELLING.get(words[0].lower().strip("_")) if words else None


# Names of c10::ScalarType and their C++ types: torch/headeronly/core/ScalarType.h. Sub-byte integers
# (UInt1..UInt7, Int1..Int7) have no storage of their own and are left out.
_BYTES_BY_DTYPE: dict[str, int] = {
    spelling: size
    for size, spellings in {
        1: "byte char bool qint8 quint8 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 int8 uint8 int8_t uint8_t "
        "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2",
        2: "short half bfloat16 float16 bits16 int16 uint16 int16_t uint16_t",
        4: "int float float32 qint32 int32 uint32 int32_t uint32_t complexhalf complex32",
        8: "long double float64 int64 uint64 int64_t uint64_t complexfloat complex64",
        16: "complexdouble complex128",
    }.items()
    for spelling in spellings.split()
} | {
    "signed char": 1,
    "unsigned char": 1,
    "short int": 2,
    "unsigned short": 2,
    "short unsigned int": 2,
    "unsigned int": 4,
    "complex<half>": 4,
    "complex<c10::half>": 4,
    "long int": 8,
    "long long": 8,
    "long long int": 8,
    "unsigned long": 8,
    "long unsigned int": 8,
    "long long unsigned int": 8,
    "unsigned long long": 8,
    "complex<float>": 8,
    "complex<double>": 16,
}
_NAMESPACE = re.compile(r"^(?:c10::|at::|torch\.)")


def dtype_bytes(recorded: str) -> int | None:
    """Return the bytes of one element; None for names that are not element types (`Scalar`, `TensorList`, ``).

    Kineto writes C++ types under `Input type` and names of `ScalarType` under `dtype`; both spell `int` alike, in lower
    and upper case. `long` is 8 bytes, as on Linux.
    """
    return _BYTES_BY_DTYPE.get(_NAMESPACE.sub("", recorded.strip()).lower())

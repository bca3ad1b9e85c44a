"""Communication kernels, recognised by name; used only if a trace has no metadata.

Names of custom collectives do not contain nccl; each pattern below names where it was seen.
"""

import re
from typing import Final

# Exchange of tokens between experts, with the kernels that prepare it.
_EXPERTS: Final = (
    r"\b(?:deep_ep|dpsk::ep|hybrid_ep)::"  # DeepEP, as published and inside DeepSeek; HybridEP
    r"|\bEp(?:Dispatch|Combine)\w*Kernel"  # MORI on AMD devices
    r"|\bmoeA2A(?:Dispatch|Combine|Prepare\w*|Sanitize\w*)Kernel"  # TensorRT-LLM
    r"|\ball_to_all_\w*kernel"  # dlslime, symmetric memory
)
_PATTERNS: Final = (
    r"nccl",  # NCCL, and RCCL, which keeps the names
    r"rccl",
    r"msccl",  # MSCCL and MSCCL++
    r"multimem_(?:all_reduce|one_shot|all_gather|reduce)",  # PyTorch symmetric memory
    r"(?:one|two)_shot_all_reduce_kernel",  # PyTorch symmetric memory
    r"all_reduce_(?:one|two)_shot_\w*kernel",  # SGLang
    r"cross_device_reduce",  # vLLM and SGLang custom all-reduce
    r"allreduce_fusion_kernel",  # FlashInfer, TensorRT-LLM
    r"(?:one|two)ShotAllReduceKernel",  # TensorRT-LLM
    r"nvshmem\w*_(?:barrier|put|get|alltoall|reduce)",
    r"\b(?:barrier|sync|alltoall|fcollect|broadcast|rdxn|reducescatter)\w*_on_stream_kernel",  # NVSHMEM's own
    r"\b(?:allToAllV|exchangeSplitAndOffset)(?![a-z])",  # PyTorch symmetric memory with NVSHMEM or rocSHMEM
    r"\bk?userbuffers_(?:fp16_sum|push(?:send|recv))",  # Transformer Engine: overlapped tensor parallelism
    _EXPERTS,
)
_OPS: Final = {
    "reduce_scatter": re.compile(r"reduce_?scatter|userbuffers_fp16_sum\w*_rs(?:_|\b)", re.IGNORECASE),
    "all_gather": re.compile(r"all_?gather|fcollect|userbuffers_fp16_sum\w*_ag(?:_|\b)", re.IGNORECASE),
    "all_reduce": re.compile(r"all_?reduce|cross_device_reduce|\brdxn|userbuffers_fp16_sum", re.IGNORECASE),
    "all_to_all": re.compile(rf"all_?to_?all|exchangeSplitAndOffset|{_EXPERTS}", re.IGNORECASE),
}
# DeepEP compiles its kernels for a number of ranks: hosts of eight between hosts, ranks inside one (csrc/kernels).
_BETWEEN_HOSTS: Final = re.compile(r"ep::internode::(?:notify_dispatch|dispatch|combine)<(?:true|false), ?(\d{1,4})\b")
_INSIDE_HOST: Final = re.compile(r"ep::intranode::(?:(?:notify_)?dispatch<|combine<[\w:]+, ?)(\d{1,4})\b")
_RANKS_OF_HOST: Final = 8
_LONGEST_NAME: Final = 4_096
"""Templates make names of several thousand characters; `nccl` appears early in a name."""
_COMM_KERNEL: Final = re.compile("|".join(_PATTERNS), re.IGNORECASE)


def is_comm_kernel(name: str) -> bool:
    """Return whether a kernel communicates, by its name.

    >>> is_comm_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    True
    >>> is_comm_kernel("void at::native::reduce_kernel<512, 1, ...>")
    False
    """
    return _COMM_KERNEL.search(name[:_LONGEST_NAME]) is not None


def op_of_kernel(name: str) -> str | None:
    """Return the operation in the name of a communication kernel, or None; `ops` reads NCCL's own names.

    >>> op_of_kernel("void multimem_all_reduce_kernel<c10::BFloat16, 16>"), op_of_kernel("ncclDevKernel_Generic")
    ('all_reduce', None)
    >>> op_of_kernel("void dpsk::ep::internode::combine<false, 8, __nv_bfloat16>(int4*)")
    'all_to_all'
    """
    return next((op for op, pattern in _OPS.items() if pattern.search(name)), None)


def exchanges_tokens(name: str) -> bool:
    """Return whether a kernel sends tokens to experts or back, or prepares that."""
    return re.search(_EXPERTS, name[:_LONGEST_NAME], re.IGNORECASE) is not None


def ranks_of_exchange(name: str) -> int | None:
    """Return how many ranks exchange tokens, if the name of the kernel says so.

    >>> ranks_of_exchange("void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8>(int4*)")
    64
    >>> ranks_of_exchange("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(int4*)")
    8
    """
    if found := _BETWEEN_HOSTS.search(name[:_LONGEST_NAME]):
        return _RANKS_OF_HOST * int(found[1])
    found = _INSIDE_HOST.search(name[:_LONGEST_NAME])
    return int(found[1]) if found else None


def is_comm_host_event(name: str) -> bool:
    """Return whether the event is a collective that a host thread carries out itself."""
    return name.startswith("gloo:")

"""Names of ops, kernels and functions, as PyTorch, NCCL and cuBLAS write them."""

DATALOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
ALL_REDUCE_KERNEL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV_KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
MATMUL_KERNEL = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT"
ELEMENTWISE_KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16> >(int, std::array)"
)
FOREACH_KERNELS = tuple(
    f"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<{functor}<float> >()"
    for functor in ("BinaryOpScalarFunctor_", "TernaryOpScalarFunctor_", "PointwiseOpScalarFunctor_", "UnaryOpFunctor_")
)
READ_BACK = "aten::_local_scalar_dense"
FUSED_UPDATE = "aten::_fused_adamw_"
OPTIMIZER_KERNEL = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>()"

COLLECTIVES = {
    "all_gather": ("c10d::_allgather_base_", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "reduce_scatter": (
        "c10d::_reduce_scatter_base_",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ),
}

_LOOP = (
    "void at::native::vectorized_elementwise_kernel<4, {}, std::array<char*, {}ul> >(int, {}, std::array<char*, {}ul>)"
)


def _loop_kernel(functor: str, arrays: int) -> str:
    return _LOOP.format(functor, arrays, functor, arrays)


LOOP_UPDATE = (
    ("aten::mul_", _loop_kernel("at::native::AUnaryFunctor<float, float, float, at::native::MulFunctor<float> >", 2)),
    ("aten::lerp_", _loop_kernel("at::native::(anonymous namespace)::lerp_scalar_kernel", 3)),
    ("aten::mul_", _loop_kernel("at::native::AUnaryFunctor<float, float, float, at::native::MulFunctor<float> >", 2)),
    ("aten::addcmul_", _loop_kernel("at::native::addcmul_cuda_scalar_tensor2_kernel_impl<float>", 4)),
    ("aten::sqrt", _loop_kernel("at::native::sqrt_kernel_cuda(at::TensorIteratorBase&)", 2)),
    ("aten::div_", _loop_kernel("at::native::BUnaryFunctor<float, float, float, at::native::MulFunctor<float> >", 2)),
    ("aten::add_", _loop_kernel("at::native::CUDAFunctorOnSelf_add<float>", 2)),
    ("aten::addcdiv_", _loop_kernel("at::native::addcdiv_cuda_kernel(at::TensorIteratorBase&, c10::Scalar)", 4)),
)
"""Ops and kernels that AdamW calls for each tensor, one tensor after the other."""

COMPILING = ("dynamo", "entire_frame_compile", "_compile.compile_inner (dynamo_timed)", "backend_compile")
TRAIN, TRAIN_STEP = "train.py(142): <module>", "train.py(71): train_step"
LOG_LOSS, ITEM = "train.py(88): log_loss", "<built-in method item of Tensor object at 0x7f6e56b5e120>"
FORMAT_METRICS, DUMPS = "train.py(96): format_metrics", "json/__init__.py(183): dumps"

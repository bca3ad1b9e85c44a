"""Layers of a transformer as an H100 runs them: durations follow from FLOPs, bytes and what such kernels reach."""

from lostflops.testing import Kernel

TOKENS, HIDDEN = 8192, 2048
TFLOPS, HBM_GBS = 600, 2_600

SGEMM = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4"
    "_execute_kernel__51_cublas"
)
FP32_TFLOPS = 48
UNALIGNED = (
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x1_tn_align1>"
    "(cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x1_tn_align1::Params)"
)
UNALIGNED_TFLOPS = 150


def matmul(m: int, k: int, n: int) -> Kernel:
    return Kernel(_matmul_ns(m, k, n, TFLOPS), (m, k, n))


def fp32_matmul(m: int, k: int, n: int) -> Kernel:
    return Kernel(_matmul_ns(m, k, n, FP32_TFLOPS), (m, k, n), name=SGEMM, dtype="float32")


def unaligned_matmul(m: int, k: int, n: int) -> Kernel:
    return Kernel(_matmul_ns(m, k, n, UNALIGNED_TFLOPS), (m, k, n), name=UNALIGNED)


def elementwise(rows: int, columns: int, op: str = "mul") -> Kernel:
    """Two tensors read and one written, in bfloat16."""
    return Kernel(max(2_000, rows * columns * 6 // HBM_GBS), op=op, shape=(rows, columns))


def layer(tokens: int = TOKENS, hidden: int = HIDDEN) -> tuple[Kernel, ...]:
    return (
        elementwise(tokens, hidden),
        matmul(tokens, hidden, 3 * hidden),
        matmul(tokens, hidden, hidden),
        matmul(tokens, hidden, 4 * hidden),
        elementwise(tokens, 4 * hidden),
        matmul(tokens, 4 * hidden, hidden),
    )


def gradient_bytes(hidden: int = HIDDEN) -> int:
    """Of one layer, in bfloat16."""
    return 2 * 12 * hidden * hidden


def _matmul_ns(m: int, k: int, n: int, tflops: int) -> int:
    return max(2_000, 2 * m * k * n // (tflops * 1_000))

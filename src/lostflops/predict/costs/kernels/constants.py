"""Constants of the kernel model, and how far it was off on devices that it had not seen.

`python benchmarks/kernel_model.py fit` fits `FITTED` to 341,000 kernels that the authors of NeuSight measured in fp32
(Lee et al., ASPLOS 2025; MIT licence). Nothing in it is specific to one device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Constants:
    """What is fitted."""

    energy_pj: float
    """Energy of an fp32 operation of a matrix product at 7 nm."""
    energy_slope: float
    """Energy grows with this power of the process in nm."""
    narrow_share: float
    """Part of the vector peak that products reach at best on units with 64 cores."""
    wide_share: float
    """The same with 128 cores, which share the shared memory of a unit."""
    old_share: float
    """The same before 12 nm (Pascal)."""
    matrix_share: float
    """Part of the peak of AMD's matrix cores that products reach at best."""
    matrix_energy: float
    """Energy of an fp32 operation of AMD's matrix cores beside that of a vector unit."""
    tile_edge: float
    """A square tile of edge e reaches 1 / (1 + 2 x this / e) of that."""
    ramp: float
    """Steps along the inner dimension that a tile loses at its start and end."""
    product_memory: float
    """Part of the memory bandwidth that a product reaches."""
    overlap: float
    """Power with which computing and moving add up: 1 is one after the other, many is at the same time."""
    stream_memory: float
    """Part of the memory bandwidth that elementwise kernels and copies reach."""
    row_memory: float
    """The same for kernels that normalise rows."""
    row_reuse: float
    """Rows per unit that have to fit into the cache, so that reading a row again costs nothing."""
    convolution_share: float
    """Rate of a convolution beside that of the same product; above 1 because of Winograd's algorithm."""
    launch_ns: float
    """What the measurements have on top of each kernel: not part of a prediction."""


FITTED: Final = Constants(
    energy_pj=8.524,
    energy_slope=1.001,
    narrow_share=0.9502,
    wide_share=0.8376,
    old_share=0.8417,
    matrix_share=0.6911,
    matrix_energy=0.7042,
    tile_edge=5.746,
    ramp=35.37,
    product_memory=0.6976,
    overlap=2.986,
    stream_memory=0.8476,
    row_memory=0.7213,
    row_reuse=13.6,
    convolution_share=1.342,
    launch_ns=25_410.0,
)

CACHE_WIDTH: Final = 20.0
"""Bytes that each unit gets from the shared cache in a clock: about half of what NVIDIA's white papers state for V100
and A100 (26 and 47)."""
FLOOR_NS: Final = 2_000.0
"""Shortest time of a kernel, however small its work."""
TENSOR_ENERGY: Final = 0.12
"""Energy of an operation of tensor cores in 16 bits beside that of a vector unit: H100 reaches 794 of 989 TFLOPS at
its power limit of 700 W, where the vector units of its process need about 6 pJ."""
ACHIEVABLE: Final[Mapping[str, Mapping[str, float]]] = {
    "A100-SXM4-80GB": {"bf16": 271},
    "H100-SXM5": {"bf16": 794, "fp8": 1403},
    "H200-SXM": {"bf16": 794, "fp8": 1453},
    "B200": {"bf16": 1745, "fp8": 3432},
    "GB200": {"bf16": 1822, "fp8": 3616},
    "MI300X": {"bf16": 668},
    "MI325X": {"bf16": 785},
}
"""Best TFLOPS over shapes of matrix products: maximum achievable matmul FLOPS of the ML engineering open book."""
IN_TRAINING: Final[Mapping[str, Mapping[str, tuple[float, float]]]] = {
    "H100-SXM5": {"bf16": (0.6, 0.93), "fp8": (0.71, 0.9)},
    "H200-SXM": {"bf16": (0.6, 0.93), "fp8": (0.71, 0.9)},
    "B200": {"bf16": (0.5, 0.8), "fp8": (0.57, 0.72)},
    "GB200": {"bf16": (0.5, 0.8), "fp8": (0.57, 0.72)},
}
"""Least and most part of that rate that products reach in training, because their shapes are given and clocks drop
under load. Those of fp8 were fitted to six systems of MLPerf Training with 256 and 512 GPUs
(docs/explanation/estimate.md). The low end of bf16 on Hopper is from published runs of Llama 3.1 8B on H100
(torchtitan, December 2024); bf16 on Blackwell has the middle of fp8 and a wider range."""
ELSEWHERE_IN_TRAINING: Final = (0.6, 1.0)
"""The same on other devices: an assumption."""
TENSOR_RAMP: Final = 128.0
"""`Constants.ramp` on tensor cores, which finish a step sooner: an assumption."""
TENSOR_SHARE: Final[Mapping[str, float]] = {"NVIDIA": 0.82, "AMD": 0.6}
"""Part of the tensor peak that products reach on devices that `ACHIEVABLE` does not list: the mean of the others."""

"""The kernel model against what data sheets and public measurements say, and against its own bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.account.facts.devices import DEVICES, Device
from lostflops.core.errors import NotApplicable
from lostflops.predict.costs.kernels.constants import ACHIEVABLE, FLOOR_NS
from lostflops.predict.costs.kernels.model import BYTES, KernelWork, kernel_ns, kernel_times, sustained_rate

BY_NAME = {device.name: device for device in DEVICES}
KNOWN = [device for device in DEVICES if device.chip and device.memory_gbs]


def product(m: int, n: int, k: int, dtype: str = "bf16", batch: int = 1) -> KernelWork:
    moved = BYTES[dtype] * batch * (m * k + k * n + m * n)
    return KernelWork("matmul", dtype, 2.0 * batch * m * n * k, moved, batch=batch, m=m, n=n, k=k)


def stream(size: float) -> KernelWork:
    return KernelWork("elementwise", "bf16", 0, size)


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, rates in ACHIEVABLE.items() for dtype in rates])
def test_large_products_reach_what_was_published(name: str, dtype: str) -> None:
    rate = (
        product(16384, 16384, 16384, dtype).flops / kernel_ns(BY_NAME[name], product(16384, 16384, 16384, dtype)) / 1e3
    )
    assert 0.85 * ACHIEVABLE[name][dtype] < rate <= ACHIEVABLE[name][dtype]


@pytest.mark.parametrize(
    ("name", "measured"),
    [("B300", "B200"), ("GB300", "GB200"), ("H800-SXM", "H100-SXM5"), ("A100-SXM4-40GB", "A100-SXM4-80GB")],
)
def test_the_same_chip_with_as_much_power_sustains_the_same_rate(name: str, measured: str) -> None:
    for dtype in ACHIEVABLE[measured]:
        assert sustained_rate(BY_NAME[name], dtype) == sustained_rate(BY_NAME[measured], dtype)


def test_the_same_chip_with_less_power_may_be_slower() -> None:
    assert sustained_rate(BY_NAME["A100-PCIe-40GB"], "bf16") < sustained_rate(BY_NAME["A100-SXM4-80GB"], "bf16")


# Measured in public benchmarks of sgemm: TFLOPS of large fp32 products.
@pytest.mark.parametrize(("name", "low", "high"), [("T4", 3.0, 5.0), ("V100-PCIe", 11.5, 14), ("L4", 7.0, 12.0)])
def test_a_power_limit_below_what_the_peak_needs_limits_the_rate(name: str, low: float, high: float) -> None:
    assert low < sustained_rate(BY_NAME[name], "fp32") / 1e3 < high


@given(
    device=st.sampled_from(KNOWN),
    sizes=st.tuples(*[st.integers(1, 20_000)] * 3),
    batch=st.integers(1, 500),
)
def test_no_product_is_faster_than_its_device(device: Device, sizes: tuple[int, int, int], batch: int) -> None:
    dtype = "fp16" if "fp16" in device.peaks else "fp32"
    if dtype not in device.peaks:
        return
    work = product(*sizes, dtype, batch)
    least = max(work.flops / (device.peaks[dtype] * 1e3), (work.bytes - 1) / (device.memory_gbs or 1) / 1.0001)
    assert kernel_ns(device, work) >= least


@given(device=st.sampled_from(KNOWN), size=st.floats(1, 1e12), factor=st.floats(1, 100))
def test_moving_more_takes_longer(device: Device, size: float, factor: float) -> None:
    small, large = kernel_times(device, [stream(size), stream(size * factor)])
    assert FLOOR_NS <= small <= large * (1 + 1e-9)


def test_what_stays_in_the_cache_is_faster_than_memory() -> None:
    card = BY_NAME["L4"]
    inside, outside = (size / (kernel_ns(card, stream(size)) - FLOOR_NS) for size in (10e6, 1e9))
    assert inside > 2 * outside
    assert outside < (card.memory_gbs or 0)


def test_long_rows_are_read_twice_where_the_cache_is_small() -> None:
    def rows(length: int) -> KernelWork:
        return KernelWork("normalisation", "fp32", 0, 4e9, n=length)

    ratio = {name: kernel_ns(BY_NAME[name], rows(4096)) / kernel_ns(BY_NAME[name], rows(512)) for name in ("T4", "L4")}
    assert ratio["T4"] > 1.3
    assert ratio["L4"] < 1.1


def test_times_keep_the_order_of_the_works() -> None:
    works = [product(512, 512, 512), stream(1e8), product(8192, 8192, 8192), KernelWork("attention", "bf16", 1e12, 1e7)]
    together = kernel_times(BY_NAME["H100-SXM5"], works)
    assert np.allclose(together, [kernel_ns(BY_NAME["H100-SXM5"], work) for work in works])


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(NotApplicable, match="no confirmed bf16 peak of V100-SXM2"):
        kernel_ns(BY_NAME["V100-SXM2"], product(64, 64, 64))
    for work in (product(64, 64, 64), stream(1e6)):
        with pytest.raises(NotApplicable, match="data sheet of TPU v5p"):
            kernel_ns(BY_NAME["TPU v5p"], work)

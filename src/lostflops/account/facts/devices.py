"""Peak rates of accelerators, found by the name that a device has in a trace.

Peaks are dense (no structured sparsity), in TFLOPS, as far as a matrix product of that dtype can reach them. A rate on
which two independent public sources do not agree is absent, and so is a device without any certain rate: an unknown
peak makes MFU unknown, a wrong peak makes it wrong. `fp32` is the rate of vector units on NVIDIA and of matrix cores on
AMD.

This module knows nothing about traces, dtypes of kernels or how MFU is computed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Chip:
    """What a data sheet says of a chip beyond peak rates: all that the kernel model knows of a device that was
    not measured."""

    units: int
    """Streaming multiprocessors (NVIDIA) or compute units (AMD)."""
    cores: int
    """fp32 multiply-adds of one unit per clock, by the instructions that reach the device's fp32 peak."""
    cache_mb: float
    """Last cache that all units share: L2, or Infinity Cache where there is one."""
    watts: int
    """Power limit of the board; of its part where a board has several devices."""
    nm: int
    """Process, as its maker names it. A family of processes has one number: 4N and N5 are 5, 12FFN is 12."""

    def clock_ghz(self, fp32_tflops: float) -> float:
        """Return the clock at which all cores together have this peak.

        >>> round(Chip(units=108, cores=64, cache_mb=40, watts=400, nm=7).clock_ghz(19.5), 2)
        1.41
        """
        return fp32_tflops * 1e3 / (2 * self.units * self.cores)


@dataclass(frozen=True, slots=True)
class Device:
    """A device as one rank sees it."""

    name: str
    matches: tuple[str, ...]
    """Names that it reports and that users type, without the words of `_FAMILIES`; its own name is one too."""
    peaks: Mapping[str, float]
    """TFLOPS by dtype: bf16, fp16, fp8, fp32, tf32."""
    memory_gbs: float | None
    scaleup_gbs: float | None
    """Bandwidth to peers in the host or the NVLink domain, per direction; PCIe if there is nothing else."""
    source: str
    """Documents that give its rates."""
    note: str = ""
    """Where sources disagree or a rate needs a condition: which one is taken, and why."""
    chip: Chip | None = None
    """None where sources disagree on it."""

    @property
    def is_amd(self) -> bool:
        return self.name.startswith("MI")


_FAMILIES: Final = frozenset({"amd", "cloud", "geforce", "google", "instinct", "nvidia", "tesla", "tpu"})

_V100 = "NVIDIA V100 datasheet"
_A100 = "NVIDIA A100 datasheet"
_H100 = "NVIDIA H100 datasheet and Hopper architecture whitepaper"
_BLACKWELL = "NVIDIA Blackwell datasheet and ML engineering open book"
_BOOK = "ML engineering open book"
_TPU_BOOK = "How to Scale Your Model (JAX)"

_A100_PEAKS: Final = {"bf16": 312.0, "fp16": 312.0, "fp32": 19.5, "tf32": 156.0}
_HOPPER_SXM_PEAKS: Final = {"bf16": 989.0, "fp16": 989.0, "fp8": 1979.0, "fp32": 67.0, "tf32": 494.7}
_MI300X_PEAKS: Final = {"bf16": 1307.0, "fp16": 1307.0, "fp8": 2615.0, "fp32": 163.4, "tf32": 653.7}

_A100_SXM_CHIP: Final = Chip(108, 64, 40, 400, 7)
_HOPPER_CHIP: Final = Chip(132, 128, 50, 700, 5)

_NO_BF16 = "Volta has no bf16 tensor cores."
_FP32_ACCUMULATE = "fp16 with fp32 accumulation, as PyTorch computes it; accumulating in fp16 is twice as fast."
_GCD = "One die of the two on a module: PyTorch shows each as a device, so a rank has half the module's peak."
_LINKS_DIFFER = "Links are 200 GB/s to the other die of the module and 50 to 100 to those of others."
_TORUS = "Chips are joined in a torus, which the cost model of collectives does not describe: give a calibration."
_PARTITIONS = "The whole module: in a partitioned mode (DPX, CPX) a device has part of this under the same name."

DEVICES: Final[tuple[Device, ...]] = (
    Device(
        name="P4",
        matches=("P4",),
        peaks={"fp32": 5.5},
        memory_gbs=192,
        scaleup_gbs=16,
        source="NVIDIA P4 datasheet",
        note="No tensor cores.",
        chip=Chip(20, 128, 2, 75, 16),
    ),
    Device(
        name="P100-PCIe",
        matches=("P100-PCIE-16GB",),
        peaks={"fp32": 9.3},
        memory_gbs=732,
        scaleup_gbs=16,
        source="NVIDIA P100 datasheet",
        note="No tensor cores.",
        chip=Chip(56, 64, 4, 250, 16),
    ),
    Device(
        name="T4",
        matches=("T4",),
        peaks={"fp16": 65.0, "fp32": 8.1},
        memory_gbs=320,
        scaleup_gbs=16,
        source="NVIDIA T4 datasheet",
        note="Turing has no bf16 tensor cores. Later data sheets say 300 GB/s of memory.",
        chip=Chip(40, 64, 4, 70, 12),
    ),
    Device(
        "V100-SXM2",
        ("V100-SXM2-16GB", "V100-SXM2-32GB"),
        {"fp16": 125.0, "fp32": 15.7},
        900,
        150,
        _V100,
        _NO_BF16,
        chip=Chip(80, 64, 6, 300, 12),
    ),
    Device(
        name="V100-DGXS",
        matches=("V100-DGXS-16GB", "V100-DGXS-32GB"),
        peaks={"fp16": 125.0},
        memory_gbs=900,
        scaleup_gbs=None,
        source=_V100,
        note=f"{_NO_BF16} How the four of a DGX Station are linked is not confirmed.",
        chip=Chip(80, 64, 6, 300, 12),
    ),
    Device(
        "V100-PCIe",
        ("V100-PCIE-16GB", "V100-PCIE-32GB"),
        {"fp16": 112.0, "fp32": 14.0},
        900,
        16,
        _V100,
        _NO_BF16,
        chip=Chip(80, 64, 6, 250, 12),
    ),
    Device(
        name="A10",
        matches=("A10",),
        peaks={"bf16": 125.0, "fp16": 125.0, "fp32": 31.2, "tf32": 62.5},
        memory_gbs=600,
        scaleup_gbs=31,
        source="NVIDIA A10 datasheet",
        chip=Chip(72, 128, 6, 150, 8),
    ),
    Device(
        name="A10G",
        matches=("A10G",),
        peaks={"bf16": 70.0, "fp16": 70.0},
        memory_gbs=600,
        scaleup_gbs=31,
        source="NVIDIA A10G datasheet, for AWS",
        note="Not an A10, whose 125 is often quoted for it; sources differ on fp32 (31.2, 31.5, 35).",
    ),
    Device(
        name="A40",
        matches=("A40",),
        peaks={"bf16": 149.7, "fp16": 149.7, "fp32": 37.4, "tf32": 74.8},
        memory_gbs=696,
        scaleup_gbs=56.25,
        source="NVIDIA A40 datasheet",
        note="The NVLink bridge joins pairs; other peers are reached over PCIe at 31 GB/s.",
        chip=Chip(84, 128, 6, 300, 8),
    ),
    Device("A100-SXM4-80GB", ("A100-SXM4-80GB", "A100-SXM-80GB"), _A100_PEAKS, 2039, 300, _A100, chip=_A100_SXM_CHIP),
    Device("A100-SXM4-40GB", ("A100-SXM4-40GB",), _A100_PEAKS, 1555, 300, _A100, chip=_A100_SXM_CHIP),
    Device(
        name="A100-PG509",
        matches=("A100-PG509-200",),
        peaks=_A100_PEAKS,
        memory_gbs=None,
        scaleup_gbs=300,
        source=_A100,
        note="The name of a board: seen with 40 GB and reported with 80 GB, with different memory bandwidths.",
    ),
    Device(
        name="A100-PCIe-80GB",
        matches=("A100 80GB PCIe", "A100-PCIE-80GB"),
        peaks=_A100_PEAKS,
        memory_gbs=1935,
        scaleup_gbs=None,
        source=_A100,
        note="Links depend on whether NVLink bridges are fitted.",
        chip=Chip(108, 64, 40, 300, 7),
    ),
    Device(
        name="A100-PCIe-40GB",
        matches=("A100-PCIE-40GB",),
        peaks=_A100_PEAKS,
        memory_gbs=1555,
        scaleup_gbs=None,
        source=_A100,
        note="Links depend on whether NVLink bridges are fitted.",
        chip=Chip(108, 64, 40, 250, 7),
    ),
    Device(
        name="L4",
        matches=("L4",),
        peaks={"bf16": 121.0, "fp16": 121.0, "fp8": 242.0, "fp32": 30.3, "tf32": 60.0},
        memory_gbs=300,
        scaleup_gbs=31,
        source="NVIDIA L4 datasheet",
        note="The datasheet prints tensor rates with sparsity: these are half.",
        chip=Chip(58, 128, 48, 72, 5),
    ),
    Device(
        name="L40S",
        matches=("L40S",),
        peaks={"bf16": 362.0, "fp16": 362.0, "fp8": 733.0, "fp32": 91.6, "tf32": 183.0},
        memory_gbs=864,
        scaleup_gbs=31,
        source=f"NVIDIA L40S datasheet and {_BOOK}",
        note="Tables that compute from the boost clock say 366 for bf16; the datasheet's 362 is taken.",
        chip=Chip(142, 128, 96, 350, 5),
    ),
    Device(
        name="RTX 3090",
        matches=("RTX 3090",),
        peaks={"bf16": 71.0, "fp16": 71.0, "fp32": 35.6, "tf32": 35.6},
        memory_gbs=936,
        scaleup_gbs=31,
        source="NVIDIA GA102 architecture whitepaper",
        note=f"{_FP32_ACCUMULATE} The NVLink bridge for pairs is not counted.",
        chip=Chip(82, 128, 6, 350, 8),
    ),
    Device(
        name="RTX 4090",
        matches=("RTX 4090",),
        peaks={"bf16": 165.2, "fp16": 165.2, "fp32": 82.6, "tf32": 82.6},
        memory_gbs=1008,
        scaleup_gbs=31,
        source="NVIDIA Ada architecture whitepaper",
        note=_FP32_ACCUMULATE,
        chip=Chip(128, 128, 72, 450, 5),
    ),
    Device(
        name="H100-SXM5",
        matches=("H100 80GB HBM3", "H100 SXM", "H100 SXM 80GB", "H100 SXM5 80GB"),
        peaks=_HOPPER_SXM_PEAKS,
        memory_gbs=3350,
        scaleup_gbs=450,
        source=_H100,
        chip=_HOPPER_CHIP,
    ),
    Device(
        name="H100-PCIe",
        matches=("H100 PCIe",),
        peaks={"bf16": 756.0, "fp16": 756.0, "fp8": 1513.0, "fp32": 51.0, "tf32": 378.0},
        memory_gbs=2000,
        scaleup_gbs=63,
        source=_H100,
        note="NVLink bridges for pairs are not counted.",
        chip=Chip(114, 128, 50, 350, 5),
    ),
    Device(
        name="H200-SXM",
        matches=("H200", "H200 SXM5", "H200 141GB", "H200 SXM 141GB", "H200 SXM5 141GB", "H200 141GB HBM3e"),
        peaks=_HOPPER_SXM_PEAKS,
        memory_gbs=4800,
        scaleup_gbs=450,
        source=f"NVIDIA H200 datasheet and {_BOOK}",
        chip=_HOPPER_CHIP,
    ),
    Device(
        name="H800-SXM",
        matches=("H800", "H800 SXM5", "H800 80GB", "H800 SXM 80GB", "H800 SXM5 80GB", "H800 80GB HBM3"),
        peaks={"bf16": 989.0, "fp16": 989.0, "fp8": 1979.0},
        memory_gbs=3350,
        scaleup_gbs=200,
        source="NVIDIA H800 datasheet and DeepSeek's analyses of FlashMLA and of DeepSeek-V3 (ISCA 2025)",
        note=(
            "An H100 with NVLink of 400 instead of 900 GB/s, both directions together. Tables with 756 for bf16 mean "
            "the PCIe card, which reports another name. fp32 and tf32 have one source."
        ),
        chip=_HOPPER_CHIP,
    ),
    Device(
        name="H20",
        matches=("H20", "H20 SXM", "H20 SXM5", "H20 96GB", "H20 96GB HBM3"),
        peaks={"bf16": 148.0, "fp16": 148.0, "fp8": 296.0, "fp32": 44.0, "tf32": 74.0},
        memory_gbs=4000,
        scaleup_gbs=450,
        source="NVIDIA H20 datasheet and SemiAnalysis on NVIDIA's chips for China (2023)",
        note="The 96 GB model: the later one of 141 GB (H20-3e) has faster memory and reports another name.",
        chip=Chip(78, 128, 60, 400, 5),
    ),
    Device(
        name="B200",
        matches=("B200", "B200 SXM", "B200 SXM 180GB", "B200 180GB"),
        peaks={"bf16": 2250.0, "fp16": 2250.0, "fp8": 4500.0, "fp32": 75.0, "tf32": 1125.0},
        memory_gbs=8000,
        scaleup_gbs=900,
        source=_BLACKWELL,
        note="Early papers say 80 for fp32; later tables say 7.7 TB/s of memory for HGX boards.",
        chip=Chip(148, 128, 126, 1000, 5),
    ),
    Device(
        name="GB200",
        matches=("GB200", "GB200 186GB", "GB200 NVL72"),
        peaks={"bf16": 2500.0, "fp16": 2500.0, "fp8": 5000.0, "fp32": 80.0, "tf32": 1250.0},
        memory_gbs=8000,
        scaleup_gbs=900,
        source=_BLACKWELL,
        note="One GPU of the two on a superchip. Early papers say 90 for fp32.",
        chip=Chip(152, 128, 126, 1200, 5),
    ),
    Device(
        name="B300",
        matches=("B300", "B300 SXM6 AC", "B300 SXM", "B300 SXM 270GB", "B300 288GB"),
        peaks={"bf16": 2250.0, "fp16": 2250.0, "fp8": 4500.0, "fp32": 75.0, "tf32": 1125.0},
        memory_gbs=8000,
        scaleup_gbs=900,
        source="NVIDIA HGX B300 specifications and Glenn Lockwood's notes on B300",
        note=(
            "Only its FP4 is faster than that of B200: tables with 3500 for bf16 scale all dtypes by FP4. Some tables "
            "say 7.7 TB/s of memory; 8 is NVIDIA's."
        ),
        chip=Chip(148, 128, 126, 1100, 5),
    ),
    Device(
        name="GB300",
        matches=("GB300", "GB300 279GB", "GB300 NVL72"),
        peaks={"bf16": 2500.0, "fp16": 2500.0, "fp8": 5000.0, "fp32": 80.0, "tf32": 1250.0},
        memory_gbs=8000,
        scaleup_gbs=900,
        source="NVIDIA GB300 NVL72 specifications and Verda's analysis of GB300 NVL72",
        note="One GPU of the 72; the specifications give the rack, with sparsity.",
        chip=Chip(152, 128, 126, 1400, 5),
    ),
    Device(
        name="MI100",
        matches=("MI100",),
        peaks={"bf16": 92.3, "fp16": 184.6, "fp32": 46.1},
        memory_gbs=1228.8,
        scaleup_gbs=None,
        source="AMD Instinct MI100 brochure",
        note="fp32 of the matrix cores, twice that of vectors. Links depend on whether a bridge is fitted.",
        chip=Chip(120, 128, 8, 300, 7),
    ),
    Device(
        name="MI210",
        matches=("MI210",),
        peaks={"bf16": 181.0, "fp16": 181.0, "fp32": 45.3},
        memory_gbs=1638,
        scaleup_gbs=None,
        source="AMD Instinct MI210 brochure",
        note="fp32 of the matrix cores, twice that of vectors. Links depend on whether a bridge is fitted.",
        chip=Chip(104, 128, 8, 300, 6),
    ),
    Device(
        name="MI250 (one GCD)",
        matches=("MI250",),
        peaks={"bf16": 181.0, "fp16": 181.0, "fp32": 45.25},
        memory_gbs=1638,
        scaleup_gbs=None,
        source="AMD Instinct MI250 product page",
        note=f"{_GCD} fp32 of the matrix cores. {_LINKS_DIFFER}",
        chip=Chip(104, 128, 8, 280, 6),
    ),
    Device(
        name="MI250X (one GCD)",
        matches=("MI250X",),
        peaks={"bf16": 191.5, "fp16": 191.5, "fp32": 47.85},
        memory_gbs=1638,
        scaleup_gbs=None,
        source="AMD Instinct MI250X product page",
        note=f"{_GCD} fp32 of the matrix cores. {_LINKS_DIFFER}",
        chip=Chip(110, 128, 8, 280, 6),
    ),
    Device(
        "MI300X",
        ("MI300X", "MI300X VF"),
        _MI300X_PEAKS,
        5300,
        448,
        "AMD Instinct MI300X data sheet",
        _PARTITIONS,
        chip=Chip(304, 128, 256, 750, 5),
    ),
    Device(
        name="MI325X",
        matches=("MI325X", "MI325X VF", "MI325X 256GB"),
        peaks=_MI300X_PEAKS,
        memory_gbs=6000,
        scaleup_gbs=448,
        source=f"AMD Instinct MI325X product page and {_BOOK}",
        note=_PARTITIONS,
        chip=Chip(304, 128, 256, 1000, 5),
    ),
    Device(
        name="MI350X",
        matches=("MI350X",),
        peaks={"bf16": 2306.9, "fp16": 2306.9, "fp8": 4613.7, "fp32": 144.2},
        memory_gbs=8000,
        scaleup_gbs=None,
        source="AMD Instinct MI350X brochure",
        note=f"Has no tf32 in hardware. {_PARTITIONS}",
        chip=Chip(256, 128, 256, 1000, 3),
    ),
    Device(
        name="MI355X",
        matches=("MI355X", "MI355X VF", "MI355X 288GB"),
        peaks={"bf16": 2516.6, "fp16": 2516.6, "fp8": 5033.2, "fp32": 157.3},
        memory_gbs=8000,
        scaleup_gbs=None,
        source="AMD Instinct MI355X brochure and AMD's talks at Hot Chips 2025 and ISSCC 2026 (CUs, clock)",
        note=(
            "2300 for bf16, as older tables say, is the rate of MI350X: CUs, clock and FLOPs per clock give 2516.6. "
            f"Has no tf32 in hardware. {_PARTITIONS}"
        ),
        chip=Chip(256, 128, 256, 1400, 3),
    ),
    Device(
        name="TPU v5p",
        matches=("TPU v5p", "v5p", "TPUv5p"),
        peaks={"bf16": 459.0},
        memory_gbs=2765,
        scaleup_gbs=None,
        source=f"Google Cloud TPU v5p documentation and {_TPU_BOOK}",
        note=f"One chip. {_TORUS}",
    ),
    Device(
        name="TPU v6e",
        matches=("TPU v6e", "v6e", "TPUv6e", "Trillium"),
        peaks={"bf16": 918.0},
        memory_gbs=1638,
        scaleup_gbs=None,
        source=f"Google Cloud TPU v6e documentation and {_TPU_BOOK}",
        note=f"One chip. The book rounds to 920 and 1600 GB/s. {_TORUS}",
    ),
)


def find_device(name: str) -> Device | None:
    """Return the device of that name, or None.

    Case and separators do not count. The longest match wins, and the rest of the name may only be the vendor or the
    family. So a slice of a device, a virtual GPU and a sibling with a longer name are unknown rather than taken for the
    whole device.

    >>> device = find_device("NVIDIA H100 80GB HBM3")
    >>> device.name, device.peaks["bf16"]
    ('H100-SXM5', 989.0)
    >>> find_device("h200_sxm").name, find_device("TPU v5p").name
    ('H200-SXM', 'TPU v5p')
    >>> find_device("NVIDIA H200 NVL"), find_device("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    (None, None)
    """
    folded = _fold(name)
    matches = [(match, device) for match, device in _MATCHES.items() if match in folded]
    if not matches:
        return None
    match, device = max(matches, key=lambda pair: len(pair[0]))
    rest = re.findall(r"\w+", folded.replace(match, " ", 1))
    return device if _FAMILIES.issuperset(rest) else None


def offer_names(name: str) -> str:
    """Return the devices that an unknown name may mean; all of them if none is like it.

    >>> offer_names("h100")
    'H100-SXM5 or H100-PCIe'
    """
    names = [device.name for device in DEVICES]
    near = [one for one in names if name.casefold() in one.casefold()]
    return " or ".join(near) if near else f"one of {', '.join(names)}"


def _fold(name: str) -> str:
    """Return the name in lower case with one space for each run of separators."""
    return re.sub(r"[\s_-]+", " ", name.casefold()).strip()


_MATCHES: Final = {_fold(match): device for device in DEVICES for match in (device.name, *device.matches)}

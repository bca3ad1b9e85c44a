"""Two causes at once, one after the other in a step: curing either one alone helps."""

from dataclasses import replace

from lostflops.testing import Losses, Straggler

from .case import Case
from .jobs import DDP, MODEL
from .kernel_cases import LOOPED

_PCIE = replace(DDP, network=replace(DDP.network, gbs=60))

CASES = (
    Case(
        "gpu_recompute_and_one_bucket",
        ("recompute", "bucket_size"),
        ("compute", "comm.transfer"),
        replace(_PCIE, recompute=True, model=replace(MODEL, buckets=1)),
        _PCIE,
    ),
    Case(
        "gpu_copies_and_optimizer",
        ("copies", "optimizer"),
        ("copy", "compute"),
        replace(DDP, model=LOOPED, losses=Losses(copy_bytes=96_000_000, pageable=True)),
        DDP,
    ),
    Case(
        "gpu_slow_device_and_no_overlap",
        ("straggler", "exposed_comm"),
        ("comm.wait", "comm.transfer"),
        replace(_PCIE, overlap=False, stragglers=(Straggler(3, "slow_kernels", factor=1.3),)),
        _PCIE,
    ),
)

"""Communication keeps the device waiting: no overlap, buckets, accumulation, a slow network."""

from dataclasses import replace

from lostflops.testing import SyntheticCluster

from .case import Case
from .jobs import DDP, MODEL, SINGLE, TWO_HOSTS
from .transformer import layer


def _exposed(name: str, cause: str, sick: SyntheticCluster, cured: SyntheticCluster) -> Case:
    return Case(name, (cause,), ("comm.transfer",), sick, cured)


_PCIE = replace(DDP.network, gbs=60)
_BUCKETED = replace(DDP, network=_PCIE)
_SMALLER = replace(DDP, steps=5, network=replace(DDP.network, alpha=60_000), model=replace(MODEL, kernels=layer(3072)))
_ACCUMULATED = replace(DDP, steps=5, network=_PCIE, microbatches=4, model=replace(MODEL, kernels=layer(4096)))
_SLOW_LINK = replace(TWO_HOSTS, network=replace(TWO_HOSTS.network, inter_gbs=18))
_SHARDED = replace(SINGLE, ranks=8, sharding=3, network=replace(SINGLE.network, gbs=120))

CASES = (
    _exposed("gpu_reduce_after_backward", "exposed_comm", replace(_BUCKETED, overlap=False), _BUCKETED),
    _exposed("gpu_fsdp_no_prefetch", "exposed_comm", replace(_SHARDED, prefetch=0), _SHARDED),
    _exposed(
        "gpu_tiny_buckets",
        "bucket_size",
        replace(_SMALLER, model=replace(_SMALLER.model, pieces=40)),
        replace(_SMALLER, model=replace(_SMALLER.model, pieces=2)),
    ),
    _exposed("gpu_one_bucket", "bucket_size", replace(_BUCKETED, model=replace(MODEL, buckets=1)), _BUCKETED),
    _exposed("gpu_no_no_sync", "missing_no_sync", replace(_ACCUMULATED, reduce_always=True), _ACCUMULATED),
    _exposed("gpu_slow_network", "slow_link", _SLOW_LINK, TWO_HOSTS),
)

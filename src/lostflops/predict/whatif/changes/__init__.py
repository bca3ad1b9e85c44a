"""What-ifs: one change of a graph per file."""

from __future__ import annotations

from typing import Final

from lostflops.predict.whatif.change import Change
from lostflops.predict.whatif.changes import (
    accumulate,
    batch,
    blocking,
    bucket_mb,
    comm_streams,
    compression,
    data,
    ddp,
    device,
    encode,
    experts,
    first_bucket_mb,
    imbalance,
    launch,
    microbatches,
    network_bandwidth,
    network_latency,
    no_sync,
    offload,
    optimizer,
    overlap,
    precision,
    prefetch,
    python,
    recompute,
    schedule,
    stages,
    staleness,
    straggler,
    sync,
    work,
    world_size,
    zero,
)

_COMPUTE: Final[tuple[Change, ...]] = (
    straggler.CHANGE,
    data.CHANGE,
    sync.CHANGE,
    launch.CHANGE,
    python.CHANGE,
    precision.CHANGE,
    optimizer.CHANGE,
    device.CHANGE,
    batch.CHANGE,
    recompute.CHANGE,
    offload.CHANGE,
    encode.CHANGE,
    overlap.CHANGE,
)
_COMMUNICATION: Final[tuple[Change, ...]] = (
    bucket_mb.CHANGE,
    blocking.CHANGE,
    first_bucket_mb.CHANGE,
    comm_streams.CHANGE,
    ddp.CHANGE,
    accumulate.CHANGE,
    no_sync.CHANGE,
    network_bandwidth.CHANGE,
    network_latency.CHANGE,
    compression.CHANGE,
    world_size.CHANGE,
    zero.CHANGE,
    prefetch.CHANGE,
    staleness.CHANGE,
)
_PIPELINE: Final[tuple[Change, ...]] = (
    microbatches.CHANGE,
    schedule.CHANGE,
    imbalance.CHANGE,
    stages.CHANGE,
    work.CHANGE,
    experts.CHANGE,
)

CHANGES: Final[tuple[Change, ...]] = (*_COMPUTE, *_COMMUNICATION, *_PIPELINE)

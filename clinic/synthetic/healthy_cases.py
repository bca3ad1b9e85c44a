"""Nothing to find: what is lost is small, or inherent."""

from dataclasses import replace

from .case import healthy
from .jobs import DDP, MODEL, SINGLE, TWO_HOSTS, pipeline

_TENSOR = replace(TWO_HOSTS, tensor_parallel=4, model=replace(MODEL, gradient_bytes=MODEL.gradient_bytes // 4))

CASES = (
    healthy("gpu_healthy_single", SINGLE),
    healthy("gpu_healthy_ddp", replace(DDP, stacks=True)),
    healthy("gpu_healthy_two_hosts", TWO_HOSTS),
    healthy("gpu_healthy_pipeline", replace(pipeline(32, 4096), ranks=4, pipeline_parallel=2)),
    healthy("gpu_healthy_tensor_data", _TENSOR),
    healthy("gpu_healthy_fsdp", replace(SINGLE, ranks=8, sharding=3)),
)

"""Causes of lost time, one rule per file; a new one is one file and one line here."""

from typing import Final

from lostflops.advise.claim import Rule
from lostflops.advise.rules import (
    bucket_size,
    checkpoint,
    compilation,
    exposed_comm,
    few_microbatches,
    gc,
    host_bound,
    host_python,
    input_pipeline,
    memory_growth,
    missing_no_sync,
    optimizer,
    precision,
    profiler,
    recompute,
    small_messages,
    stage_imbalance,
    straggler,
    throttling,
    warmup,
    work_imbalance,
)

RULES: Final[tuple[Rule, ...]] = (
    bucket_size.RULE,
    checkpoint.RULE,
    compilation.RULE,
    exposed_comm.RULE,
    few_microbatches.RULE,
    gc.RULE,
    host_bound.RULE,
    host_python.RULE,
    input_pipeline.RULE,
    memory_growth.RULE,
    missing_no_sync.RULE,
    optimizer.RULE,
    precision.RULE,
    profiler.RULE,
    recompute.RULE,
    small_messages.RULE,
    stage_imbalance.RULE,
    straggler.RULE,
    throttling.RULE,
    warmup.RULE,
    work_imbalance.RULE,
)

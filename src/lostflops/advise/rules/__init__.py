"""Causes of lost time, one rule per file; a new one is one file and one line here."""

from typing import Final

from lostflops.advise.claim import Rule
from lostflops.advise.rules import (
    checkpoint,
    compilation,
    gc,
    host_bound,
    host_python,
    input_pipeline,
    memory_growth,
    optimizer,
    precision,
    profiler,
    recompute,
    straggler,
    throttling,
    warmup,
    work_imbalance,
)

RULES: Final[tuple[Rule, ...]] = (
    checkpoint.RULE,
    compilation.RULE,
    gc.RULE,
    host_bound.RULE,
    host_python.RULE,
    input_pipeline.RULE,
    memory_growth.RULE,
    optimizer.RULE,
    precision.RULE,
    profiler.RULE,
    recompute.RULE,
    straggler.RULE,
    throttling.RULE,
    warmup.RULE,
    work_imbalance.RULE,
)

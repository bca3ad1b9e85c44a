"""Causes of lost time, one rule per file; a new one is one file and one line here."""

from typing import Final

from lostflops.advise.claim import Rule
from lostflops.advise.rules import (
    host_bound,
    host_python,
    input_pipeline,
    straggler,
    work_imbalance,
)

RULES: Final[tuple[Rule, ...]] = (
    host_bound.RULE,
    host_python.RULE,
    input_pipeline.RULE,
    straggler.RULE,
    work_imbalance.RULE,
)

"""Where the third-party traces lie that some tests read; they are skipped without them."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[1].parent / "shared"
TRACES = SHARED / "traces"

needs_traces = pytest.mark.skipif(not (TRACES / "truth.csv").exists(), reason="no real traces beside the checkout")
STEP_SERIES = SHARED / "mlperf" / "llama31_405b_steps.csv.gz"
needs_step_series = pytest.mark.skipif(not STEP_SERIES.exists(), reason="no step series of MLPerf beside the checkout")

"""Where the third-party traces lie that some tests read; they are skipped without them."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[1].parent / "shared"
TRACES = SHARED / "traces"

needs_traces = pytest.mark.skipif(not (TRACES / "truth.csv").exists(), reason="no real traces beside the checkout")

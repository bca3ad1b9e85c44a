"""Values that no replay could hold are refused as such."""

from __future__ import annotations

import pytest

from lostflops.core.errors import UsageError
from lostflops.predict.whatif.graph_edits.values import count, times


@pytest.mark.parametrize("text", ["1e-300x", "1e300x", "0x", "2", "nanx"])
def test_factors(text: str) -> None:
    with pytest.raises(UsageError):
        times(text, "network.bandwidth")


@pytest.mark.parametrize("text", ["1000000000", "1.5", "0", "-1", "inf"])
def test_counts(text: str) -> None:
    with pytest.raises(UsageError):
        count(text, "world_size")

"""Colours of pictures that Python draws, on white: those of the page in its light theme.

`tests/ui/test_palette.py` compares them with `ui/src/chart.css` and `ui/src/codes.ts`, and computes that people with
any colour vision can distinguish them.
"""

from typing import Final

SERIES: Final = ("#015798", "#e27727", "#328862", "#b27496", "#8a621a", "#2b9ed4", "#232a33", "#3f4100")
"""Series of a plot, by their place."""
CODES: Final = {"program": "#d3cc80", "torch": "#8dc3fd", "library": "#9fa3a8", "lostflops": "#81a586"}
"""Frames of a flame graph, by whose code they are."""

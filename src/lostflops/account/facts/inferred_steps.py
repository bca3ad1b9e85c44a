"""Sources of steps if a trace does not mark them with `ProfilerStep`, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

INFERRED_FROM: Final = {
    "steps_from_marks": "the scheduler's marks",
    "steps_from_optimizer": "calls of the optimizer",
    "steps_from_kernels": "repeated kernels",
}
"""Observations of table `stats`, and what the steps were inferred from."""
UNCOUNTED: Final = ("steps_from_marks", "steps_from_kernels")
"""Observations of steps that may differ in their work: a batch of requests, a period of kernels."""


def inferred_note(observations: Collection[str]) -> str:
    """Return the sentence for the reader; empty where steps were recorded.

    >>> inferred_note(["no_steps"]), inferred_note(["steps_from_kernels"])
    ('', 'Steps were inferred from repeated kernels; the ledger covers the whole recording.')
    """
    sources = [source for what, source in INFERRED_FROM.items() if what in observations]
    if not sources:
        return ""
    return f"Steps were inferred from {' and '.join(sources)}; the ledger covers the whole recording."

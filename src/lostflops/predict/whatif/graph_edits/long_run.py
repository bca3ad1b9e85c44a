"""What a bound on staleness comes to when a job goes on for long: a few recorded steps begin together, and do not show
how far ranks drift apart."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

STEPS: Final = 2_000


def long_run(own: npt.NDArray[np.float64], bound: int) -> float:
    """The mean step where a rank starts one when all others have finished the one `bound` + 1 before it. `own` has what
    steps take without waiting, by rank and step; each rank draws from its own.

    >>> long_run(np.array([[2.0, 2.0], [3.0, 3.0]]), bound=4)
    3.0
    >>> 2.0 < long_run(np.array([[1.0, 3.0], [1.0, 3.0]]), bound=1) < 2.5
    True
    """
    ranks, steps = own.shape
    drawn = np.random.default_rng(0).integers(0, steps, (STEPS, ranks))
    ended = np.zeros((STEPS + 1, ranks))
    for step in range(STEPS):
        held = ended[step - bound].max() if step >= bound else 0.0
        ended[step + 1] = np.maximum(ended[step], held) + own[np.arange(ranks), drawn[step]]
    begun = STEPS // 10
    return float((ended[STEPS] - ended[begun]).mean() / (STEPS - begun))

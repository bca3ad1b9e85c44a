"""What disturbs ranks that are all alike: parts of a step by rank and step, of several kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int], Floats]
_RANKS_PER_HOST: Final = 8


def _even(rng: np.random.Generator, ranks: int, steps: int) -> Floats:
    return 0.02 * rng.normal(size=(ranks, steps))


def _heavy_tails(rng: np.random.Generator, ranks: int, steps: int) -> Floats:
    """Return Student's t with 2.5 degrees of freedom."""
    return 0.015 * rng.standard_t(2.5, size=(ranks, steps))


def _follow(rng: np.random.Generator, ranks: int, steps: int, share: float = 0.7) -> Floats:
    """Return normal values of which each keeps this share of the one before it."""
    made = rng.normal(size=(ranks, steps))
    for at in range(1, steps):
        made[:, at] = share * made[:, at - 1] + np.sqrt(1 - share * share) * made[:, at]
    return made


def _autocorrelated(rng: np.random.Generator, ranks: int, steps: int) -> Floats:
    return 0.02 * _follow(rng, ranks, steps)


def _stalls(rng: np.random.Generator, ranks: int, steps: int) -> Floats:
    """Return values that last for some steps and are only ever late, some of them by far."""
    return np.asarray(0.02 * np.exp(_follow(rng, ranks, steps)))


def _bursts(rng: np.random.Generator, ranks: int, steps: int) -> Floats:
    """Return another job's bursts on hosts of eight ranks: 5 to 30% of a step, for ten steps, every seventy steps."""
    hosts = np.zeros((-(-ranks // _RANKS_PER_HOST), steps))
    for host in hosts:
        at = int(rng.geometric(1 / 60))
        while at < steps:
            lasts = int(rng.geometric(1 / 10))
            host[at : at + lasts] = rng.uniform(0.05, 0.3)
            at += lasts + int(rng.geometric(1 / 60))
    return _even(rng, ranks, steps) + np.repeat(hosts, _RANKS_PER_HOST, axis=0)[:ranks] * rng.uniform(
        0.5, 1.0, (ranks, steps)
    )


def _uneven(rng: np.random.Generator, ranks: int, steps: int) -> Floats:
    """Return ranks that also differ for good, by a quarter of a percent of a step."""
    return _even(rng, ranks, steps) + 0.0025 * rng.normal(size=(ranks, 1))


NOISES: Final[dict[str, Noise]] = {
    "even": _even,
    "heavy tails": _heavy_tails,
    "autocorrelated": _autocorrelated,
    "stalls": _stalls,
    "bursts of a host": _bursts,
    "uneven ranks": _uneven,
}

"""Times of collectives whose constants are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np


def doubling(first: int, last: int) -> list[int]:
    """
    >>> doubling(1024, 8192)
    [1024, 2048, 4096, 8192]
    """
    sizes = [first]
    while sizes[-1] * 2 <= last:
        sizes.append(sizes[-1] * 2)
    return sizes


def line(alpha: float, beta: float) -> Callable[[int], float]:
    return lambda size: alpha + beta * size


def switching(place: int) -> Callable[[int], float]:
    """As NCCL goes from LL to Simple: more latency, more bandwidth."""
    return lambda size: 20e3 + 0.1 * size if size < place else 55e3 + 0.03 * size


@dataclass(slots=True)
class Made:
    """Draws samples with relative noise, a share of them disturbed by a factor of 3 to 10; sizes below `noisy_below`
    have ten times the noise."""

    seed: int
    noise: float = 0.05
    disturbed: float = 0.0
    noisy_below: int = 0
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def samples(self, sizes: Sequence[int], time: Callable[[int], float], count: int) -> list[list[float]]:
        """Half of all draws are normal, half lognormal."""
        lognormal = self.random.random() < 0.5
        noises = [self.noise * (10 if size < self.noisy_below else 1) for size in sizes]
        return [self._of(time(size), noise, count, lognormal) for size, noise in zip(sizes, noises, strict=True)]

    def _of(self, ns: float, noise: float, count: int, lognormal: bool) -> list[float]:
        drawn = self.random.normal(0, noise, count)
        factors = np.exp(drawn) if lognormal else np.maximum(1 + drawn, 0.1)
        hit = self.random.random(count) < self.disturbed
        return list(ns * np.where(hit, factors * self.random.uniform(3, 10, count), factors))

    def constants(self) -> tuple[float, float]:
        """A latency of 1 us to 1 ms and a bandwidth of 0.1 to 300 GB/s."""
        return 10 ** self.random.uniform(3, 6), 10 ** self.random.uniform(-2.5, 1)

    def grid(self) -> list[int]:
        return doubling(1024, int(self.random.choice([2**26, 2**28, 2**30])))

"""How long does a matrix product run?

A product is cut into tiles, each unit of the device works on one tile at a time, and the tiles come in waves: the last
wave may leave units idle. A library chooses the tile, and in how many parts it cuts the inner dimension: we take the
choice that is fastest by the same formulas. A tile computes at the rate that its unit sustains, less what its edges
cost, and all tiles of a wave read through the shared cache: operands that do not fit into it are read again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.facts.devices import Chip
from lostflops.predict.costs.kernels.constants import Constants

Floats = npt.NDArray[np.float64]

_EDGES: Final = ((256, 128), (128, 128), (128, 64), (64, 64), (128, 32), (64, 32), (32, 32))
_TILES: Final = tuple(dict.fromkeys(tile for edges in _EDGES for tile in (edges, edges[::-1])))
_PARTS: Final = (1, 3, 9)
_LARGEST_CUT: Final = 128 * 128
"""Tiles above this size are not combined with a cut of the inner dimension: there is no need for it."""


class Products(NamedTuple):
    """Products of `batch` times (m x k) by (k x n)."""

    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    element: float
    """Bytes of a number."""


class DeviceBounds(NamedTuple):
    """What bounds products on a device."""

    chip: Chip
    rate: float
    """FLOPs per ns that large products sustain."""
    bandwidth: float
    """Bytes per ns of the memory."""
    ramp: float
    """Steps along the inner dimension that a tile loses at its start and end."""


def time_products(work: Products, bounds: DeviceBounds, known: Constants) -> Floats:
    """Return the time of each product in ns."""
    best = np.full(work.m.shape, np.inf)
    for tile in _TILES:
        for parts in _PARTS:
            if parts == 1 or tile[0] * tile[1] <= _LARGEST_CUT:
                best = np.minimum(best, _time_choice(work, (*tile, parts), bounds, known))
    return best


def best_share(known: Constants) -> float:
    """Return the part of the sustained rate that the largest tile leaves."""
    return max(_share_of(tile, known) for tile in _TILES)


def _share_of(tile: tuple[int, int], known: Constants) -> float:
    return 1 / (1 + known.tile_edge * (1 / tile[0] + 1 / tile[1]))


def _time_choice(work: Products, choice: tuple[int, int, int], bounds: DeviceBounds, known: Constants) -> Floats:
    """Return the times with tiles of this height and width, and the inner dimension cut into this many parts."""
    high, wide, parts = choice
    rows, columns = np.ceil(work.m / high), np.ceil(work.n / wide)
    tiles = work.batch * rows * columns * parts
    waves = np.ceil(tiles / bounds.chip.units)
    reached = bounds.rate / bounds.chip.units * _share_of((high, wide), known)
    computing = waves * 2 * high * wide * (np.ceil(work.k / parts) + bounds.ramp) / reached
    # Tiles that run at the same time form a square and share what they read.
    side = np.sqrt(np.minimum(bounds.chip.units, tiles))
    once = work.m * work.k + work.n * work.k
    again = work.m * work.k * np.ceil(columns / side) + work.n * work.k * np.ceil(rows / side)
    fits = work.element * once <= bounds.chip.cache_mb * 1e6
    written = work.m * work.n * (1 if parts == 1 else 1 + parts)
    moved = work.element * work.batch * (np.where(fits, once, again) + written)
    moving = moved / (bounds.bandwidth * known.product_memory)
    return np.asarray((computing**known.overlap + moving**known.overlap) ** (1 / known.overlap))

"""Runs with steps that are known, as the collector would have recorded them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lostflops.ingest import ingest
from made_captures import end, frames, session, step, write

MS = 1_000_000


def recorded(
    folder: Path,
    times: Sequence[float],
    *,
    world: int = 1,
    samples: int = 8,
    parameters: Sequence[tuple[str, list[int]]] = (("weight", [4, 4]),),
    start: int = 0,
    skipped: Collection[int] = (),
    **told: Any,
) -> Path:
    """One run; `times` are those of its steps in ms. The first step takes a second, and does not count. `skipped` are
    steps whose update a GradScaler skipped."""
    for rank in range(world):
        made, now = [], start
        for number, ms in enumerate([1000.0, *times]):
            took = round(ms * MS)
            part = took // 5
            phases = (part, part, part, part, took - 4 * part)
            made.append(step(number, now, phases, samples=samples, skipped=number in skipped))
            now += took
        model = {"kind": "parameters", "parameters": [_parameter(*one) for one in parameters]}
        opened = session(rank, world, wall=start, **told)
        write(folder / "capture", rank, frames(rank, f"{folder.name}-{rank}", [opened, model, *made, end(now)]))
    ingest([folder / "capture"], folder, workers=1)
    return folder


def _parameter(name: str, shape: list[int]) -> dict[str, Any]:
    size = int(np.prod(shape)) * 4
    return {
        "name": name,
        "module": "Linear",
        "shape": shape,
        "local_shape": shape,
        "dtype": "float32",
        "bytes": size,
        "trainable": True,
        "bucket": None,
        "unit": None,
    }


def noisy(
    number: int, *, level: float = 10.0, steps: int = 60, between: float = 0.005, held_up: float = 0.05
) -> list[float]:
    """A run of its own: steps differ by 2%, one in twenty is held up, and runs by `between`."""
    chance = np.random.default_rng(number)
    held = 1 + (chance.random(steps) < held_up) * chance.uniform(0.2, 2, steps)
    run = level * np.exp(between * chance.normal())
    return list(run * np.exp(0.02 * chance.normal(size=steps)) * held)

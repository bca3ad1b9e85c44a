"""How often losses that are located without any rule name the line or the function at fault, for the sixth set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from clinic.held_out_6.truth import TRUTHS, Truth
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.located import locate
from lostflops.store.run import Run

_WHOLE_PROGRAMS: Final = frozenset({"main", "<module>", "run", "train"})
"""Functions that are most of a script: to name them names nothing, so there the line counts."""


def score_located(folder: Path) -> Iterator[tuple[Truth, bool, list[str]]]:
    """Yield the sick jobs whose runs are in a folder, whether their fault is located, and what is."""
    for truth in TRUTHS:
        runs = sorted(folder.glob(f"{truth.name}*/sick/run.json")) if truth.fault else []
        for place in runs[:1]:
            with Run.open(place.parent) as run:
                found = locate(Case(run).total)
            named = {frame for one in found for frame in one.named}
            yield truth, any(_is_at_fault(truth, frame) for frame in named), [one.what for one in found]


def _is_at_fault(truth: Truth, frame: str) -> bool:
    function, _, place = frame.partition(" ")
    is_telling = function.rpartition(".")[2] not in _WHOLE_PROGRAMS
    is_inside = f".{function}".endswith(f".{truth.function}")
    return place == f"{truth.script}:{truth.line}" or (is_telling and is_inside)


def located_text(folder: Path) -> str:
    """Return the score of the runs in a folder as a text."""
    rows = list(score_located(folder))
    lines = [f"{'located' if hit else 'missed '} {truth.name}: {truth.where}" for truth, hit, _ in rows]
    return "\n".join([*lines, f"{sum(hit for _, hit, _ in rows)} of {len(rows)} faults are located"])

"""How near the lines of unedited replays are to the ledger.

    python benchmarks/replay_lines.py RUN [RUN ...]

For each run the errors of the replay, of the line that is farthest off and which one that is, all as parts of the mean
step; and what building, replaying and putting it on lines takes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.partition import partition
from lostflops.account.ledger.record import records
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.predict.graph.build import build
from lostflops.predict.graph.lines import mean_lines
from lostflops.predict.graph.replay import replay
from lostflops.store.run import Run


def ledger_lines(run: Run, ranks: tuple[int, ...]) -> np.ndarray:
    """Mean ns of a step of a rank on each line."""
    held = [partition(record, window(record, WindowKind.STEPS)) for record in records(run, ranks)]
    total = np.array([[one.ns()[line] for line in LINES] for one in held]).sum(axis=0)
    return total / sum(len(one.window.number) for one in held)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.perf_counter()
    return work(), time.perf_counter() - begun


def compare(path: Path) -> None:
    with Run.open(path) as run:
        graph, built = timed(lambda: build(run))
        told = ledger_lines(run, graph.ranks)
    replay(graph)  # compiled here, where numba is installed
    done, replayed = timed(lambda: replay(graph))
    found, lined = timed(lambda: np.array(list(mean_lines(done).values())))
    off = (found - told) / told.sum()
    worst = int(np.abs(off).argmax())
    print(
        f"{path.name}: {len(graph.ranks)} ranks, {len(graph.tasks):,} tasks; "
        f"replay {found.sum() / told.sum() - 1:+.3%}, {LINES[worst]} {off[worst]:+.3%}; "
        f"{built:.2f} s + {replayed:.2f} s + {lined:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    for path in parser.parse_args().runs:
        compare(path)


if __name__ == "__main__":
    main()

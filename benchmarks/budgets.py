"""Time and memory of inputs that use up a budget of `lostflops.core.limits`, as a table for SECURITY.md.

    python benchmarks/budgets.py                    # all of them: about 20 minutes
    python benchmarks/budgets.py names threads      # some of them

Each input is made by `tests/made_growth.py`. `lostflops ingest`, `report` and `open` are measured in fresh processes,
start-up included; an input beyond its budget shows the error instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import made_growth  # noqa: E402
from lostflops.core import limits  # noqa: E402

SIZES: Final = {
    "fake_headers": 4_000_000,
    "capture_ranks": limits.MOST_RANKS,
    "capture_sessions": limits.MOST_ATTEMPTS,
    "capture_groups": 100_000,
    "op_ranks": limits.MOST_RANKS,
    "op_types": 300_000,
    "names": 4 * limits.MOST_NAMES,
    "shapes": 2 * limits.MOST_DETAILS,
    "threads": 300_000,
    "busy_threads": 100_000,
    "streams": 300_000,
    "groups": 100_000,
    "members": limits.LARGEST_WORLD // 2,
    "nesting": 1_000_000,
    "steps": 100_000,
}
"""Inputs, and their sizes: the budget, more than the budget if the rest is dropped, or more than any real trace has."""


class Usage(NamedTuple):
    """Use of a command and the processes that it started."""

    cpu_seconds: float
    peak_mb: float
    error: str


def measure(name: str, size: int) -> str:
    """Return a row of the table."""
    with tempfile.TemporaryDirectory(prefix="lostflops-budgets-") as folder:
        traces, run = Path(folder, "traces"), Path(folder, "run")
        traces.mkdir()
        getattr(made_growth, f"write_{name}")(traces, size)
        size_mb = sum(file.stat().st_size for file in traces.iterdir()) / 1e6
        cells = [name.replace("_", " "), f"{size:,}", f"{size_mb:,.1f} MB"]
        for words in (["ingest", traces, "-o", run], ["report", run], ["open", run, "--no-browser"]):
            used = run_command([sys.executable, "-m", "lostflops", *map(str, words)])
            cells.append(used.error or f"{used.cpu_seconds:,.0f} s, {used.peak_mb:,.0f} MB")
            if used.error:
                break
        return f"| {' | '.join(cells)} |"


def run_command(words: list[str]) -> Usage:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(words, stdout=output, stderr=output, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    error = f"refused: {lines[-1]}" if child.returncode and lines else "refused" if child.returncode else ""
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, error)


def main() -> None:
    chosen = sys.argv[1:] or list(SIZES)
    print("| input | size | file | ingest | report | open |\n|---|---|---|---|---|---|")
    for name in chosen:
        print(measure(name, SIZES[name]), flush=True)


if __name__ == "__main__":
    main()

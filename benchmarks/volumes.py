"""How many bytes each kind of record takes, and what that makes of a day of a large job.

    python benchmarks/volumes.py RUN... --json numbers.json

Step records are measured on a made job (64 ranks, 500 steps, 20 collectives each) as the collector writes them and as
the store holds them; what a deep window holds, on the runs that are given. The table is for a job whose step takes
`--step-seconds` and that records a window of `--window-steps` every `--window-minutes` on all ranks.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from lostflops.core.units import format_bytes
from lostflops.ingest import ingest
from lostflops.store.run import Run
from made_jobs import MS, MadeJob

chance = random.Random(0)
RANKS, STEPS, COLLECTIVES = 64, 500, 20
FLEETS = (1_000, 16_384, 100_000)
OF_A_STEP = ("timings", "enqueues")
OF_A_WINDOW = ("events", "collectives", "arrivals", "links", "samples", "memory", "holdings", "steps")


@dataclass(frozen=True, slots=True)
class Volume:
    """`per_step` are rows of a rank in a step."""

    rows: int
    bytes_per_row: float
    per_step: float

    @property
    def bytes_per_step(self) -> float:
        return self.bytes_per_row * self.per_step


def volumes(run: Run, tables: tuple[str, ...], rank_steps: int) -> dict[str, Volume]:
    found = {}
    for name in tables:
        ((rows,),) = run.sql(f"select count(*) from {name}").fetchall()
        size = sum(file.bytes for file in run.manifest.files.get(name, []))
        if rows:
            found[name] = Volume(rows, size / rows, rows / rank_steps)
    return found


class Irregular(MadeJob):
    """Times as a clock shows them, to the nanosecond: regular ones would take next to nothing in a column."""

    def step(self, rank: int, number: int, **changes: Any) -> dict[str, Any]:
        found = super().step(rank, number, **changes)
        for name, least in (("data", 0), ("forward", 20 * MS), ("backward", 40 * MS), ("optimizer", 5 * MS)):
            found[name] = least + chance.randrange(2 * MS)
        found["start"] += chance.randrange(MS)
        found["stop"] += chance.randrange(MS)
        return found | {"own": 200_000 + chance.randrange(50_000), "gc": chance.randrange(MS), "gc_count": 1}

    def enqueued(self, rank: int, number: int) -> dict[str, Any]:
        found = super().enqueued(rank, number)
        for entry in found["entries"]:
            entry[-1] += chance.randrange(MS)
        return found


def of_steps(folder: Path) -> tuple[float, dict[str, Volume]]:
    """Bytes of a step of a rank in its capture, and in the store."""
    job = Irregular(folder / "capture", RANKS, 8, collectives=COLLECTIVES)
    job.start()
    job.run(0, STEPS)
    written = sum(path.stat().st_size for path in (folder / "capture").glob("*.capture"))
    ingest([folder / "capture"], folder / "run", workers=2)
    with Run.open(folder / "run") as run:
        return written / RANKS / STEPS, volumes(run, OF_A_STEP, RANKS * STEPS)


def of_windows(path: Path) -> dict[str, Volume]:
    with Run.open(path) as run:
        ((rank_steps,),) = run.sql("select count(*) from steps").fetchall()
        return volumes(run, OF_A_WINDOW, rank_steps)


def fleet(per_step: float, per_window_step: float, options: argparse.Namespace) -> list[dict[str, Any]]:
    steps = round(86_400 / options.step_seconds)
    windows = 24 * 60 / options.window_minutes
    return [
        {
            "ranks": ranks,
            "step_records_day": ranks * steps * per_step,
            "windows_day": ranks * windows * options.window_steps * per_window_step,
            "one_window": ranks * options.window_steps * per_window_step,
        }
        for ranks in FLEETS
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--step-seconds", type=float, default=5.0)
    parser.add_argument("--window-steps", type=int, default=3)
    parser.add_argument("--window-minutes", type=float, default=60.0)
    parser.add_argument("--events", type=int, default=10_000, help="of a rank in a step, for the table")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        captured, steps = of_steps(Path(folder))
    print(f"a step of a rank: {captured:.0f} B captured, {sum(v.bytes_per_step for v in steps.values()):.0f} B stored")
    measured = {"steps": steps} | {path.name: of_windows(path) for path in options.runs}
    for source, found in measured.items():
        for name, volume in found.items():
            print(f"{source:<18}{name:<12}{volume.rows:>11,} rows{volume.bytes_per_row:>8.1f} B a row"
                  f"{volume.per_step:>10.1f} rows a step")  # fmt: skip
    largest = max((found["events"] for name, found in measured.items() if "events" in found), key=lambda v: v.rows)
    table = fleet(sum(v.bytes_per_step for v in steps.values()), options.events * largest.bytes_per_row, options)
    for row in table:
        print({name: value if name == "ranks" else format_bytes(round(value)) for name, value in row.items()})
    if options.json:
        kept = {source: {name: asdict(volume) for name, volume in found.items()} for source, found in measured.items()}
        options.json.write_text(json.dumps({"captured": captured, "measured": kept, "fleet": table}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

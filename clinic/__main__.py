"""How often `lostflops diagnose` is right: jobs with a known disease are run, diagnosed, cured and measured.

sudo python -m clinic                                  # all; without root those between network namespaces are skipped
python -m clinic --only slow_device,tiny_buckets
python -m clinic --keep runs                           # runs stay in runs/PATIENT/sick and runs/PATIENT/cured
python -m clinic --runs runs --json                    # diagnose those again, run nothing
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from clinic.registry import chosen
from clinic.scoring import Outcome, Score, confusion
from clinic.tables import text
from clinic.visits import visit
from lostflops import __version__


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m clinic", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="NAME,...", help="these patients")
    parser.add_argument(
        "--held-out", action="store_true", help="patients that were written after the rules, and only these"
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--keep", type=Path, metavar="DIR", help="where runs stay; else they are removed")
    place.add_argument("--runs", type=Path, metavar="DIR", help="diagnose the runs that are there, and run nothing")
    parser.add_argument("--json", action="store_true", help="outcomes as JSON, for clinic/render.py")
    return parser.parse_args()


def told(outcomes: list[Outcome], *, held_out: bool) -> dict[str, Any]:
    return {
        "held_out": held_out,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"lostflops": __version__, "torch": version("torch"), "python": platform.python_version()},
        "score": Score.of(outcomes).to_json(),
        "confusion": {row: dict(counts) for row, counts in confusion(outcomes).items()},
        "patients": [one.to_json() for one in outcomes],
    }


def main() -> int:
    asked = arguments()
    try:
        patients = chosen(tuple(filter(None, asked.only.split(","))), held_out=asked.held_out)
    except ValueError as error:
        print(f"clinic: {error}", file=sys.stderr)
        return 2
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="clinic-") as removed:
        folder = asked.runs or asked.keep or Path(removed)
        for patient in patients:
            outcomes.append(visit(patient, folder, runs=asked.runs is None))
            print(f"{len(outcomes)} of {len(patients)}: {patient.name}", file=sys.stderr, flush=True)
    if asked.json:
        print(json.dumps(told(outcomes, held_out=asked.held_out), indent=1))
    else:
        print("\n\n".join(text(outcomes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

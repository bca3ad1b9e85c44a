"""How often `lostflops diagnose` is right: jobs with a known disease are run, diagnosed, cured and measured.

sudo python -m clinic                                  # all; without root those between network namespaces are skipped
sudo python -m clinic --held-out 4 --rounds 2          # the fourth set that no rule has seen; sick, cured in turn
python -m clinic --held-out 5                          # the fifth: fifteen jobs with experts, without root
python -m clinic --held-out 6                          # the sixth: jobs of many kinds, without root
sudo python -m clinic --kinds --repeat 10              # how often each of eleven kinds of fault is found first
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

from clinic.kinds import repeat_kinds
from clinic.registry import HELD_OUT_SETS, chosen
from clinic.scoring import Outcome, Score, confusion
from clinic.tables import text
from clinic.visits import ROUNDS, visit
from lostflops import __version__


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m clinic", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="NAME,...", help="these patients")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--held-out", type=int, choices=HELD_OUT_SETS, metavar="SET", help="patients written without sight of the rules"
    )
    which.add_argument("--kinds", action="store_true", help="patients of the kinds in clinic/kinds.py; none is cured")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="visits of each patient, with --kinds")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, metavar="N", help="sick and cured runs in turn that measure a saving"
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--keep", type=Path, metavar="DIR", help="where runs stay; else they are removed")
    place.add_argument("--runs", type=Path, metavar="DIR", help="diagnose the runs that are there, and run nothing")
    parser.add_argument("--json", action="store_true", help="outcomes as JSON, for clinic/render.py")
    return parser.parse_args()


def told(outcomes: list[Outcome], *, held_out: int | None) -> dict[str, Any]:
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
        patients = chosen(tuple(filter(None, asked.only.split(","))), held_out=3 if asked.kinds else asked.held_out)
    except ValueError as error:
        print(f"clinic: {error}", file=sys.stderr)
        return 2
    if asked.kinds:
        return repeat_kinds(patients, asked.repeat, asked.keep)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="clinic-") as removed:
        folder = asked.runs or asked.keep or Path(removed)
        for patient in patients:
            outcomes.append(visit(patient, folder, runs=asked.runs is None, rounds=asked.rounds))
            print(f"{len(outcomes)} of {len(patients)}: {patient.name}", file=sys.stderr, flush=True)
    if asked.json:
        print(json.dumps(told(outcomes, held_out=asked.held_out), indent=1))
    else:
        print("\n\n".join(text(outcomes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

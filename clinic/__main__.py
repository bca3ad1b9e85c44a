"""How often `lostflops diagnose` is right: jobs with a known disease are run, diagnosed, cured and measured.

sudo python -m clinic                                  # all; without root those between network namespaces are skipped
sudo python -m clinic --held-out 4 --rounds 2          # the fourth set that no rule has seen; sick, cured in turn
python -m clinic --held-out 5                          # the fifth: fifteen jobs with experts, without root
python -m clinic --held-out 6                          # the sixth: jobs of many kinds, without root
python -m clinic --only slow_device,tiny_buckets
python -m clinic --keep runs                           # runs stay in runs/PATIENT/sick and runs/PATIENT/cured
python -m clinic --runs runs --json                    # diagnose those again, run nothing
python -m clinic --runs runs --located                 # whether their faults are located without any rule (sixth set)
nice python -m clinic --library runs --limit 300       # record so many jobs at different loads; goes on where it ended
python -m clinic --library runs --score                # diagnose the library again, print how reliable diagnoses are
python -m clinic --library runs --calibrate            # the same, and write outcomes.csv and calibration.json
python -m clinic --calibrate                           # write calibration.json from outcomes.csv
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

from clinic.calibrate import calibrate, written
from clinic.library import make_library, score_library
from clinic.located import located_text
from clinic.outcomes import OUTCOMES, read_rows, write_rows
from clinic.registry import HELD_OUT_SETS, chosen
from clinic.reliability import reliability
from clinic.scoring import Outcome
from clinic.tables import text
from clinic.visits import ROUNDS, visit
from lostflops import __version__
from lostflops.explain.advise.calibration import FILE


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m clinic", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="NAME,...", help="these patients")
    parser.add_argument(
        "--held-out", type=int, choices=HELD_OUT_SETS, metavar="SET", help="patients written without sight of the rules"
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, metavar="N", help="sick and cured runs in turn that measure a saving"
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--keep", type=Path, metavar="DIR", help="where runs stay; else they are removed")
    place.add_argument("--runs", type=Path, metavar="DIR", help="diagnose the runs that are there, and run nothing")
    place.add_argument("--library", type=Path, metavar="DIR", help="record all sets at several loads, or go on with it")
    scores = parser.add_mutually_exclusive_group()
    scores.add_argument("--score", action="store_true", help="diagnose the library, and print how reliable that is")
    scores.add_argument("--located", action="store_true", help="whether runs of the sixth set show where faults are")
    scores.add_argument("--calibrate", action="store_true", help="write calibration.json")
    parser.add_argument("--limit", type=int, metavar="N", help="most entries to add to the library")
    parser.add_argument("--json", action="store_true", help="outcomes as JSON, for clinic/render.py")
    return parser.parse_args()


def as_json(outcomes: list[Outcome], *, held_out: int | None) -> str:
    """Return outcomes as JSON, a line for each patient."""
    head = {
        "held_out": held_out,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"lostflops": __version__, "torch": version("torch"), "python": platform.python_version()},
    }
    lines = ",\n".join(json.dumps(one.to_json()) for one in outcomes)
    return f'{json.dumps(head)[:-1]}, "patients": [\n{lines}\n]}}'


def score(library: Path | None, *, is_kept: bool) -> int:
    """Print the reliability of diagnoses; keep outcomes and calibration if asked. Without a library, outcomes are those
    that were kept."""
    text = OUTCOMES.read_text(encoding="utf-8") if library is None else write_rows(score_library(library))
    rows = read_rows(text)
    if is_kept:
        OUTCOMES.write_text(text, encoding="utf-8")
        FILE.write_bytes(written(calibrate(rows)))
    print("\n\n".join(reliability(rows)))
    return 0


def main() -> int:
    asked = arguments()
    if asked.score or asked.calibrate:
        return score(asked.library, is_kept=asked.calibrate)
    if asked.located and asked.runs:
        print(located_text(asked.runs))
        return 0
    if asked.library:
        make_library(asked.library, tuple(filter(None, asked.only.split(","))), asked.limit)
        return 0
    try:
        patients = chosen(tuple(filter(None, asked.only.split(","))), held_out=asked.held_out)
    except ValueError as error:
        print(f"clinic: {error}", file=sys.stderr)
        return 2
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="clinic-") as removed:
        folder = asked.runs or asked.keep or Path(removed)
        for patient in patients:
            outcomes.append(visit(patient, folder, runs=asked.runs is None, rounds=asked.rounds))
            print(f"{len(outcomes)} of {len(patients)}: {patient.name}", file=sys.stderr, flush=True)
    if asked.json:
        print(as_json(outcomes, held_out=asked.held_out))
    else:
        print("\n\n".join(text(outcomes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The memory ledger of real jobs beside what they count themselves.

python -m benchmarks.memory                      # all jobs, into benchmarks/memory/results
python -m benchmarks.memory --only mlp-sgd-single
python -m benchmarks.memory.render               # docs/explanation/memory-accuracy.md
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.memory.experiments import EXPERIMENTS
from benchmarks.memory.judge import judged
from benchmarks.memory.measure import machine, measured

RESULTS = Path(__file__).with_name("results")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--keep", type=Path, help="folder for the runs; those that are there are used again")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        for experiment in EXPERIMENTS:
            if not options.only or experiment.name in options.only:
                found = {**measured(experiment, options.keep or Path(temporary)), "machine": machine()}
                (RESULTS / f"{experiment.name}.json").write_text(json.dumps(found, indent=1) + "\n")
                print(experiment.name, json.dumps(judged(found)), flush=True)


if __name__ == "__main__":
    main()

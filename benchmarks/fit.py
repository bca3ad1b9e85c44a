"""How often intervals of fitted constants hold the truth, whether switches are found or invented, and how far curves
are from published times.

    python benchmarks/fit.py --fits 1000 --json numbers.json

Made times have known constants and 5% noise, with one sample of each size and with several, with and without 2% of
disturbed samples (3 to 10 times slower). Published times are logs of nccl-tests in ../shared/traces, left out where
they are not there. Exit code 1 means that a figure misses what docs/explanation/calibration.md promises.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from lostflops.predict.costs.fit import fit_curve
from lostflops.predict.costs.nccl_tests import read_nccl_tests
from predict.costs.made_times import Made, doubling, line, switching

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
ONE_HOST = TRACES / "microsoft__superbenchmark"
TWO_HOSTS = TRACES / "aws-samples__awsome-distributed-training" / "nccl-tests_slurm-104.out.gz"
CASES = tuple((count, disturbed) for disturbed in (0.0, 0.02) for count in (1, 3, 10))
HELD, FOUND, STRAIGHT, PUBLISHED = 0.95, 0.95, 0.99, 0.15


def straight(fits: int, made: Made, count: int) -> dict[str, float]:
    """Shares of fits whose intervals hold the constants, and which stay straight."""
    alphas = betas = both = whole = 0
    for _ in range(fits):
        (alpha, beta), sizes = made.constants(), made.grid()
        pieces = fit_curve(sizes, made.samples(sizes, line(alpha, beta), count)).pieces
        holds_alpha = all(piece.alpha.low <= alpha <= piece.alpha.high for piece in pieces)
        holds_beta = all(piece.beta.low <= beta <= piece.beta.high for piece in pieces)
        alphas, betas, both = alphas + holds_alpha, betas + holds_beta, both + (holds_alpha and holds_beta)
        whole += len(pieces) == 1
    return {"alpha": alphas / fits, "beta": betas / fits, "both": both / fits, "straight": whole / fits}


def switched(fits: int, count: int, disturbed: float) -> float:
    """Share of fits that find a planted switch within a factor of two."""
    made, found = Made(1000 + count, disturbed=disturbed), 0
    for _ in range(fits):
        sizes = made.grid()
        place = sizes[made.random.integers(4, len(sizes) - 4)]
        pieces = fit_curve(sizes, made.samples(sizes, switching(place), count)).pieces
        found += any(place / 2 <= piece.first <= place * 2 for piece in pieces[1:])
    return found / fits


def published() -> list[dict[str, Any]]:
    """What curves miss of each log, at worst and typically, from 1 MB on and below."""
    logs = [(path, None) for path in sorted(ONE_HOST.glob("nccl_*.log"))]
    logs += [(TWO_HOSTS, "scatter")] if TWO_HOSTS.exists() else []
    rows = []
    for path, op in logs:
        calibration = read_nccl_tests([path], op)
        for key, curve in calibration.curves.items():
            errors = {
                size: max(abs(curve.at(size) / ns - 1) for ns in times)
                for size, times in calibration.samples[key].items()
            }
            large = [error for size, error in errors.items() if size >= 10**6]
            small = [error for size, error in errors.items() if size < 10**6]
            rows.append(
                {
                    "op": key[0],
                    "ranks": key[2],
                    "hosts": key[3],
                    "pieces": len(curve.pieces),
                    "worst_from_1mb": max(large),
                    "median_from_1mb": median(large),
                    "worst_below_1mb": max(small),
                    "median_below_1mb": median(small),
                }
            )
    return rows


def seconds_of_a_fit() -> float:
    sizes = doubling(1024, 2**30)
    times = Made(1).samples(sizes, switching(2**20), 20)
    taken = []
    for _ in range(20):
        began = time.perf_counter()
        fit_curve(sizes, times)
        taken.append(time.perf_counter() - began)
    return median(taken)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=1000, help="of each case")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    asked = parser.parse_args()
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    machine["numpy"] = np.__version__
    print(" ".join(f"{name}={value}" for name, value in machine.items()))
    cases, missed = [], []
    print(f"{asked.fits} fits of each case; shares of them")
    print("samples  disturbed  alpha held  beta held  both held  straight kept  switch found")
    for count, disturbed in CASES:
        case = {
            "samples": count,
            "disturbed": disturbed,
            **straight(asked.fits, Made(count, disturbed=disturbed), count),
        }
        case["found"] = switched(asked.fits, count, disturbed)
        cases.append(case)
        shares = "  ".join(f"{case[name]:>10.1%}" for name in ("alpha", "beta", "both", "straight", "found"))
        print(f"{count:>7}  {disturbed:>9.0%}  {shares}", flush=True)
        limits = {"alpha": HELD, "beta": HELD, "both": HELD, "straight": STRAIGHT, "found": FOUND}
        missed += [f"{name} with {count} samples" for name, limit in limits.items() if case[name] < limit]
    uneven = []
    print("where sizes below 64 KiB have 20% noise and the others 2%; nothing is promised of it")
    for count in (1, 5, 20):
        case = {"samples": count, **straight(asked.fits, Made(count, noise=0.02, noisy_below=2**16), count)}
        uneven.append(case)
        shares = "  ".join(f"{case[name]:>10.1%}" for name in ("alpha", "beta", "both", "straight"))
        print(f"{count:>7}  {'':>9}  {shares}", flush=True)
    logs = published()
    print("published times: worst and median error" if logs else "no logs of nccl-tests here")
    for row in logs:
        print(
            f"  {row['op']:<15} {row['ranks']:>2} ranks on {row['hosts']}, {row['pieces']} pieces: from 1 MB on "
            f"{row['worst_from_1mb']:.1%} and {row['median_from_1mb']:.1%}, below {row['worst_below_1mb']:.1%} and "
            f"{row['median_below_1mb']:.1%}"
        )
        missed += [f"published {row['op']}"] if row["worst_from_1mb"] > PUBLISHED else []
    seconds = seconds_of_a_fit()
    print(f"a fit of 21 sizes takes {seconds * 1000:.1f} ms")
    if asked.json:
        numbers = {"machine": machine, "cases": cases, "uneven": uneven, "logs": logs, "seconds": seconds}
        asked.json.write_text(json.dumps({**numbers, "missed": missed}))
    print(f"missed: {', '.join(missed)}" if missed else "nothing missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

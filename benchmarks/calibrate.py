"""Whether a calibration finds what is there: hosts that are network namespaces, with links of a rate that we set.

    sudo python benchmarks/calibrate.py --rates 200 500 1000 --seconds 90 --json numbers.json

Two hosts with one rank each, for each rate: the bandwidth that is fitted against the rate that was set, and times that
are predicted from powers of two against those measured at other sizes. Then two hosts with two ranks each: whether
`across` is told from `host`. Ranks talk gloo. Exit code 1 means that a figure misses.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import msgspec
from namespaces import Place, Unavailable, hosts, run

from lostflops.account.facts.bandwidth import bus_factor
from lostflops.predict.costs.calibration import Calibration, read_calibration
from lostflops.predict.costs.times import OPS

SIZES = sorted([1 << power for power in range(10, 27)] + [3 << power for power in range(10, 26, 2)])
PREFERRED = ("chrt", "--rr", "1") if shutil.which("chrt") else ()
"""Real-time ranks are woken at once; others wait for the next tick of a busy core, which is longer than a small message
takes. The links are what is asked about here, not who else uses the machine."""
FARTHEST_RATE = 0.10
LARGEST_ERROR = 0.10
LEAST_RATIO = 2.0
"""By which `across` must be slower than `host`; links of hosts are that much slower than memory by far."""
TOLD_RATE = 500
LEAVING = 60
PORT = "29500"


def calibrated(count: int, per_host: int, mbit: float, seconds: float, sizes: list[int]) -> Calibration:
    """So many ranks on each of so many hosts."""
    with tempfile.TemporaryDirectory() as folder, hosts(count, mbit) as places:
        out = Path(folder) / "calibration.json"
        words = [*PREFERRED, sys.executable, "-W", "ignore", "-m", "lostflops.collect.calibrate", "--out", str(out)]
        words += ["--seconds", f"{seconds:g}", "--sizes", ",".join(map(str, sizes))]
        words += ["--device", "cpu", "--only", ",".join(OPS)]
        spread = [(place, local) for place in places for local in range(per_host)]
        run(
            [(place, words, settings(places, rank, local, len(spread))) for rank, (place, local) in enumerate(spread)],
            seconds + LEAVING,
        )
        return read_calibration(out)


def settings(places: list[Place], rank: int, local: int, world: int) -> dict[str, str]:
    numbers = {"RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    return {**numbers, "MASTER_ADDR": places[0].address, "MASTER_PORT": PORT, "TORCH_CPP_LOG_LEVEL": "ERROR"}


def is_power(size: int) -> bool:
    return size & (size - 1) == 0


def at_rate(mbit: float, seconds: float) -> dict[str, Any]:
    """What was fitted to powers of two, and how far it is from the rate and from what other sizes took."""
    whole = calibrated(2, 1, mbit, seconds, SIZES)
    known = msgspec.structs.replace(whole, collectives=tuple(one for one in whole.collectives if is_power(one.bytes)))
    rates = {
        f"{op} {level}": round(8e3 * (bus_factor(op, ranks) or 1) / curve.pieces[-1].beta.value, 1)
        for (op, level, ranks, _), curve in known.curves.items()
        if (op, level) in (("send_recv", "pair.across"), ("all_reduce", "across"))
    }
    errors = list(held_out(whole, known))
    found = sorted(abs(error) for *_, error in errors)
    return {
        "mbit": mbit,
        "fitted_mbit": rates,
        "largest": {f"{op} {level}": curve.sizes[1] for (op, level, *_), curve in known.curves.items()},
        "held_out": len(found),
        "median_error": round(median(found), 4),
        "p90_error": round(quantiles(found, n=10)[-1], 4),
        "median_error_by_op": by_op(errors),
        "median_error_from_256_kb": round(median(abs(error) for _, size, error in errors if size >= 1 << 18), 4),
        "is_right": len(rates) == 2
        and all(abs(rate / mbit - 1) <= FARTHEST_RATE for rate in rates.values())
        and median(found) < LARGEST_ERROR,
    }


def held_out(whole: Calibration, known: Calibration) -> Iterator[tuple[str, int, float]]:
    """Op and level, size, and relative error of the prediction, at sizes that the fit has not seen."""
    for one in whole.collectives:
        curve = known.curves.get((one.op, one.level, one.ranks, one.hosts))
        if curve is None or is_power(one.bytes) or not curve.sizes[0] <= one.bytes <= curve.sizes[1]:
            continue
        yield f"{one.op} {one.level}", one.bytes, curve.at(one.bytes) / median(one.ns) - 1


def by_op(errors: list[tuple[str, int, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for name, *_ in errors)
    return {name: round(median(abs(error) for each, _, error in errors if each == name), 4) for name in names}


def told_apart(seconds: float) -> dict[str, Any]:
    """Two ranks on each of two hosts: which levels there are, and how much slower one is than the other."""
    found = calibrated(2, 2, TOLD_RATE, seconds, [size for size in SIZES if is_power(size)])
    times = {(one.op, one.level, one.bytes): median(one.ns) for one in found.collectives}
    largest = max(size for op, level, size in times if (op, level) == ("all_reduce", "across"))
    ratio = times["all_reduce", "across", largest] / times["all_reduce", "host", largest]
    members = [list(host.ranks) for host in found.hosts]
    levels = sorted({level for _, level, _ in times})
    expected = ["across", "host", "pair.across", "pair.host", "ring", "world"]
    return {
        "hosts": members,
        "levels": levels,
        "bytes": largest,
        "across_over_host": round(ratio, 2),
        "is_right": members == [[0, 1], [2, 3]] and levels == expected and ratio >= LEAST_RATIO,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", default=[200, 500, 1000], help="Mbit/s")
    parser.add_argument("--seconds", type=float, default=90, help="of each calibration")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    machine = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "python": platform.python_version()}
    machine |= {"ranks_run": " ".join(PREFERRED) or "as others do"}
    print(machine, flush=True)
    found = []
    try:
        for rate in asked.rates:
            found.append(at_rate(rate, asked.seconds))
            print(json.dumps(found[-1], indent=1), flush=True)
        found.append(told_apart(asked.seconds))
        print(json.dumps(found[-1], indent=1), flush=True)
    except Unavailable as error:
        print(f"cannot be measured here: {error}", file=sys.stderr)
        return 2
    if asked.json:
        asked.json.write_text(json.dumps({"machine": machine, "figures": found}, indent=2))
    return 0 if all(each["is_right"] for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())

"""How wrong NCCL's tuner model is as a prediction: recorded logs of nccl-tests against the model of their machines.

    python benchmarks/nccl_model.py ../shared/traces

One log set is of 8x A100 behind NVSwitch in one process; its times hold 34 us of launching eight devices in turn. The
other is a scatter on two p4d.24xlarge, which is no op of the model: it tells what the network reached, and what fifteen
sends take together. Nothing is timed here, so the machine that runs this does not matter.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

from lostflops.core.units import format_bytes
from lostflops.predict.costs.nccl import nccl_times
from lostflops.predict.costs.nccl_tests import read_nccl_tests
from lostflops.predict.costs.times import OPS, CommGroup
from lostflops.predict.costs.topology import read_topology

SINGLE = "microsoft__superbenchmark"
DOUBLE = "aws-samples__awsome-distributed-training/nccl-tests_slurm-104.out.gz"
BANDS = (1 << 10, 1 << 20, 1 << 23, 1 << 26, 1 << 29, 1 << 34)


def ratios(traces: Path) -> Iterator[tuple[str, int, float, bool]]:
    """Op, size, measured over modelled, and whether the interval holds what was measured."""
    topology = read_topology("dgx-a100")
    calibration = read_nccl_tests(sorted((traces / SINGLE).glob("nccl_*.log")))
    for op in OPS:
        for size, samples in calibration.samples.get((op, "host", 8, 1), {}).items():
            time, measured = nccl_times(op, size, CommGroup(8), topology)[0], median(samples)
            yield op, size, measured / time.ns, time.low <= measured <= time.high


def print_single(traces: Path) -> None:
    found = list(ratios(traces))
    print("8x A100 in one host: measured over modelled, least to most, by size")
    edges = list(pairwise(BANDS))
    print("| op |" + "".join(f" {format_bytes(low)} to {format_bytes(high)} |" for low, high in edges))
    for op in dict.fromkeys(op for op, *_ in found):
        cells = []
        for low, high in edges:
            band = [ratio for name, size, ratio, _ in found if name == op and low <= size < high]
            cells.append(f" {min(band):.2f} to {max(band):.2f} |")
        print(f"| {op} |" + "".join(cells))
    print(f"In the interval: {sum(held for *_, held in found)} of {len(found)} sizes.\n")


def print_double(traces: Path) -> None:
    topology = read_topology("p4d.24xlarge")
    calibration = read_nccl_tests([traces / DOUBLE], op="scatter")
    samples = next(times for key, times in calibration.samples.items() if key[0] == "scatter")
    smallest, largest = min(samples), max(samples)
    rate = largest / 2 / median(samples[largest])
    counted = topology.nics_per_host * 12.0
    print("Scatter from one of 16 ranks on 2 hosts (p4d.24xlarge); half of the bytes cross the network")
    print(f"network: {rate:.1f} GB/s of {counted:.0f} that the model counts on, {counted / rate:.2f} times")
    inside, across = (nccl_times("send_recv", smallest, CommGroup(2, hosts), topology)[0].ns / 1000 for hosts in (1, 2))
    print(f"{smallest} B: {median(samples[smallest]) / 1000:.0f} us for 15 sends", end="; ")
    print(f"the model has {inside:.0f} us for one in the host, {across:.0f} us for one across")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    traces = parser.parse_args().traces
    print(f"Python {platform.python_version()}; logs of {SINGLE} and of {DOUBLE}\n")
    print_single(traces)
    print_double(traces)


if __name__ == "__main__":
    main()

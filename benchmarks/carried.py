"""How wrong times are that are carried from a small group to a larger one: gloo on 2, 4 and 8 hosts with slow links.

    python benchmarks/carried.py            # needs torch, root, ip and tc; about a minute

Hosts are network namespaces with links of a limited rate. Their ranks share the cores of one machine, which those of a
cluster do not, so that small sizes take the longer the more ranks there are: sizes begin where the links decide. All
groups are measured; then those of 4 and 8 hosts are predicted from that of 2 alone, and from 2 and 4.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from namespaces import Place, hosts, run

from lostflops.predict.costs.calibration import CalibratedCollective, Calibration
from lostflops.predict.costs.collective_times import CollectiveTimes
from lostflops.predict.costs.times import CommGroup, Op

COUNTS = (2, 4, 8)
SIZES = tuple(1 << power for power in range(18, 23))
OPERATIONS: tuple[Op, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
PORT = 29_511


def measure(result: Path, rounds: int) -> None:
    """Runs on every rank; the first writes all samples. A sample is that of the slowest rank."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    found: list[dict[str, object]] = []
    for size in SIZES:
        whole, part = torch.zeros(size // 4), torch.zeros(size // 4 // ranks)
        calls = {
            "all_reduce": lambda whole=whole: dist.all_reduce(whole),
            "all_gather": lambda whole=whole, part=part: dist.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda whole=whole, part=part: dist.reduce_scatter_tensor(part, whole),
            "all_to_all": lambda whole=whole: dist.all_to_all_single(torch.empty_like(whole), whole),
            "broadcast": lambda whole=whole: dist.broadcast(whole, 0),
        }
        for op, call in calls.items():
            samples = []
            for _ in range(rounds + 1):
                dist.barrier()
                start = time.perf_counter_ns()
                call()
                taken = torch.tensor([time.perf_counter_ns() - start])
                dist.all_reduce(taken, op=dist.ReduceOp.MAX)
                samples.append(int(taken))
            found.append({"op": op, "bytes": size, "ns": samples[1:]})
    if dist.get_rank() == 0:
        result.write_text(json.dumps(found))
    dist.destroy_process_group()


def measured(count: int, asked: argparse.Namespace) -> Iterator[CalibratedCollective]:
    with tempfile.TemporaryDirectory() as folder, hosts(count, asked.mbit) as places:
        result, rounds = Path(folder, "samples.json"), asked.rounds

        def command(rank: int, place: Place) -> tuple[Place, list[str], dict[str, str]]:
            words = [sys.executable, __file__, "--rank-writes", str(result), "--rounds", str(rounds)]
            address = {"MASTER_ADDR": places[0].address, "MASTER_PORT": str(PORT)}
            return place, words, {"RANK": str(rank), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1", **address}

        run([command(rank, place) for rank, place in enumerate(places)], seconds=300)
        for one in json.loads(result.read_text()):
            yield CalibratedCollective(
                level="across", ranks=count, hosts=count, at_once=1, **{**one, "ns": tuple(one["ns"])}
            )


def compare(samples: tuple[CalibratedCollective, ...], known: tuple[int, ...], wanted: int) -> None:
    calibration = Calibration(backend="gloo", collectives=tuple(one for one in samples if one.ranks in known))
    times = CollectiveTimes.of(calibration=calibration)
    print(f"\n{wanted} hosts from {' and '.join(map(str, known))}: predicted over measured, by size")
    for op in OPERATIONS:
        held, ratios = 0, []
        truth = {one.bytes: median(one.ns) for one in samples if (one.op, one.ranks) == (op, wanted)}
        for size, ns in truth.items():
            time = times.time(op, size, CommGroup(wanted, wanted))
            ratios.append(time.ns / ns)
            held += time.low <= ns <= time.high
        shown = " ".join(f"{ratio:5.2f}" for ratio in ratios)
        print(f"  {op:15} {shown}   in the interval: {held} of {len(ratios)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rank-writes", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank_writes:
        measure(asked.rank_writes, asked.rounds)
        return
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{machine}, links of {asked.mbit:g} Mbit/s")
    samples = tuple(one for count in COUNTS for one in measured(count, asked))
    print(f"sizes: {', '.join(map(str, SIZES))}")
    compare(samples, (2,), 4)
    compare(samples, (2,), 8)
    compare(samples, (2, 4), 8)


if __name__ == "__main__":
    main()

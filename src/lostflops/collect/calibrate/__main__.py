"""`torchrun ... -m lostflops.collect.calibrate --out FILE`: the program that every rank runs."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist

from lostflops.collect.calibrate.device import TABLES, roofline
from lostflops.collect.calibrate.job import CalibrationJob, join
from lostflops.collect.calibrate.levels import DEVICE, OPS, by_host, levels, uneven
from lostflops.collect.calibrate.machine import describe, place
from lostflops.collect.calibrate.measure import MeasuredCase, Measurer, most_bytes, process_groups
from lostflops.collect.calibrate.plan import sizes_up_to
from lostflops.collect.calibrate.progress import CalibrationProgress
from lostflops.collect.calibrate.result_file import facts, write
from lostflops.core.errors import LostflopsError, UsageError

_DEVICE_SHARE, _DEVICE_MOST = 0.15, 20.0
_ALL: Final = (*OPS, DEVICE)
_LONGEST: Final = 86_400
_SPENT: Final = 0.97
"""Share of the time that may be used; the rest is for leaving."""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lostflops.collect.calibrate", description="Measure this cluster.")
    parser.add_argument("--out", type=Path, required=True, help="the file to write, on the host of rank 0")
    parser.add_argument("--seconds", type=float, default=120.0, help="time limit in seconds (default: 120)")
    parser.add_argument("--only", default=",".join(_ALL), help=f"what to measure, of {','.join(_ALL)} (default: all)")
    parser.add_argument("--sizes", default="", help="in bytes, e.g. 1024,1048576 (default: powers of 2 from 1024)")
    parser.add_argument("--device", default=None, help="cpu, or the accelerator that torch finds (default)")
    found = parser.parse_args(words)
    found.only = list(dict.fromkeys(word for word in found.only.split(",") if word))
    if unknown := sorted(set(found.only) - set(_ALL)):
        parser.error(f"--only {','.join(unknown)} is unknown: choose from {', '.join(_ALL)}")
    try:
        found.sizes = sorted({int(word) for word in found.sizes.split(",") if word})
    except ValueError:
        parser.error(f"--sizes {found.sizes}: give whole numbers of bytes, such as 1024,4096")
    if found.sizes and found.sizes[0] < 1:
        parser.error(f"--sizes {found.sizes[0]}: give sizes above zero, such as 1024")
    if not 1 <= found.seconds <= _LONGEST:
        parser.error(f"--seconds {found.seconds:g}: give a number from 1 to {_LONGEST}")
    return found


def main() -> int:
    asked = arguments()
    job = None
    try:
        job = join(os.environ, asked.device, asked.seconds)
        calibrate(job, asked)
    except (LostflopsError, OSError, RuntimeError) as error:
        rank = f"rank {job.rank}: " if job is not None and job.world > 1 else ""
        print(f"lostflops: {rank}{advice(error)}", file=sys.stderr, flush=True)
        return error.exit_code if isinstance(error, LostflopsError) else 1
    except KeyboardInterrupt:
        return 130
    if job.world > 1:
        dist.destroy_process_group()
    return 0


def calibrate(job: CalibrationJob, asked: argparse.Namespace) -> None:
    if job.rank == 0 and not os.access(asked.out.absolute().parent, os.W_OK | os.X_OK):
        raise UsageError(f"{asked.out.absolute().parent} is not a writable folder; choose another --out.")
    if job.rank == 0 and asked.out.is_dir():
        raise UsageError(f"{asked.out} is a folder; --out needs a file.")
    progress = CalibrationProgress(job.rank == 0, asked.seconds)
    seconds = _SPENT * asked.seconds
    gc.disable()
    hosts = by_host(job.gather_objects(place()))
    described = job.gather_objects(describe())
    alone = job.world == 1
    tables: dict[str, Any] = {name: [] for name in TABLES}
    notes: list[str] = []
    if DEVICE in asked.only:
        tables = roofline(job, min(seconds if alone else _DEVICE_SHARE * seconds, _DEVICE_MOST), progress.say)
        notes += [] if alone else ["device figures are from rank 0, measured while all ranks did the same work"]
    cases: list[MeasuredCase] = []
    if not alone and asked.only != [DEVICE]:
        cases, said = _collectives(job, hosts, asked, progress)
        notes += said
    if job.rank == 0:
        measured = {"collectives": [row for case in cases for row in case.rows()], **tables, "notes": notes}
        spent = {"seconds": round(progress.elapsed, 1)}
        write({**facts(job, hosts, described), **spent, **measured}, asked.out)
    job.barrier()
    progress.close()


def _collectives(
    job: CalibrationJob, hosts: list[tuple[int, ...]], asked: argparse.Namespace, progress: CalibrationProgress
) -> tuple[list[MeasuredCase], list[str]]:
    found = levels(hosts)
    cases = [MeasuredCase(op, level) for level in found for op in level.ops if op in asked.only]
    if not cases:
        raise UsageError(f"--only {','.join(asked.only)} cannot be measured here.")
    sizes = asked.sizes or sizes_up_to(most_bytes(job, hosts))
    measurer = Measurer(job, cases, process_groups(job, found))
    measurer.run(sizes, progress, _SPENT * asked.seconds)
    said = uneven(hosts)
    return cases, [*([said] if said else []), *measurer.notes]


def advice(error: Exception) -> str:
    """Return what went wrong, and what to do."""
    text = str(error).strip()
    if isinstance(error, LostflopsError):
        return text
    lowered = text.lower()
    if "closed by peer" in lowered or "reset by peer" in lowered or "broken pipe" in lowered:
        return f"another rank has ended; see its output. PyTorch: {text}"
    if "timed out" in lowered or "timeout" in lowered:
        return (
            f"another rank did not answer; see its output, and check that hosts can reach each other. PyTorch: {text}"
        )
    if "connection" in lowered or "connect" in lowered:
        return f"cannot connect to the other ranks; set GLOO_SOCKET_IFNAME to the network to use. PyTorch: {text}"
    return text or repr(error)


if __name__ == "__main__":
    sys.exit(main())

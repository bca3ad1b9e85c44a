"""Ranks between network namespaces, each a host of its own whose link has a limited rate."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.namespaces import Place, Unavailable, hosts, run

from clinic.patients import NotHere
from clinic.record import PATIENCE, STEP_TIMES, Job, read_step_time, recorder

PORT = 29_533
BURST_KB = 256
_LOGGED = ("sh", "-c", 'exec "$@" >>"$0" 2>&1')


@dataclass(frozen=True, slots=True)
class Rates:
    """The rate of every link in Mbit/s, and of what the last host sends where it differs."""

    mbit: float
    last: float | None = None


def record_linked(job: Job, folder: Path, rates: Rates) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(f"{folder.name}.log")
    _run_linked(job, [*_LOGGED, str(log), *recorder(folder), sys.executable, *job.words], rates, {})
    if not (folder / "run.json").exists():
        raise RuntimeError(f"nothing was recorded; {log} has what was printed")
    return folder


def time_linked(job: Job, rates: Rates) -> float:
    """Run the job without a recorder and return its usual step time, in seconds."""
    with tempfile.TemporaryDirectory(prefix="clinic-") as folder:
        times, log = Path(folder) / "times.json", Path(folder) / "log"
        command = [*_LOGGED, str(log), sys.executable, *job.plain.words]
        _run_linked(job, command, rates, {STEP_TIMES: str(times)})
        return read_step_time(times)


def _run_linked(job: Job, command: Sequence[str], rates: Rates, more: Mapping[str, str]) -> None:
    if os.geteuid() != 0:
        raise NotHere("network namespaces need root")
    try:
        with hosts(job.ranks, rates.mbit, BURST_KB) as places:
            if rates.last is not None:
                _limit(places[-1], rates.last)
            common = {"WORLD_SIZE": str(job.ranks), "MASTER_ADDR": places[0].address, "MASTER_PORT": str(PORT), **more}
            common["OMP_NUM_THREADS"] = "1"
            run([(place, command, {**common, "RANK": str(rank)}) for rank, place in enumerate(places)], PATIENCE)
    except Unavailable as error:
        raise NotHere(str(error)) from None


def _limit(place: Place, mbit: float) -> None:
    limit = ("rate", f"{mbit}mbit", "burst", f"{BURST_KB}kb", "latency", "100ms")
    words = ["tc", "-n", place.name, "qdisc", "replace", "dev", place.interface, "root", "tbf", *limit]
    subprocess.run(words, check=True)

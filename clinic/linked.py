"""Ranks between network namespaces, each a host of its own whose link has a limited rate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.namespaces import Place, Unavailable, hosts, run

from clinic.patients import NotHere
from clinic.record import PATIENCE, Job, recorder

PORT = 29_533
BURST_KB = 256
_LOGGED = ("sh", "-c", 'exec "$@" >>"$0" 2>&1')


def record_linked(job: Job, folder: Path, mbit: float, slow: float | None = None) -> Path:
    """`slow` is the rate at which the last host sends, in Mbit/s, where that is another than that of all."""
    if os.geteuid() != 0:
        raise NotHere("network namespaces need root")
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(f"{folder.name}.log")
    command = [*_LOGGED, str(log), *recorder(folder), sys.executable, *job.words]
    try:
        with hosts(job.ranks, mbit, BURST_KB) as places:
            if slow is not None:
                _limit(places[-1], slow)
            common = {"WORLD_SIZE": str(job.ranks), "MASTER_ADDR": places[0].address, "MASTER_PORT": str(PORT)}
            common["OMP_NUM_THREADS"] = "1"
            run([(place, command, {**common, "RANK": str(rank)}) for rank, place in enumerate(places)], PATIENCE)
    except Unavailable as error:
        raise NotHere(str(error)) from None
    if not (folder / "run.json").exists():
        raise RuntimeError(f"nothing was recorded; {log} has what was printed")
    return folder


def _limit(place: Place, mbit: float) -> None:
    limit = ("rate", f"{mbit}mbit", "burst", f"{BURST_KB}kb", "latency", "100ms")
    words = ["tc", "-n", place.name, "qdisc", "replace", "dev", place.interface, "root", "tbf", *limit]
    subprocess.run(words, check=True)

"""Four ranks of `ranks_job.py` as real processes: on this host, or on two that are network namespaces."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration import ranks_job
from tests.integration.ranks_job import RANKS

LONGEST = 240
"""Seconds that the jobs may take; on two free cores it is a tenth."""


class Place(NamedTuple):
    """Where one rank runs."""

    command: tuple[str, ...]
    interface: str
    init: str
    host: str | None = None


def one_host(folder: Path) -> list[Place]:
    return [Place((), "lo" if sys.platform == "linux" else "lo0", f"file://{folder}/store")] * RANKS


@contextmanager
def two_hosts(names: Sequence[str]) -> Iterator[list[Place]]:
    """Half of the ranks on each of two hosts, joined by a cable; both are gone afterwards."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("network namespaces need root on Linux")
    if missing := [tool for tool in ("ip", "tc", "unshare") if shutil.which(tool) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    spaces = [f"lostflops-{os.getpid()}-{name}" for name in names]
    made: list[str] = []
    try:
        for space in spaces:
            _ip("netns", "add", space)
            made.append(space)
        _ip("-n", spaces[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", spaces[1])
        for number, space in enumerate(spaces, start=1):
            _ip("-n", space, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                _ip("-n", space, "link", "set", interface, "up")
        yield [
            Place(("ip", "netns", "exec", space, "unshare", "--uts"), "eth0", "tcp://10.77.0.1:29500", name)
            for space, name in zip(spaces, names, strict=True)
            for _ in range(RANKS // 2)
        ]
    finally:
        for space in made:
            subprocess.run(["ip", "netns", "delete", space], check=False)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def run_jobs(folder: Path, names: Sequence[str], places: Sequence[Place]) -> None:
    """All ranks, to the end of all jobs; none is left behind."""
    ranks = [_start(folder, names, rank, place) for rank, place in enumerate(places)]
    until = time.monotonic() + LONGEST
    try:
        while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
            assert time.monotonic() < until, f"the jobs take longer than {LONGEST} s:\n{_said(folder)}"
            time.sleep(0.1)
        with suppress(subprocess.TimeoutExpired):
            for rank in ranks:
                rank.wait(5)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if any(rank.returncode for rank in ranks):
        if unconnected := list(folder.glob("unconnected*")):
            pytest.skip(f"no process group: {unconnected[0].read_text()[-500:]}")
        pytest.fail(f"the jobs failed:\n{_said(folder)}")


def _start(folder: Path, names: Sequence[str], rank: int, place: Place) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "INIT": place.init,
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": place.interface,
        "TORCH_FR_BUFFER_SIZE": "2000",
    }
    if place.host:
        environment["HOST"] = place.host
    command = [*place.command, sys.executable, str(ranks_job.__file__), str(folder), *names]
    with (folder / f"log{rank}").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


def _said(folder: Path) -> str:
    return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(folder.glob("log*")))

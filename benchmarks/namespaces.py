"""Hosts that are network namespaces on a common bridge, each with a link of limited rate: for benchmarks and tests.

    with hosts(2, mbit=500) as places:
        run(places, [["python", "rank.py"], ["python", "rank.py"]])

Needs root, `ip` and `tc`; `Unavailable` says what is missing. A link is limited in both directions (`tc tbf`), so that
what a host sends and what it receives each get the rate. Everything that was made is taken down again, also where the
program is terminated.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


class Unavailable(Exception):
    """Namespaces cannot be made here, and why."""


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace: `command` puts a program into it, with a host name of its own."""

    name: str
    address: str
    interface: str = "eth0"

    @property
    def command(self) -> list[str]:
        rename = f'hostname {self.name.rpartition("-")[2]} && exec "$@"'
        return ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", rename, "sh"]


@contextmanager
def hosts(count: int, mbit: float | None = None, burst_kb: int = 64) -> Iterator[list[Place]]:
    """So many namespaces on one bridge; the bridge lives in one of its own. Bursts of less than a large segment (some
    66 KB) make the kernel cut it into packets, which costs as much CPU time as all else that it does for them."""
    if missing := [tool for tool in ("ip", "tc", "unshare", "hostname") if shutil.which(tool) is None]:
        raise Unavailable(f"not installed: {', '.join(missing)}")
    prefix = f"lf{os.getpid()}"
    bridge = f"{prefix}-bridge"
    places = [Place(f"{prefix}-host{number}", f"10.78.0.{number + 1}") for number in range(count)]
    made: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for space in (bridge, *(place.name for place in places)):
            _do("ip", "netns", "add", space)
            made.append(space)
        _do("ip", "-n", bridge, "link", "add", "br0", "type", "bridge")
        _do("ip", "-n", bridge, "link", "set", "br0", "up")
        for number, place in enumerate(places):
            _join(place, bridge, f"port{number}", (mbit, burst_kb))
        yield places
    finally:
        for space in made:
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


def _join(place: Place, bridge: str, port: str, limited: tuple[float | None, int]) -> None:
    mbit, burst_kb = limited
    _do("ip", "-n", bridge, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", place.name)
    _do("ip", "-n", bridge, "link", "set", port, "master", "br0", "up")
    _do("ip", "-n", place.name, "address", "add", f"{place.address}/24", "dev", "eth0")
    for interface in ("lo", "eth0"):
        _do("ip", "-n", place.name, "link", "set", interface, "up")
    if mbit is not None:
        for space, interface in ((place.name, "eth0"), (bridge, port)):
            limit = ("rate", f"{mbit}mbit", "burst", f"{burst_kb}kb", "latency", "100ms")
            _do("tc", "-n", space, "qdisc", "add", "dev", interface, "root", "tbf", *limit)


def _do(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(words)}: {done.stderr.strip()}")


def run(commands: Sequence[tuple[Place, Sequence[str], Mapping[str, str]]], seconds: float) -> None:
    """Run all commands, each in its place with its additions to the environment, to their ends; none is left behind."""
    processes = [
        subprocess.Popen([*place.command, *words], env={**os.environ, "GLOO_SOCKET_IFNAME": place.interface, **extra})
        for place, words, extra in commands
    ]
    until = time.monotonic() + seconds
    try:
        while any(process.poll() is None for process in processes):
            if failed := [process.args for process in processes if process.poll()]:
                raise RuntimeError(f"failed: {failed[0]}")
            if time.monotonic() > until:
                raise TimeoutError(f"still running after {seconds:g} s")
            time.sleep(0.05)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    if failed := [process.args for process in processes if process.returncode]:
        raise RuntimeError(f"failed: {failed[0]}")

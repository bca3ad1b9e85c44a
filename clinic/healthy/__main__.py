"""Record healthy jobs again: `python -m clinic.healthy NAME ... [--busy]`."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from clinic.healthy import HEALTHY, RECORDINGS

_LONGEST: Final = 1.0
"""Seconds that the background load computes or sleeps at most, in turn."""


def main() -> None:
    names = [patient.name.removeprefix("healthy_recorded_") for patient in HEALTHY]
    parser = argparse.ArgumentParser(prog="python -m clinic.healthy", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *names], metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--busy", action="store_true", help="beside a process that computes half of the time")
    parser.add_argument("-o", "--out", type=Path, default=RECORDINGS, metavar="DIR", help="where recordings go")
    asked = parser.parse_args()
    for name, patient in zip(names, HEALTHY, strict=True):
        if name in (asked.names or names):
            with tempfile.TemporaryDirectory() as folder, _background_load(asked.busy):
                run = patient.make(Path(folder) / name, False)
                packed = pack(run, asked.out / f"{name}.{'busy' if asked.busy else 'quiet'}.tar.xz")
            print(f"{packed}: {packed.stat().st_size / 1e3:.0f} kB", flush=True)


def pack(run: Path, to: Path) -> Path:
    """Pack the capture of a run: an ingest makes everything else again."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(to, "w:xz", preset=9) as archive:
        archive.add(run / "capture", "capture")
    return to


@contextmanager
def _background_load(is_busy: bool) -> Iterator[None]:
    program = [sys.executable, "-c", "from clinic.healthy.__main__ import compute_in_turns; compute_in_turns()"]
    load = subprocess.Popen(program) if is_busy else None
    try:
        yield
    finally:
        if load is not None:
            load.kill()
            load.wait()


def compute_in_turns() -> None:
    """Compute and sleep in turns of random lengths, until killed."""
    while True:
        end = time.monotonic() + random.uniform(0, _LONGEST)
        while time.monotonic() < end:
            pass
        time.sleep(random.uniform(0, _LONGEST))


if __name__ == "__main__":
    main()

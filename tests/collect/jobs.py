"""Real commands, run plainly and recorded, and what came of both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lostflops.collect.capture import SUFFIX, Frame, read_frames
from lostflops.collect.command import recorded_environment
from lostflops.collect.settings import Settings

LONGEST = 400
"""Seconds that a command may take; on two free cores it is a twentieth."""
PYTHON = sys.executable


@dataclass(frozen=True)
class Done:
    code: int
    """Negative: the signal that ended it."""
    stdout: bytes
    stderr: bytes
    seconds: float


def plain_environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **more}


def recorded(folder: Path, environment: Mapping[str, str] | None = None, **settings: Any) -> dict[str, str]:
    """The environment that `lostflops run` gives a command, with `folder` as the capture."""
    return recorded_environment(
        environment or plain_environment(), Settings(folder=folder, **{"steps": "none"} | settings)
    )


def run_words(out: Path, *flags: str) -> list[str]:
    return [PYTHON, "-m", "lostflops", "run", "--out", str(out), *flags, "--"]


def finish(words: Sequence[str], environment: Mapping[str, str] | None = None, **more: Any) -> Done:
    began = time.monotonic()
    done = subprocess.run(
        words, env=environment or plain_environment(), capture_output=True, timeout=LONGEST, check=False, **more
    )
    return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


@contextmanager
def started(words: Sequence[str], environment: Mapping[str, str] | None = None, **more: Any) -> Iterator[Any]:
    """A command that is gone afterwards, whatever happens."""
    process = subprocess.Popen(
        words, env=environment or plain_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def captures(folder: Path) -> list[Path]:
    return sorted(folder.rglob(f"*{SUFFIX}"))


def frames_of(path: Path) -> list[Frame]:
    return read_frames(path)[0]


def records(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """All records of a capture, files in order of their names."""
    found = [record for path in captures(folder) for frame in frames_of(path) for record in frame.records]
    return [record for record in found if kind in (None, record["kind"])]


def dropped(folder: Path) -> int:
    """Records that sessions say they lost."""
    last = {frame.session: frame.dropped for path in captures(folder) for frame in frames_of(path)}
    return sum(last.values())


def without_gloo(text: str) -> str:
    """Return the output of a job without what torch before 2.11 prints about connections, from all ranks at once."""
    return re.sub(
        r"\[Gloo\] Rank |\d+ is connected to \d+ peer ranks\.| Expected number of connected peer ranks is : \d+\n",
        "",
        text,
    )

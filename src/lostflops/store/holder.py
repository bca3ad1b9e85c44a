"""Who holds the lock of a run: it signs the lock's file, so that others can say whom they wait for."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from lostflops.core.errors import RunBusy

_EARLY, _INGEST = "early", "ingest"
_SIGNED: Final = re.compile(rf"({_EARLY}|{_INGEST}) (\d{{1,10}}) ([A-Za-z0-9._-]{{1,253}})")


def sign(lock: int, *, is_early: bool) -> None:
    with suppress(OSError):  # a disk that is full will be told of by what is written
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{_EARLY if is_early else _INGEST} {os.getpid()} {socket.gethostname()}".encode(), 0)


def busy(folder: Path, lock: int) -> RunBusy:
    """What to say of a lock that another process holds."""
    signed = _SIGNED.fullmatch(os.pread(lock, 512, 0).decode(errors="replace"))
    who = f" (process {signed[2]} on {signed[3]})" if signed else ""
    if signed is None or signed[1] != _EARLY:
        return RunBusy(f"another ingest{who} is writing to {folder}. Wait, or choose another folder.")
    said = f"the job of {folder} is adding its newest window to the run{who}, at idle priority"
    error = RunBusy(f"{said}. Wait, or choose another folder.")
    error.is_early = True
    return error

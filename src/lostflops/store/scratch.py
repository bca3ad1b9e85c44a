"""Temporary folders that do not outlive their process for long: whoever makes the next one removes abandoned ones.

A folder in use is locked. The lock ends with the process that holds it, also if that is killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

# With the host: a lock may hold on one host only, and hosts may share the folder.
_PREFIX: Final = f"lostflops-scratch-{socket.gethostname()}-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder, which is removed afterwards."""
    remove_abandoned()
    while True:
        with TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name, ExitStack() as stack:
            folder = Path(name)
            with suppress(FileNotFoundError):
                stack.enter_context(locked(folder))
            if folder.exists():  # another process may have removed it before it was locked
                yield folder
                return


def remove_abandoned() -> None:
    """Remove temporary folders of this user whose process has ended."""
    for folder in Path(gettempdir()).glob(f"{_PREFIX}*"):
        # If it cannot be locked, it is in use, or it belongs to somebody else.
        with suppress(OSError), locked(folder, is_needed=True):
            if folder.lstat().st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(folder: Path, *, is_needed: bool = False) -> Iterator[bool]:
    """Lock a folder, after waiting for its lock, and yield whether it is locked: some file systems have no locks.

    If the lock `is_needed`, raise OSError instead if it is not free.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        is_locked = False
        with suppress(*(() if is_needed else (OSError,))):
            fcntl.flock(lock, fcntl.LOCK_EX | (fcntl.LOCK_NB if is_needed else 0))
            is_locked = True
        yield is_locked
    finally:
        os.close(lock)

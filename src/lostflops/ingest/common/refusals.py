"""Refusals of one source: an error while it is read must not end the ingest of the others."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import duckdb

from lostflops.core.defects import describe_defect
from lostflops.core.errors import BrokenSource, LostflopsError, RankConflict, SourceError
from lostflops.core.limits import LARGEST_WORLD, MOST_ATTEMPTS, MOST_RANKS, is_rank
from lostflops.store.asking import INTERRUPTED

_OF_MACHINE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE})
"""Errors that every other source would meet too."""

_NO_DEFECTS: Final = (duckdb.IOException, duckdb.InterruptException, duckdb.OutOfMemoryException)
T = TypeVar("T")


class ProgressFailed(BaseException):
    """The caller's progress report failed: that is not an error of the source that is read meanwhile."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def guard(report: Callable[[T], None]) -> Callable[[T], None]:
    """Return the report with its errors as `ProgressFailed`."""

    def guarded(progress: T) -> None:
        try:
            report(progress)
        except Exception as error:  # noqa: BLE001 - it is raised again where it belongs
            raise ProgressFailed(error) from None

    return guarded


def is_defect(error: Exception) -> bool:
    """Return whether an error is neither ours nor one of the disk, of the database's memory or of an interrupt."""
    return not isinstance(error, (LostflopsError, OSError, *_NO_DEFECTS)) and str(error) != INTERRUPTED


def refusal_of(error: Exception, address: str, staging: Path | None = None) -> SourceError | None:
    """Return the error as a refusal of the source; None if it is not about this source alone.

    An error that Lostflops does not raise on purpose is a defect, and the refusal says so. Errors of the disk that is
    written to, below `staging`, are not about a source.
    """
    if isinstance(error, LostflopsError):
        if not isinstance(error, SourceError) or isinstance(error, RankConflict):
            return None
        is_named = Path(address).name in str(error)
        return error if is_named else type(error)(f"{address}: {error}")
    if isinstance(error, OSError):
        if error.errno in _OF_MACHINE or (staging is not None and _is_below(error.filename, staging)):
            return None
        return BrokenSource(f"{address} cannot be read: {error.strerror or error}. Check the file and its permissions.")
    if not is_defect(error):
        return None
    return BrokenSource(f"{address} cannot be read: {describe_defect(error)}.")


def _is_below(name: object, folder: Path) -> bool:
    return isinstance(name, (str, bytes)) and Path(os.fsdecode(name)).is_relative_to(folder)


def refuse_large_job(address: object, rank: int, world_size: int | None) -> None:
    """Raise if a source states a rank or a world size that no job has."""
    if not is_rank(rank):
        raise _too_large(str(address), f"rank {rank:,}")
    if world_size is not None and world_size > LARGEST_WORLD:
        raise _too_large(str(address), f"a world size of {world_size:,}")


def refuse_many_ranks(address: object, ranks: int) -> None:
    """Raise if a source has rows of more ranks than any job."""
    if ranks > MOST_RANKS:
        raise BrokenSource(
            f"{address} has {ranks:,} ranks, but Lostflops reads up to {MOST_RANKS:,} from a file. "
            "Write a file for each part of the job, and ingest the parts that you need."
        )


def refuse_many_attempts(attempts: int) -> None:
    """Raise if captures show more attempts than any job has."""
    if attempts > MOST_ATTEMPTS:
        raise BrokenSource(
            f"the captures are of more than {MOST_ATTEMPTS:,} attempts of a job, counted by world size, restarts and "
            "time. Ingest the captures of fewer attempts."
        )


def refuse_large_member(group: str, rank: int) -> None:
    """Raise if the highest rank of a process group is one that no job has."""
    if rank >= LARGEST_WORLD:
        raise _too_large(f"process group {group[:80]!r}", f"rank {rank:,}")


def _too_large(what: str, number: str) -> BrokenSource:
    return BrokenSource(
        f"{what} states {number}, but Lostflops accepts jobs of up to {LARGEST_WORLD:,} ranks. "
        "The number is wrong: record the trace again."
    )

"""Traces that are not written yet when a job has ended: wait for them, and say how to add them to the run later."""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lostflops.cli.output import command, tell
from lostflops.collect.capture import SUFFIX, host_file, trace_of

if TYPE_CHECKING:
    from lostflops.collect.export import Missing
    from lostflops.collect.gather import Gatherer

_PATIENCE: Final = 120
_QUIET: Final = 5
"""After this many seconds of waiting, a message says what is missing."""
_MOST_LEFT_OUT: Final = 3
_FINISHED: Final = "rank-*[sz]"
"""Pattern for traces, raw and reduced, without those that are still being written."""


def wait_for_exports(folder: Path) -> None:
    """Wait for traces: separate processes write them, which may outlive the command."""
    from lostflops.collect.export import pending

    began, is_said = time.monotonic(), False
    while (late := pending(folder)) and (waited := time.monotonic() - began) < _PATIENCE:
        if waited > _QUIET and not is_said:
            is_said = True
            tell(f"the job has ended; {_whose(late)} still being written to {folder}: waiting up to {_PATIENCE} s.")
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class LatePlaces:
    """Folders of a job on this host."""

    local: Path
    """Folder that ranks of this host write to."""
    capture: Path
    """Folder in which everything is gathered; may be the same."""
    run: Path
    """The run that it becomes."""

    @property
    def is_spooled(self) -> bool:
        return self.local != self.capture


def conclude(places: LatePlaces, gatherer: Gatherer | None = None) -> None:
    """Wait for traces, gather everything in the capture, and report what is missing."""
    from lostflops.collect.export import missing

    try:
        if gatherer is not None:
            with suppress(OSError):  # it is said below
                gatherer.gather()
        wait_for_exports(places.local)
    finally:  # who interrupts the wait loses nothing
        try:
            _tell_of(gatherer.finish() if gatherer is not None else missing(places.local), places)
        except OSError as error:
            if gatherer is None:
                raise
            _tell_of_all(places, error.strerror or str(error))
        except KeyboardInterrupt:
            if gatherer is not None and places.local.is_dir():
                _tell_of_all(places, "interrupted")
            raise


def _tell_of(missing: Missing, places: LatePlaces) -> None:
    if missing.late:
        where = f"{places.local} on {socket.gethostname()} (kept)" if places.is_spooled else f"{places.local}"
        words = [_build_move_command(places)] if places.is_spooled else []
        tell(
            f"{_whose(missing.late)} still being written to {where}, so not in the run yet. "
            f"To add it later: {' && '.join([*words, add_command(places)])}"
        )
    by_reason: dict[str, list[Path]] = {}
    for trace, reason in missing.failed.items():
        by_reason.setdefault(reason, []).append(trace)
    for reason, traces in by_reason.items():
        tell(f"{_whose(traces)} missing: {reason}.")


def _tell_of_all(places: LatePlaces, reason: str) -> None:
    """Say how to add the records of this host later. They are appended to the host's file, which may have a record
    twice; but a capture with a rank in two files has two attempts of it."""
    from lostflops.collect.export import pending

    host = socket.gethostname()
    if not places.local.is_dir():
        tell(f"{places.local} on {host} is gone: the last records of its ranks are lost.")
        return
    target = shlex.quote(str(host_file(places.capture, host)))
    words = [f"cat {shlex.quote(str(places.local))}/rank-*{SUFFIX} >> {target}"]
    if any(places.local.glob(_FINISHED)) or pending(places.local):
        words.append(_build_move_command(places))
    tell(
        f"cannot copy the records of this host to {places.capture}: {reason}. They are kept in {places.local} on "
        f"{host}. To add them later: {' && '.join([*words, add_command(places)])}"
    )


def tell_of_left_out(skipped: Sequence[tuple[str, str]], all_of_them: str) -> None:
    """Report the files of a capture that were skipped: broken ones before older windows, which are whole."""
    ordered = sorted(skipped, key=lambda one: not Path(one[0]).exists())
    for path, reason in ordered[:_MOST_LEFT_OUT]:
        tell(f"skipped {path}: {reason}")
    if len(ordered) > _MOST_LEFT_OUT:
        tell(f"skipped {len(ordered) - _MOST_LEFT_OUT} more; to see all: {all_of_them}")


def add_command(places: LatePlaces) -> str:
    return command("ingest", places.capture, "-o", places.run)


def _build_move_command(places: LatePlaces) -> str:
    return f"mv {shlex.quote(str(places.local))}/{_FINISHED} {shlex.quote(str(places.capture))}"


def _whose(traces: Sequence[Path]) -> str:
    """Name the ranks and windows of traces, as the subject of a sentence.

    >>> _whose([Path("rank-00003.w0001.json.gz"), Path("rank-00004.w0001.json.gz")])
    'the traces of ranks 3-4 (window 1) are'
    """
    from lostflops.explain.analyze.hang import ranks_text

    places = [found for trace in traces if (found := trace_of(trace.name)) is not None]
    ranks, windows = ({place[which] for place in places} for which in (0, 1))
    which = f"{'ranks' if len(ranks) > 1 else 'rank'} {ranks_text(ranks)}"
    of = f"{'windows' if len(windows) > 1 else 'window'} {ranks_text(windows)}"
    return f"the traces of {which} ({of}) are" if len(traces) > 1 else f"the trace of {which} ({of}) is"

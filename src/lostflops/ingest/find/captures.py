"""Files of a capture folder that a run takes: all records, and the deep windows that all ranks have.

The ranks of a run must cover the same steps. So a run takes the windows that the most ranks have, the newest
`MOST_WINDOWS` of them; `join.windows` makes one timeline of a rank's windows. Windows that fewer ranks have, because
they are still being written or were requested of some ranks, stay on disk; named as files they go into a run of their
own. A raw trace that was kept next to its reduced form is read only if that is broken.

An attempt overwrites the windows of the previous attempt, with the same numbers, but not those of ranks that it does
not have, nor those that it does not reach. Such a window covers other steps than the others, and is left out
(`of_older_attempts`, and `join.windows` within a rank).
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Final

from lostflops.collect.capture import FOLDER, WINDOWS, is_raw, is_unfinished, reduced_form, trace_of
from lostflops.core.units import pluralise
from lostflops.ingest.formats.capture import reader as capture
from lostflops.store.manifest import Source
from lostflops.store.places import Place, place_of

MOST_WINDOWS: Final = 8
"""Windows that a run takes from a capture folder, so that a job that repeats them stays bounded."""
Left = tuple[str, str]
"""Files that were left out, and why."""


def is_collectors(path: Place) -> bool:
    """Return whether it is a file of the collector that is not to be read.

    It requests a deep window, or is about to become a trace.
    """
    is_request = path.parent.name == WINDOWS and path.parent.parent.name == FOLDER
    return is_request or is_unfinished(path.name)


def raw_twins(paths: Collection[Place]) -> set[Place]:
    """Return the raw traces whose reduced form is there too."""
    there = set(paths)
    return {path for path in there if trace_of(path.name) and is_raw(path.name) and reduced_form(path) in there}


def read_instead(reason: str) -> str:
    """Return why a reduced trace was left out although its raw twin was read."""
    return f"{reason.removesuffix('.')}; the raw trace next to it is used instead"


def forms(path: Place) -> set[str]:
    """Return the paths that a file may have in a run: a raw trace is read if its reduced form is broken."""
    is_raw_trace = trace_of(path.name) is not None and is_raw(path.name)
    return {str(path), str(reduced_form(path))} if is_raw_trace else {str(path)}


def other_windows(paths: Sequence[Place], written: Callable[[Place], int]) -> tuple[set[Place], list[Left]]:
    """Return the traces of each capture folder that are not in the windows to take, with a message for each window.

    `written` returns when a file was written.
    """
    windows: dict[Place, dict[int, list[Place]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        if (found := trace_of(path.name)) is not None:
            windows[path.parent][found[1]].append(path)
    gone: set[Place] = set()
    left: list[Left] = []
    for folder, by_number in windows.items():
        most = max(map(len, by_number.values()))
        whole = sorted((max(map(written, own)), number) for number, own in by_number.items() if len(own) == most)
        taken = {number for _, number in whole[-MOST_WINDOWS:]}
        for number in sorted(by_number.keys() - taken):
            gone.update(by_number[number])
            left.append(_describe_left_window(folder, number, by_number[number], most))
    return gone, left


def _describe_left_window(folder: Place, number: int, traces: Sequence[Place], most: int) -> Left:
    forms = sorted({path.name.partition(f".w{number:04d}")[2] for path in traces})
    patterns = [str(folder / f"rank-*.w{number:04d}{form}") for form in forms]
    out = folder.with_name(f"{folder.name}-w{number:04d}")
    if folder.name == FOLDER:
        out = folder.parent.with_name(f"{folder.parent.name}-w{number:04d}")
    words = shlex.join(["lostflops", "ingest", *patterns, "-o", str(out)])
    why = f"but other windows have {most}" if len(traces) < most else f"but only the {MOST_WINDOWS} newest are used"
    held = f"{pluralise(len(traces), 'trace')} of window {number}, {why}"
    return " ".join(patterns), f"{held}. To read it into a separate run: {words}"


def find_superseded(found: Sequence[Place], known: Sequence[Source]) -> set[str]:
    """Return the traces of the run whose folder now has another window, or the same window in another form."""
    chosen: dict[Place, dict[tuple[int, int], str]] = defaultdict(dict)
    windows: dict[Place, set[int]] = defaultdict(set)
    for path in found:
        if (trace := trace_of(path.name)) is not None:
            chosen[path.parent][trace] = path.name
            windows[path.parent].add(trace[1])
    return {
        source.path
        for source in known
        if (trace := trace_of((path := place_of(source.path)).name)) is not None
        and path.parent in windows
        and (trace[1] not in windows[path.parent] or chosen[path.parent].get(trace, path.name) != path.name)
    }


def of_older_attempts(held: Sequence[tuple[int, int]]) -> set[int]:
    """Return the ranks whose trace is from an older attempt than others, given rank and attempt of each trace.

    >>> of_older_attempts([(0, 1), (1, 0), (2, 1)])
    {1}
    """
    newest = max((attempt for _, attempt in held), default=0)
    return {rank for rank, attempt in held if attempt < newest}


def left_by_older_attempt(source: Source) -> Left:
    return source.path, "it is from an older attempt than other traces: a run has windows of one attempt only"


def belong_together(known: Sequence[Source], fresh: Sequence[Place], gone: set[str]) -> set[str]:
    """Return the captures of the run that must be read again, even if they are unchanged or were not named.

    A rank may be in the files of several hosts, and another of these files changed. And if a trace leaves the run,
    facts that the run took from the trace must come from the capture again.
    """
    folders = {path.parent for path in (*fresh, *map(place_of, gone))}
    return {
        source.path
        for source in known
        if source.format == capture.NAME
        and place_of(source.path).parent in folders
        and (gone or not place_of(source.path).name.startswith("rank-"))
    }

"""Several windows of a rank joined into one timeline: events and lanes are numbered across all of them.

A profiler that records the same process several times leaves a file each time. Lanes are the same in all of them,
events, correlations and groups are not. It works on written rows, before the commit: rows of the first window stay as
they are, those of later ones get numbers that follow. Time between windows was not recorded and belongs to no step.

Files that claim one rank are windows of it if one process wrote them at different times. In a capture folder only the
newest process counts, since an attempt may leave windows that the next one does not reach. Other files of several
processes are refused. A window without a whole step, or with numbers of steps that a newer one has, is left out. Memory
is that of the last window: which blocks came and went between two was not recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb

from lostflops.collect.capture import trace_of
from lostflops.ingest.find.captures import Left, left_by_older_attempt
from lostflops.ingest.find.sources import rank_conflict
from lostflops.ingest.formats.kineto import reader as kineto
from lostflops.ingest.join.written_ranks import Columns, WrittenRanks, in_stretches
from lostflops.store.commit import RunWriter
from lostflops.store.connections import connect
from lostflops.store.manifest import DataFile, Source
from lostflops.store.parquet import ParquetWriter, scan
from lostflops.store.places import place_of
from lostflops.store.tables import (
    ATTEMPTS,
    COLLECTIVES,
    EVENTS,
    GROUPS,
    LANES,
    LINKS,
    MEMORY,
    STATS,
    STEPS,
    TableSchema,
)

Files = dict[str, list[DataFile]]
Lane = tuple[Any, ...]
"""Values that identify a lane of a process."""
_NO_STEP: Final = "it has no whole step, so it cannot be combined with other windows of its rank"
_SAME_STEPS: Final = "it has the same step numbers as a newer window of its rank: a run has each step only once"
_MOST_LISTED: Final = 10_000
"""Lanes up to this number are renumbered by a list, which is faster than a map."""
_LANE_COLUMNS: Final = {
    EVENTS: ("lane",), COLLECTIVES: ("lane",), STEPS: ("lane",), LANES: ("lane",), MEMORY: ("lane",),
    LINKS: ("from_lane", "to_lane"),
}  # fmt: skip


_SHIFTED: Final = (("event", 0), ("correlation", 1), ("wait_correlation", 1), ("external_id", 2))
"""Columns with numbers that are shifted, and the index into `_Window.shift`."""


class WindowBatch(NamedTuple):
    """Files that were read together: at most one file of each rank."""

    sources: list[Source]
    files: Files


@dataclass(slots=True, kw_only=True)
class _Window:
    """One window of a rank, and how its numbers change."""

    source: Source
    batch: int
    process: int | None = None
    attempt: int | None = None
    start: int = 0
    stop: int = 0
    steps: set[int] = field(default_factory=set)
    lanes: dict[int, Lane] = field(default_factory=dict)
    calls: Counter[tuple[str | None, int]] = field(default_factory=Counter)
    events: int = 0
    correlations: int = 0
    externals: int = 0
    shift: tuple[int, int, int] = (0, 0, 0)
    """Added to the numbers of events, correlations and external ids."""
    lane: dict[int, int] = field(default_factory=dict)
    new_lanes: set[int] = field(default_factory=set)
    ordinals: dict[str, int] = field(default_factory=dict)

    @property
    def is_of_capture(self) -> bool:
        return trace_of(place_of(self.source.path).name) is not None


def join_windows(run: RunWriter, files: Files, batches: Sequence[WindowBatch]) -> list[tuple[Source, Left]]:
    """Combine all windows of each rank into one timeline, and return what is left out, and why; `files` is changed."""
    counts = Counter(source.rank for one in batches for source in one.sources if source.format == kineto.NAME)
    ranks = {rank for rank, count in counts.items() if count > 1}
    if not ranks:
        return []
    windows = _windows(run, files, batches, ranks)
    kept, left = _choose_windows(windows)
    for own in kept.values():
        _number_through(own)
    writer = ParquetWriter()
    try:
        rewriting = _Rewriting(run, files, writer)
        for number, batch in enumerate(batches):
            later = {w.source.rank: w for own in kept.values() for w in own[1:] if w.batch == number}
            followed = {w.source.rank for own in kept.values() for w in own[:-1] if w.batch == number}
            rewriting.rewrite(batch, later, {w.source.rank for w, _ in left if w.batch == number}, followed)
    finally:
        writer.close()
    in_stretches(run, files, {rank for rank, own in kept.items() if len(own) > 1}, _join_small)
    return [(window.source, reason) for window, reason in left]


def _windows(run: RunWriter, files: Files, batches: Sequence[WindowBatch], ranks: set[int]) -> dict[int, list[_Window]]:
    windows: dict[int, list[_Window]] = {rank: [] for rank in sorted(ranks)}
    with connect() as connection:
        for number, batch in enumerate(batches):
            own: dict[int, _Window] = {}
            for source in batch.sources:
                if source.format == kineto.NAME and source.rank in ranks:
                    if source.rank in own:
                        raise rank_conflict(source.rank, own[source.rank].source.path, source.path)
                    own[source.rank] = _Window(source=source, batch=number)
            if own:
                _Facts(run, batch.files, connection).tell(own)
            for rank, window in own.items():
                windows[rank].append(window)
        attempts = run.all_at(files.get(ATTEMPTS.name, []))
        if attempts:
            _tell_attempts(connection, attempts, windows)
    return windows


def _tell_attempts(
    connection: duckdb.DuckDBPyConnection, paths: list[Path], windows: Mapping[int, list[_Window]]
) -> None:
    rows = connection.sql(f"SELECT rank, attempt, start, stop FROM {scan(paths, union_by_name=True)}").fetchall()
    for rank, attempt, start, stop in rows:
        for window in windows.get(rank, ()):
            if start is not None and stop is not None and start <= window.start <= stop:
                window.attempt = max(attempt, window.attempt if window.attempt is not None else attempt)


class _Facts:
    """Reads facts about the windows of one batch."""

    def __init__(self, run: RunWriter, files: Files, connection: duckdb.DuckDBPyConnection) -> None:
        self._run, self._files, self._connection = run, files, connection

    def _rows(self, table: TableSchema, columns: str, more: str = "") -> list[tuple[Any, ...]]:
        paths = self._run.all_at([one for one in self._files.get(table.name, []) if one.format == kineto.NAME])
        sql = f"SELECT rank, {columns} FROM {scan(paths, union_by_name=True)} {more}"
        return self._connection.sql(sql).fetchall() if paths else []

    def tell(self, own: Mapping[int, _Window]) -> None:
        largest = "max(event), max(correlation), max(external_id)"
        for rank, *most, start, stop in self._rows(EVENTS, f"{largest}, min(start), max(start + dur)", "GROUP BY rank"):
            if (window := own.get(rank)) is not None:
                window.events, window.correlations, window.externals = ((value or 0) + 1 for value in most)
                window.start, window.stop = start, stop
        for rank, lane, *identity in self._rows(LANES, "lane, kind, process, thread, device, stream"):
            if (window := own.get(rank)) is not None:
                window.lanes[lane] = tuple(identity)
        for rank, steps, lane, start, stop in self._rows(
            STEPS, "list(step), mode(lane), min(start), max(stop)", "GROUP BY rank"
        ):
            if (window := own.get(rank)) is not None:
                window.steps, window.start, window.stop = set(steps), start, stop
                window.process = window.lanes.get(lane, (None, None))[1]
        for rank, group, lane, count in self._rows(
            COLLECTIVES, "group_id, coalesce(lane, -1), count(*)", "GROUP BY ALL"
        ):
            if (window := own.get(rank)) is not None:
                window.calls[group, lane] = count


def _choose_windows(
    windows: Mapping[int, list[_Window]],
) -> tuple[dict[int, list[_Window]], list[tuple[_Window, Left]]]:
    """Return the windows of each rank in order of time, and those to leave out."""
    kept: dict[int, list[_Window]] = {}
    left: list[tuple[_Window, Left]] = []
    for rank, own in windows.items():
        ordered = sorted(own, key=lambda window: (window.start, window.source.modified_ns, window.source.path))
        if not all(window.is_of_capture for window in ordered):
            _refuse_others(ordered)
        kept[rank] = []
        taken: set[int] = set()
        for window in reversed(ordered):
            reason = _reason(window, ordered, taken)
            if reason is None:
                kept[rank].insert(0, window)
                taken |= window.steps
            else:
                left.append((window, reason))
    return kept, left


def _refuse_others(ordered: Sequence[_Window]) -> None:
    """Raise if files of a rank are not, or may not be, windows of one process."""
    for one, other in pairwise(ordered):
        if _is_of_another(one, other) or one.stop > other.start or not (one.steps or other.steps):
            raise rank_conflict(one.source.rank, one.source.path, other.source.path)


def _reason(window: _Window, ordered: Sequence[_Window], taken: set[int]) -> Left | None:
    """Return why a window is left out, or None."""
    newest = ordered[-1]
    if window.attempt != newest.attempt or _is_of_another(window, newest):
        return left_by_older_attempt(window.source)
    if not window.steps and (window is not newest or any(one.steps for one in ordered)):
        return window.source.path, _NO_STEP
    return (window.source.path, _SAME_STEPS) if window.steps & taken else None


def _is_of_another(window: _Window, other: _Window) -> bool:
    """Return whether another process wrote it; unknown processes and hosts do not count."""
    pairs = ((window.process, other.process), (window.source.host, other.source.host))
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _number_through(windows: Sequence[_Window]) -> None:
    """Number the windows of a rank consecutively.

    The first window keeps its numbers; a lane of a later window gets the number of the same lane; all other numbers
    follow.
    """
    shift = (0, 0, 0)
    lanes: dict[Lane, int] = {}
    calls: Counter[str] = Counter()
    following = 0
    for window in windows:
        window.shift, window.ordinals = shift, dict(calls)
        is_first = window is windows[0]
        window.new_lanes = {lane for lane, identity in window.lanes.items() if is_first or identity not in lanes}
        for lane, identity in sorted(window.lanes.items()):
            is_new = lane in window.new_lanes
            window.lane[lane] = lane if is_first else following if is_new else lanes[identity]
            lanes.setdefault(identity, window.lane[lane])
            following = max(following, window.lane[lane] + 1)
        for (group, lane), count in window.calls.items():
            calls[group if group is not None else f"lane {window.lane.get(lane, lane)}"] += count
        shift = shift[0] + window.events, shift[1] + window.correlations, shift[2] + window.externals


class _Rewriting:
    """Renumbers later windows to follow the first; `files` is changed to name the new parts."""

    def __init__(self, run: RunWriter, files: Files, writer: ParquetWriter) -> None:
        self._run, self._files, self._writer = run, files, writer
        self._made = 0

    def rewrite(self, batch: WindowBatch, later: Mapping[int, _Window], gone: set[int], followed: set[int]) -> None:
        """Leave out the ranks in `gone`, and the memory of windows that are `followed` by another."""
        for name, members in batch.files.items():
            without = gone | followed if name == MEMORY.name else gone
            for file in members:
                if file.format == kineto.NAME:
                    rest = self._run.without(self._writer, name, file, without)
                    new = self._renumber(name, rest, later) if rest is not None else None
                    listed = self._files[name]
                    at = next(i for i, one in enumerate(listed) if one is file)
                    listed[at : at + 1] = [new] if new is not None else []

    def _renumber(self, name: str, file: DataFile, later: Mapping[int, _Window]) -> DataFile:
        own = {rank: later[rank] for rank in file.ranks if rank in later}
        table = next((known for known in _LANE_COLUMNS if known.name == name), None)
        if not own or table is None:
            return file
        self._made += 1
        path = self._run.staging / name / f"{kineto.NAME}-joined-{self._made:06d}.parquet"
        replaced = ", ".join(f"({value}) AS {column}" for column, value in _list_replacements(table, own))
        where = _is_new_lane(own) if table is LANES else "true"
        self._writer.merge([self._run.at(file)], path, where=where, columns=f"* REPLACE ({replaced})")
        return DataFile(path=self._run.relative(path), format=file.format, ranks=file.ranks)


def _list_replacements(table: TableSchema, own: Mapping[int, _Window]) -> Iterator[tuple[str, str]]:
    """Yield the columns with numbers that change, and SQL for the new numbers."""
    for column in _LANE_COLUMNS[table]:
        yield column, _by_rank(column, "INTEGER", {rank: _new_lane(window, column) for rank, window in own.items()})
    shifted = {EVENTS: _SHIFTED, COLLECTIVES: _SHIFTED[:1]}.get(table, ())
    for column, place in shifted:
        added = {rank: f"{column} + {window.shift[place]}" for rank, window in own.items()}
        yield column, _by_rank(column, "BIGINT", added)
    if table is COLLECTIVES:
        yield "ordinal", _by_rank("ordinal", "INTEGER", {rank: _new_ordinal(window) for rank, window in own.items()})


def _by_rank(column: str, kind: str, values: Mapping[int, str]) -> str:
    cases = " ".join(f"WHEN {rank} THEN {value}" for rank, value in values.items())
    return f"CAST(CASE rank {cases} ELSE {column} END AS {kind})"


def _new_lane(window: _Window, column: str) -> str:
    if not window.lane:
        return column
    if max(window.lane) >= _MOST_LISTED + len(window.lane):  # numbers that no profiler writes
        return f"coalesce(map({list(window.lane)}, {list(window.lane.values())})[{column}], {column})"
    numbers = [window.lane.get(lane, lane) for lane in range(max(window.lane) + 1)]
    return f"coalesce({numbers}[{column} + 1], {column})"


def _new_ordinal(window: _Window) -> str:
    if not window.ordinals:
        return "ordinal"
    keys = ", ".join("'" + key.replace("'", "''") + "'" for key in window.ordinals)
    key = f"coalesce(group_id, 'lane ' || ({_new_lane(window, 'lane')}))"
    return f"ordinal + coalesce(map([{keys}], {list(window.ordinals.values())})[{key}], 0)"


def _is_new_lane(own: Mapping[int, _Window]) -> str:
    known = (
        f"(rank = {rank} AND lane IN ({', '.join(map(str, sorted(set(window.lanes) - window.new_lanes)))}))"
        for rank, window in own.items()
        if set(window.lanes) - window.new_lanes
    )
    return f"NOT ({' OR '.join(known) or 'false'})"


def _join_small(written: WrittenRanks) -> None:
    """Keep each group once, and add up the observations of all windows."""
    groups, stats = written.read(GROUPS, kineto.NAME), written.read(STATS, kineto.NAME)
    written.replace(GROUPS, kineto.NAME, {rank: _once(rows, "group_id") for rank, rows in groups.items()})
    written.replace(STATS, kineto.NAME, {rank: _sum_counts(rows) for rank, rows in stats.items()})


def _once(columns: Columns, key: str) -> Columns:
    first = {value: row for row, value in reversed(list(enumerate(columns[key])))}
    rows = sorted(first.values())
    return {name: [values[row] for row in rows] for name, values in columns.items()}


def _sum_counts(stats: Columns) -> Columns:
    counts: Counter[str] = Counter()
    for what, count in zip(stats["what"], stats["count"], strict=True):
        counts[what] += count
    once = _once(stats, "what")
    return once | {"count": [counts[what] for what in once["what"]]}

"""Inferred steps are kept only if all ranks agree: the same source, as many steps, at about the same time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from lostflops.account.facts.inferred_steps import INFERRED_FROM
from lostflops.ingest.formats.kineto import reader as kineto
from lostflops.ingest.join.written_ranks import Files, WrittenRanks, in_stretches, ranks_with
from lostflops.ingest.timeline.observations import KINETO_OBSERVATIONS
from lostflops.store.commit import RunWriter
from lostflops.store.manifest import DataFile
from lostflops.store.parquet import ParquetWriter
from lostflops.store.tables import COLLECTIVES, EVENTS, MEMORY, STATS, STEPS

_APART: Final = 0.5
"""The same step of two ranks may begin this far apart, as a fraction of the step."""
_DISAGREE: Final = "steps_disagree"


def drop_disagreed_steps(run: RunWriter, files: Files) -> None:
    """Remove inferred steps from the ranks that have them, unless all ranks agree; `files` is changed."""
    writer = ParquetWriter()
    try:
        inferred = _read_inferred_steps(run, files, writer)
        if not inferred or _agree(run, files, writer, inferred):
            return
        ranks = set(inferred)
        for table in (EVENTS, COLLECTIVES, MEMORY):
            members = files.get(table.name, [])
            files[table.name] = [_remove_step_numbers(run, writer, table.name, file, ranks) for file in members]
        kept = [run.without(writer, STEPS.name, file, ranks) for file in files.get(STEPS.name, [])]
        files[STEPS.name] = [file for file in kept if file is not None]
    finally:
        writer.close()
    in_stretches(run, files, ranks, _say_so)


def _read_inferred_steps(run: RunWriter, files: Files, writer: ParquetWriter) -> dict[int, tuple[str, int]]:
    """Return for each rank the source of its inferred steps, and their number."""
    listed = ", ".join(f"'{what}'" for what in INFERRED_FROM)
    found: dict[int, tuple[str, int]] = {}
    for file in files.get(STATS.name, ()):
        if file.format == kineto.NAME:
            rows = writer.read(run.at(file), f"what IN ({listed})")
            for rank, what, count in zip(rows["rank"], rows["what"], rows["count"], strict=True):
                found[rank] = what, count
    return found


def _agree(run: RunWriter, files: Files, writer: ParquetWriter, inferred: dict[int, tuple[str, int]]) -> bool:
    if len(set(inferred.values())) > 1 or set(inferred) != ranks_with(files, EVENTS, kineto.NAME):
        return False
    start: dict[int, dict[int, int]] = {}
    for file in files.get(STEPS.name, ()):
        rows = writer.read(run.at(file), f"rank IN ({', '.join(map(str, inferred))})")
        for rank, step, at in zip(rows["rank"], rows["step"], rows["start"], strict=True):
            start.setdefault(rank, {})[step] = at
    if len({len(own) for own in start.values()}) != 1:
        return False
    times = np.array([[at for _, at in sorted(own.items())] for own in start.values()], np.int64)
    if times.shape[1] < 2:  # a single step has no period that ranks could be apart by
        return True
    apart = times.max(axis=0) - times.min(axis=0)
    return bool((apart < _APART * np.median(np.diff(times, axis=1))).all())


def _remove_step_numbers(
    run: RunWriter, writer: ParquetWriter, table: str, file: DataFile, ranks: set[int]
) -> DataFile:
    """Return the file without step numbers in the rows of these ranks."""
    own = ranks & set(file.ranks)
    if file.format != kineto.NAME or not own:
        return file
    source = run.at(file)
    path = run.staging / table / f"{source.stem}-unnumbered.parquet"
    listed = ", ".join(map(str, sorted(own)))
    writer.merge([source], path, columns=f"* REPLACE (IF(rank IN ({listed}), NULL, step) AS step)")
    return DataFile(path=run.relative(path), format=file.format, ranks=file.ranks)


def _say_so(written: WrittenRanks) -> None:
    """Count the steps as disagreed on instead of inferred."""
    stats = written.read(STATS, kineto.NAME)
    effect, reason = KINETO_OBSERVATIONS[_DISAGREE]
    for columns in stats.values():
        for row, what in enumerate(columns["what"]):
            if what in INFERRED_FROM:
                said: dict[str, Any] = {"what": _DISAGREE, "effect": effect, "reason": reason}
                for name, value in said.items():
                    columns[name][row] = value
    written.replace(STATS, kineto.NAME, stats)

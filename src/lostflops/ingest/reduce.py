"""Reduction of a trace to a reduced trace, by the host that recorded it.

It runs at the lowest priority next to training: one thread, and no more memory than an ingest of one trace takes. It
does what an ingest of the trace would do, with the same code, so that a run has the same rows from either of the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lostflops.ingest.common import reduced_trace
from lostflops.ingest.common.reader import Clean, ReadTask
from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.ingest.formats.kineto import reader as kineto
from lostflops.store.parquet import ParquetWriter
from lostflops.store.parts import PartWriter

RESULT: Final = "reduced"
"""Name of the reduced trace in the working folder."""


def reduce(trace: Path, folder: Path, clean: Clean | None = None) -> Path:
    """Reduce the trace to a file in `folder`, which also holds temporary files."""
    writer = ParquetWriter()
    try:
        parts = PartWriter(writer, folder, "part")
        job = ReadTask(
            path=trace,
            claim=kineto.rank_claim(trace),
            parts=parts,
            vocabulary=Vocabulary(),
            spool_folder=str(folder),
            clean=clean,
        )
        (found,) = kineto.ingest(job)
        files = parts.finish()
    finally:
        writer.close()
    told = reduced_trace.ReducedTrace(
        format=kineto.NAME,
        trace_bytes=trace.stat().st_size,
        rank=found.rank,
        rank_source=found.rank_source,
        rows=dict(found.rows),
        host=found.host,
        device=found.device,
        device_index=found.device_index,
        world_size=found.world_size,
        backend=found.backend,
        base_time=found.base_time,
    )
    reduced_trace.pack(told, folder, files, folder / RESULT)
    reduced_trace.told_by(folder / RESULT)  # what could not be read again would cost the trace
    return folder / RESULT

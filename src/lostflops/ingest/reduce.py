"""A trace into a reduced trace, by the host that recorded it.

Run at the lowest priority beside training: one thread, and no more memory than an ingest of one trace takes. It does
what an ingest of the trace would do, with the same code, so that a run has the same rows whichever of the two it is
given.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lostflops.ingest import reduced
from lostflops.ingest.readers import kineto
from lostflops.ingest.reading import Clean, Job
from lostflops.ingest.vocabulary import Vocabulary
from lostflops.store.parquet import ParquetWriter
from lostflops.store.parts import PartWriter

RESULT: Final = "reduced"
"""Name of the reduced trace in the folder that was worked in."""


def reduce(trace: Path, folder: Path, clean: Clean | None = None) -> Path:
    """The trace reduced, a file in `folder`, which also takes what is needed meanwhile."""
    writer = ParquetWriter()
    try:
        parts = PartWriter(writer, folder, "part")
        job = Job(trace, kineto.rank_claim(trace), parts, Vocabulary(), str(folder), clean=clean)
        (found,) = kineto.ingest(job)
        files = parts.finish()
    finally:
        writer.close()
    told = reduced.Told(
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
    reduced.pack(told, folder, files, folder / RESULT)
    reduced.told_by(folder / RESULT)  # what could not be read again would cost the trace
    return folder / RESULT

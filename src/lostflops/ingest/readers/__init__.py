"""One file per format; a new one is a module here and a line in `READERS`."""

from typing import Final, cast

from lostflops.ingest.readers import (
    allocator_snapshot,
    capture,
    flight_recorder,
    kineto,
    nsys,
    op_trace,
    pipeline_schedule,
)
from lostflops.ingest.reading import Reader

_ALL: Final = (allocator_snapshot, capture, flight_recorder, kineto, nsys, op_trace, pipeline_schedule)
READERS: Final[dict[str, Reader]] = {reader.NAME: cast("Reader", reader) for reader in _ALL}

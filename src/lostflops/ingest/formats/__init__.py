"""Readers of all formats; a new format is a module or package here and an entry in `_ALL`."""

from typing import Final, cast

from lostflops.ingest.common.reader import Reader
from lostflops.ingest.formats import pipeline_schedule
from lostflops.ingest.formats.allocator import reader as allocator_snapshot
from lostflops.ingest.formats.capture import reader as capture
from lostflops.ingest.formats.flight_recorder import reader as flight_recorder
from lostflops.ingest.formats.kineto import reader as kineto
from lostflops.ingest.formats.nccl_log import reader as nccl_log
from lostflops.ingest.formats.nsys import reader as nsys
from lostflops.ingest.formats.op_trace import reader as op_trace

_ALL: Final = (allocator_snapshot, capture, flight_recorder, kineto, nccl_log, nsys, op_trace, pipeline_schedule)
READERS: Final[dict[str, Reader]] = {reader.NAME: cast("Reader", reader) for reader in _ALL}

"""Kernels, graphs, copies, fills and waits of an Nsight Systems export as device rows of its ranks.

Copies are named as PyTorch's profiler names them, so that one rule reads both: `Memcpy HtoD (Pageable -> Device)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.ingest.common.columns import NULL, Columns
from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.ingest.formats.nsys.file import NsysFile, Rows
from lostflops.ingest.formats.nsys.rank import NsysRank, distinct_rows, small
from lostflops.ingest.formats.nsys.ranks import ProcessDevices
from lostflops.ingest.timeline.event_kinds import KIND_CODE
from lostflops.ingest.timeline.recording import CommRow

_PREFIX: Final = "CUPTI_ACTIVITY_KIND_"
_PLACED: Final = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
_NEEDED: Final = ("start", "end", "deviceId", "streamId", "globalPid")
_NAMES: Final = ("demangledName", "shortName", "mangledName")
_GRID: Final = ("gridX", "gridY", "gridZ")
_BLOCK: Final = ("blockX", "blockY", "blockZ")
_SHARED: Final = ("staticSharedMemory", "dynamicSharedMemory")
_DIRECTIONS: Final = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "HtoD",
    12: "DtoH",
    13: "DtoD",
}
"""`ENUM_CUDA_MEMCPY_OPER`; the last three move pages of unified memory."""
_MEMORY: Final = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
"""`ENUM_CUDA_MEM_KIND`."""
_WAITS: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_COMM: Final = KIND_CODE["comm"]

Names = npt.NDArray[np.uint32]


class DeviceRows:
    """Reads the tables one after the other; each row goes to the rank of its process and device."""

    def __init__(
        self, file: NsysFile, places: ProcessDevices, ranks: Sequence[NsysRank], vocabulary: Vocabulary
    ) -> None:
        self._file, self._places, self._ranks, self._vocabulary = file, places, ranks, vocabulary

    def add(self) -> None:
        self._add_kernels()
        self._add_graphs()
        self._add_copies()
        self._add_fills()
        self._add_waits()

    def _add_kernels(self) -> None:
        table = f"{_PREFIX}KERNEL"
        texts: dict[int, str] = {}
        for name in _NAMES:
            if name in self._file.columns(table):
                texts |= self._file.texts(f"select {name} from {table}")
        codes = {number: self._vocabulary.names[text] for number, text in texts.items()}
        wanted = (*_PLACED, *_NAMES, *_GRID, *_BLOCK, *_SHARED, "registersPerThread")
        for rank, rows in self._read_by_rank(table, wanted):
            columns = self._common(rank, rows, "kernel", _first_known(rows, codes))
            columns["grid"], columns["block"] = (self._triples(rows, axes) for axes in (_GRID, _BLOCK))
            columns["registers"] = small(rows["registersPerThread"])
            known = (rows[_SHARED[0]] != NULL) & (rows[_SHARED[1]] != NULL)
            shared = np.where(known, small(rows[_SHARED[0]]).astype(np.int64) + small(rows[_SHARED[1]]), NULL)
            columns["shared_memory"] = small(shared)
            rank.recording.losses["kernels_without_name"] += int((columns["name"] == 0).sum())
            self._keep_comm(rank, columns)
            rank.recording.device.append(rows["start"].size, columns)

    def _add_graphs(self) -> None:
        """Add each graph that was recorded as a whole as one row; what ran inside it was not recorded."""
        for rank, rows in self._read_by_rank(f"{_PREFIX}GRAPH_TRACE", (*_PLACED, "graphId")):
            columns = self._common(rank, rows, "kernel", self._name_rows(_graph, rows["graphId"]))
            rank.recording.losses["graphs_as_a_whole"] += rows["start"].size
            rank.recording.device.append(rows["start"].size, columns)

    def _add_copies(self) -> None:
        kinds = ("copyKind", "srcKind", "dstKind")
        for rank, rows in self._read_by_rank(f"{_PREFIX}MEMCPY", (*_PLACED, "bytes", *kinds)):
            names = self._name_rows(_copy, *(rows[kind] for kind in kinds))
            columns = self._common(rank, rows, "memcpy", names) | {"bytes": _sizes(rows["bytes"])}
            rank.recording.device.append(rows["start"].size, columns)

    def _add_fills(self) -> None:
        for rank, rows in self._read_by_rank(f"{_PREFIX}MEMSET", (*_PLACED, "bytes", "memKind")):
            columns = self._common(rank, rows, "memset", self._name_rows(_fill, rows["memKind"]))
            rank.recording.device.append(rows["start"].size, columns | {"bytes": _sizes(rows["bytes"])})

    def _add_waits(self) -> None:
        """Add waits, which name a context; their device is zero in every process."""
        wanted = ("start", "end", "contextId", "streamId", "correlationId", "globalPid", "syncType")
        for batch in self._file.batches(f"{_PREFIX}SYNCHRONIZATION", wanted, ("start", "end", "globalPid")):
            for rank, rows in self._split_by_rank(batch, self._places.of_context, "contextId"):
                columns = self._common(rank, rows, "sync", self._name_rows(_wait, rows["syncType"]))
                rank.recording.device.append(rows["start"].size, columns)

    def _read_by_rank(self, table: str, wanted: Sequence[str]) -> Iterator[tuple[NsysRank, Rows]]:
        for batch in self._file.batches(table, wanted, _NEEDED):
            yield from self._split_by_rank(batch, self._places.of_device, "deviceId")

    def _split_by_rank(
        self, batch: Rows, owner: Callable[[int, int], int], column: str
    ) -> Iterator[tuple[NsysRank, Rows]]:
        """Yield the rows of each rank in a batch, without rows that have no time."""
        pairs, inverse = distinct_rows(batch["globalPid"], batch[column])
        numbers = np.array([owner(process, own) for process, own in pairs], np.int64)[inverse]
        for number in np.unique(numbers).tolist():
            rows = {name: values[numbers == number] for name, values in batch.items()}
            if number < 0:
                self._ranks[0].recording.losses["device_events_without_process"] += rows["start"].size
                continue
            yield self._ranks[number], self._ranks[number].keep_timed(rows)

    def _common(self, rank: NsysRank, rows: Rows, kind: str, names: Names) -> Columns:
        return {
            "lane": rank.streams(rows),
            "kind": np.full(rows["start"].size, KIND_CODE[kind], np.uint8),
            "name": names,
            "start": rows["start"],
            "dur": rows["dur"],
            "correlation": rows["correlationId"],
        }

    def _name_rows(self, name: Callable[..., str], *columns: npt.NDArray[np.int64]) -> Names:
        keys, inverse = distinct_rows(*columns)
        return np.array([self._vocabulary.names[name(*key)] for key in keys], np.uint32)[inverse]

    def _triples(self, rows: Rows, axes: Sequence[str]) -> Names:
        keys, inverse = distinct_rows(*(rows[axis] for axis in axes))
        texts = ["" if NULL in key else str(list(key)) for key in keys]
        return np.array([self._vocabulary.grids[text] for text in texts], np.uint32)[inverse]

    def _keep_comm(self, rank: NsysRank, columns: Columns) -> None:
        comm = self._vocabulary.is_comm_kernel[columns["name"]]
        columns["kind"][comm] = _COMM
        names, first = self._vocabulary.names.texts(), rank.recording.device.rows
        for i in np.flatnonzero(comm).tolist():
            start = int(columns["start"][i])
            row = CommRow(
                row=first + i,
                on_device=True,
                name=names[columns["name"][i]] or "",
                lane=int(columns["lane"][i]),
                start=start,
                stop=start + int(columns["dur"][i]),
                correlation=int(columns["correlation"][i]),
                metadata=None,
                seq=None,
            )
            rank.recording.comm_rows.append(row)


def _first_known(rows: Rows, codes: dict[int, int]) -> Names:
    """Return the code of the first of a kernel's names that has a text; 0 if none has."""
    keys, inverse = distinct_rows(*(rows[name] for name in _NAMES))
    found = [next((codes[number] for number in key if number in codes), 0) for key in keys]
    return np.array(found, np.uint32)[inverse]


def _sizes(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.where(values >= 0, values, NULL)


def _graph(number: int) -> str:
    return "CUDA graph" if number == NULL else f"CUDA graph {number}"


def _copy(direction: int, source: int, target: int) -> str:
    """Return the name of a copy.

    >>> _copy(1, 0, 2), _copy(0, 9, 9)
    ('Memcpy HtoD (Pageable -> Device)', 'Memcpy')
    """
    ends = [_MEMORY.get(kind) for kind in (source, target)]
    name = f"Memcpy {_DIRECTIONS.get(direction, '')}".strip()
    return f"{name} ({ends[0]} -> {ends[1]})" if all(ends) else name


def _fill(memory: int) -> str:
    return f"Memset ({_MEMORY[memory]})" if memory in _MEMORY else "Memset"


def _wait(kind: int) -> str:
    return _WAITS.get(kind, "Sync")

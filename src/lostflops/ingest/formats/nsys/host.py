"""Calls of the CUDA runtime and ranges of NVTX of an Nsight Systems export as host rows of its ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.ingest.common.columns import NULL, Columns
from lostflops.ingest.common.vocabulary import NO_STEP, Vocabulary
from lostflops.ingest.formats.nsys.file import NsysFile, Rows, integer_columns
from lostflops.ingest.formats.nsys.nccl import SOURCE, NcclCall, nccl_calls, with_sizes
from lostflops.ingest.formats.nsys.ranges import LIBRARIES, Meanings, process_of, step_families
from lostflops.ingest.formats.nsys.rank import NsysRank
from lostflops.ingest.formats.nsys.ranks import ProcessDevices
from lostflops.ingest.timeline.event_kinds import KIND_CODE
from lostflops.ingest.timeline.recording import CommCall, CommMetadata, StepSpan

_CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGES: Final = "NVTX_EVENTS"
_TIMED_RANGES: Final = "eventType in (59, 60, 70, 71)"
"""Pushed and popped, or started and ended; from NVTX itself, or read from its text files."""
_DOMAIN_CREATED: Final = 75
_VERSION: Final = re.compile(r"_v\d+(?=$|_ptsz$|_ptds$)")
_TIMES: Final = ("start", "end", "globalTid")
_SAID: Final = (
    "substr(text, 1, coalesce(nullif(instr(text, ', seq = '), 0) + 7, nullif(instr(text, ', op_id = '), 0) + 9, 65536))"
)
"""Without the numbers that PyTorch appends, so that texts repeat."""
_MAY_SAY: Final = "text like '%step%' or text like '%iter%'"
_MAY_NUMBER: Final = "textId in (select id from StringIds where value like '%step%' or value like '%iter%')"
_MOST_MEANINGS: Final = 100_000
_ANNOTATION: Final = KIND_CODE["annotation"]

Numbers = npt.NDArray[np.int64]


class HostRows:
    """Reads both tables; a row goes to every rank of its process, since each needs the threads that launch for it."""

    def __init__(
        self, file: NsysFile, places: ProcessDevices, ranks: Sequence[NsysRank], vocabulary: Vocabulary
    ) -> None:
        self._file, self._places, self._ranks, self._vocabulary = file, places, ranks, vocabulary
        self._columns = file.columns(_RANGES)
        self._metadata: dict[str, CommMetadata] = {}

    def add(self) -> None:
        self._add_calls()
        if {"start", "end", "globalTid", "eventType"} <= self._columns:
            self._add_ranges()
            self._add_sizes()
        names = self._thread_names()
        for rank in self._ranks:
            rank.name_threads(names)

    def _add_calls(self) -> None:
        """Add calls, named without the version that the driver appends, as PyTorch's profiler names them."""
        texts = self._file.texts(f"select nameId from {_CALLS}") if "nameId" in self._file.columns(_CALLS) else {}
        codes = {number: self._vocabulary.names[_VERSION.sub("", text)] for number, text in texts.items()}
        wanted = ("start", "end", "globalTid", "correlationId", "nameId")
        for batch in self._file.batches(_CALLS, wanted, ("start", "end", "globalTid", "correlationId")):
            values, inverse = np.unique(batch["nameId"], return_inverse=True)
            batch["name"] = np.array([codes.get(value, 0) for value in values.tolist()], np.int64)[inverse]
            for rank, rows in self._split_by_rank(batch):
                columns = _common(rank, rows) | {"correlation": rows["correlationId"]}
                columns["kind"] = np.full(rows["start"].size, KIND_CODE["runtime"], np.uint8)
                rank.recording.launches += int((rows["correlationId"] != NULL).sum())
                rank.recording.host.append(rows["start"].size, columns)

    def _add_ranges(self) -> None:
        texts = self._file.texts(f"select textId from {_RANGES}") if "textId" in self._columns else {}
        meanings = Meanings(texts, self._library_domains())
        families = step_families(self._counting(meanings))
        for batch, numbers in self._ranges(meanings, "true"):
            kinds = np.array([KIND_CODE[found.kind] for found in meanings.found], np.int64)[numbers]
            names = self._vocabulary.names.codes([found.name for found in meanings.found], len(meanings.found))[numbers]
            for i, (family, step) in self._find_step_rows(meanings, numbers):
                thread = int(batch["globalTid"][i])
                if families.get(process_of(thread)) == (thread, family):
                    names[i] = self._vocabulary.names[f"ProfilerStep#{step}"]
            for rank, rows in self._split_by_rank(batch | {"name": names.astype(np.int64), "kind": kinds}):
                columns = _common(rank, rows) | {"kind": rows["kind"].astype(np.uint8)}
                self._keep_steps_and_annotations(rank, columns)
                self._keep_collective_calls(rank, columns)
                rank.recording.host.append(rows["start"].size, columns)

    def _counting(self, meanings: Meanings) -> Iterator[tuple[int, str, int]]:
        """Yield thread, words before the number, and duration of ranges with names that count steps."""
        for batch, numbers in self._ranges(meanings, self._may_count()):
            for i, (family, _) in self._find_step_rows(meanings, numbers):
                dur = int(batch["end"][i]) - int(batch["start"][i])
                if dur > 0 and NULL not in (batch["end"][i], batch["start"][i]):
                    yield int(batch["globalTid"][i]), family, dur

    @staticmethod
    def _find_step_rows(meanings: Meanings, numbers: Numbers) -> Iterator[tuple[int, tuple[str, int]]]:
        """Yield rows with names that count steps, each with the words before the number, and the number."""
        counts = np.array([step is not None for step in meanings.steps], np.bool_)
        for i in np.flatnonzero(counts[numbers]).tolist():
            step = meanings.steps[numbers[i]]
            assert step is not None
            yield i, step

    def _may_count(self) -> str:
        by_number = "textId" in self._columns and {"id", "value"} <= self._file.columns("StringIds")
        return " or ".join([*[_MAY_SAY] * ("text" in self._columns), *[_MAY_NUMBER] * by_number]) or "false"

    def _ranges(self, meanings: Meanings, where: str) -> Iterator[tuple[Rows, Numbers]]:
        """Yield columns of ranges with a thread, and the number of each range's meaning."""
        picked = ", ".join(self._file.integer(_RANGES, name) for name in _TIMES)
        number, domain = (self._file.integer(_RANGES, name) for name in ("textId", "domainId"))
        query = (
            f"select {picked}, {_SAID if 'text' in self._columns else 'null'}, {number}, {domain} from {_RANGES} "
            f"where {_TIMED_RANGES} and typeof(globalTid) = 'integer' and ({where})"
        )
        for batch in self._file.fetch_batches(query):
            rows = integer_columns(_TIMES, [row[: len(_TIMES)] for row in batch])
            if len(meanings) > _MOST_MEANINGS:
                meanings.forget()
            yield rows, np.fromiter((meanings[row[len(_TIMES) :]] for row in batch), np.int64, len(batch))

    def _library_domains(self) -> set[int]:
        """Return numbers of the domains that libraries use; not those that two processes name differently."""
        if not {"domainId", "text"} <= self._columns:
            return set()
        query = f"select domainId, text from {_RANGES} where eventType = {_DOMAIN_CREATED} and domainId > 0"
        found = [(number, name) for number, name in self._file.rows(query) if isinstance(number, int)]
        others = {number for number, name in found if name not in LIBRARIES}
        return {number for number, _ in found} - others

    def _split_by_rank(self, batch: Rows) -> Iterator[tuple[NsysRank, Rows]]:
        processes = batch["globalTid"] >> 24 << 24
        for process in np.unique(processes).tolist():
            rows = {name: values[processes == process] for name, values in batch.items()}
            owners = self._places.of_process(process)
            if not owners:
                self._ranks[0].recording.losses["events_of_other_processes"] += rows["start"].size
            for number in owners:
                yield self._ranks[number], self._ranks[number].keep_timed(rows)

    def _keep_steps_and_annotations(self, rank: NsysRank, columns: Columns) -> None:
        steps = self._vocabulary.step_of_name[columns["name"]]
        is_annotation = columns["kind"] == _ANNOTATION
        stop = columns["start"] + columns["dur"]
        for i in np.flatnonzero(is_annotation & (steps != NO_STEP)).tolist():
            span = StepSpan(int(steps[i]), int(columns["lane"][i]), int(columns["start"][i]), int(stop[i]))
            rank.recording.steps.append(span)
        rows = np.flatnonzero(is_annotation & (steps == NO_STEP))
        if rows.size:
            kept = (columns["lane"][rows], columns["start"][rows], stop[rows], columns["name"][rows])
            rank.recording.annotations.append(kept)

    def _keep_collective_calls(self, rank: NsysRank, columns: Columns) -> None:
        """Keep PyTorch's ranges that name the collective, around a kernel that may only be called `SendRecv`."""
        names = self._vocabulary.names.texts()
        for i in np.flatnonzero(columns["kind"] == _ANNOTATION).tolist():
            name = names[columns["name"][i]] or ""
            if name.startswith("nccl:"):
                metadata = self._metadata.setdefault(name, CommMetadata(op=name, source=SOURCE))
                start = int(columns["start"][i])
                stop = start + int(columns["dur"][i])
                rank.recording.comm_calls.append(
                    CommCall(lane=int(columns["lane"][i]), start=start, stop=stop, metadata=metadata, seq=None)
                )

    def _add_sizes(self) -> None:
        """Add sizes of collectives, if the export has NCCL's payloads."""
        calls: list[list[NcclCall]] = [[] for _ in self._ranks]
        for thread, call in nccl_calls(self._file):
            for number in self._places.of_process(process_of(thread)):
                calls[number].append(call._replace(lane=self._ranks[number].thread(thread)))
        for rank, own in zip(self._ranks, calls, strict=True):
            rank.recording.comm_calls = with_sizes(rank.recording.comm_calls, own)

    def _thread_names(self) -> dict[int, str]:
        if not {"nameId", "globalTid"} <= self._file.columns("ThreadNames"):
            return {}
        texts = self._file.texts("select nameId from ThreadNames")
        found = self._file.rows("select globalTid, nameId from ThreadNames")
        return {
            thread: texts[name]
            for thread, name in found
            if isinstance(thread, int) and isinstance(name, int) and name in texts
        }


def _common(rank: NsysRank, rows: Rows) -> Columns:
    return {
        "lane": rank.threads(rows),
        "name": rows["name"].astype(np.uint32),
        "start": rows["start"],
        "dur": rows["dur"],
    }

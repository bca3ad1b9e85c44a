"""What is fuzzed: every reader, the whole ingest, and opening a run. A check raises if an input breaks the promise.

The promise: any bytes give either an error of our own tree, with a message, or rows and answers; soon, and in little
memory.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import patch

import msgspec

import lostflops as lf
from lostflops.collect.capture import WindowRequest
from lostflops.core.errors import BrokenSource, LostflopsError, RunError
from lostflops.ingest.common import safe_pickle
from lostflops.ingest.common.byte_stream import BLOCK, ByteStream
from lostflops.ingest.common.reader import ReadTask
from lostflops.ingest.common.refusals import refuse_large_job
from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.ingest.formats import READERS
from lostflops.ingest.formats.kineto import reader as kineto
from lostflops.ingest.formats.kineto.json_array import JsonArray
from lostflops.ingest.formats.kineto.rows import KinetoRows
from lostflops.live.board import Board
from lostflops.live.follow import Follower
from lostflops.live.metrics import collect as collect_metrics
from lostflops.predict.costs.calibrated.show import show
from lostflops.predict.costs.calibration import read_calibration
from lostflops.predict.costs.nccl_tests import read_nccl_tests
from lostflops.predict.costs.topology import read_topology
from lostflops.predict.whatif import predictions
from lostflops.store.manifest import FILE_NAME, decode_manifest, encode_manifest
from lostflops.store.parquet import ParquetWriter
from lostflops.store.parts import PartWriter
from lostflops.store.run import Run
from tests.fuzz import mutations, seeds
from tests.fuzz.row_sink import RowSink
from tests.fuzz.scratch import scratch, written
from tests.fuzz.whole_runs import check_message, check_opened, check_whole, forgeries, mutate_run

_HEAD: Final = 64 << 10
_decode = msgspec.json.Decoder(list[dict[str, Any]]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    check: Callable[[bytes], object]
    """Tries an input; an error of our own tree is an answer, and any other error a defect."""
    seeds: Callable[[], list[bytes]]
    mutate: Callable[[random.Random, bytes], bytes]
    covers: tuple[str, ...]
    """Modules of `lostflops` whose lines it should reach, as prefixes."""
    largest: int = 16 << 10
    """Bytes of the largest input."""
    most_cpu_s: float = 2.0

    def run(self, data: bytes) -> None:
        """Raise unless the input keeps the promise."""
        began = time.process_time()
        try:
            self.check(data)
        except LostflopsError as error:
            check_message(error)
            if isinstance(error, RunError) and self.check not in _OF_RUNS:
                raise AssertionError(f"a source is at fault, not a run: {error}") from error
        spent = time.process_time() - began
        assert spent < self.most_cpu_s, f"{spent:.1f} s of CPU for {len(data):,} bytes"


# Readers of trace files.


def check_reader(data: bytes, name: str, file_name: str) -> RowSink:
    """Read a file as an ingest does, up to the rows of its tables."""
    reader, path, sink = READERS[name], written(data, file_name), RowSink()
    head = next(ByteStream(path, block=_HEAD).blocks(), b"")[:_HEAD]
    if not reader.recognises(head, path):
        return sink
    claim = reader.rank_claim(path)
    claim = claim if claim.rank is not None else claim._replace(rank=0)
    parts = cast("PartWriter", sink)
    job = ReadTask(path=path, claim=claim, parts=parts, vocabulary=Vocabulary(), spool_folder=str(scratch()))
    for rank in reader.ingest(job):
        refuse_large_job(path, rank.rank, rank.world_size)
        msgspec.json.encode(rank)
        assert {table: count for table, count in rank.rows.items() if count} == {
            table: count for (owner, table), count in sink.rows.items() if owner == rank.rank
        }, "other rows were put than are stated"
    return sink


def _reader(name: str, file_name: str) -> Callable[[bytes], object]:
    return lambda data: check_reader(data, name, file_name)


def check_kineto(data: bytes, is_scanned: bool = False) -> RowSink:
    """Read a trace by the scanner, or by decoding it into objects, in blocks so small that it has several."""
    choice = _scanned_rows if is_scanned else lambda _rows, _path: None
    blocks = functools.partial(ByteStream, block=512 if len(data) < 1 << 16 else BLOCK)
    with patch.object(kineto, "_scanned_rows", choice), patch.object(kineto, "ByteStream", blocks):
        return check_reader(data, "kineto", "rank0_trace.json")


def _scanned_rows(rows: KinetoRows, _path: Path) -> Any:
    from lostflops.ingest.formats.kineto.scanned_rows import ScannedRows  # it loads numba

    return ScannedRows(rows)


def check_scan(data: bytes) -> None:
    """Read a trace in both ways: they must give the same rows."""
    both: list[Any] = []
    for is_scanned in (True, False):
        try:
            both.append(check_kineto(data, is_scanned).contents())
        except BrokenSource as error:
            both.append(str(error))
    assert both[0] == both[1], "the scanner reads other rows than the decoder"


def check_json_array(data: bytes) -> None:
    """Read a document in blocks of a size that its first byte gives, and at once: both must give the same elements."""

    def read(size: int) -> tuple[list[Any], dict[str, Any]] | str:
        text = data[1:]
        blocks = (text[at : at + size] for at in range(0, len(text), size))
        array: JsonArray[Any, Any] = JsonArray(blocks, "traceEvents", _decode)
        try:
            found = [element for batch in array for element in batch]
        except BrokenSource:
            return "broken"
        assert all(count > 0 for count in (+array.losses).values())
        return (found, array.document) if not +array.losses else "damaged"

    if data:
        whole, pieces = read(len(data)), read(2 * data[0] + 1)
        if not isinstance(whole, str) and not isinstance(pieces, str):
            assert repr(whole) == repr(pieces), "elements depend on where blocks end"


def check_pickle(data: bytes) -> None:
    safe_pickle.loads(data, "_dump_0")


def check_gzip(data: bytes) -> None:
    stream = ByteStream(written(data[1:], "stream"), block=2 * data[0] + 1 if data else 1)
    size = sum(map(len, stream.blocks()))
    assert size <= (4 << 20) + 101 * len(data)
    assert stream.digest


def check_reduced(data: bytes) -> None:
    path = written(data, "rank-00000.w0000.parts")
    if not kineto.recognises(data[:_HEAD], path):
        return
    writer = ParquetWriter()
    parts = PartWriter(writer, scratch() / "parts", "part")
    try:
        claim = kineto.rank_claim(path)
        job = ReadTask(path=path, claim=claim, parts=parts, vocabulary=Vocabulary(), spool_folder=str(scratch()))
        for rank in kineto.ingest(job):
            refuse_large_job(path, rank.rank, rank.world_size)
        parts.finish()
    finally:
        parts.discard()
        writer.close()


def check_schedule(data: bytes) -> None:
    schedule, _, config = data.partition(b"\0")
    sizes = written(config, "config.json")
    try:
        check_reader(schedule, "pipeline_schedule", "pp_rank_0.json")
    finally:
        sizes.unlink()


def check_watch(data: bytes) -> None:
    """Follow a capture while it grows, as `lostflops watch` does."""
    folder = scratch() / "watched"
    folder.mkdir(exist_ok=True)
    path, half = folder / "rank-00000.capture", len(data) // 2
    board, follower = Board(), Follower(folder=folder)
    for now, piece in ((0.0, data[:half]), (20.0, data), (90.0, data)):
        path.write_bytes(piece)
        board.take(follower.poll(), now)
        for line in board.settle(now):
            repr(line)
        collect_metrics(board, None)
    path.unlink()


# Files about clusters, models, runs and predictions.


def check_calibration(data: bytes) -> None:
    calibration = read_calibration(written(data, "calibration.json"))
    show(calibration).to_json()
    show(calibration, calibration).to_json()


def check_nccl_tests(data: bytes) -> None:
    show(read_nccl_tests([written(data, "all_reduce.log")])).to_json()


def _suffix(data: bytes) -> str:
    return ".json" if data.lstrip()[:1] in (b"{", b"[") else ".toml"


def check_topology(data: bytes) -> None:
    name = written(data, "topology" + _suffix(data))
    read_topology(name)
    _estimate(written(seeds.descriptions()[0], "model.toml"), topology=str(name))


def check_description(data: bytes) -> None:
    _estimate(written(data, "model" + _suffix(data)), topology="dgx-h100")


def _estimate(model: Path, topology: str) -> None:
    lf.estimate(model, topology=topology, device="NVIDIA H100 80GB HBM3", sequence=128).to_json()


def check_manifest(data: bytes) -> None:
    folder = Path("/run-of-a-stranger")
    found = decode_manifest(data, folder, folder / FILE_NAME)
    assert decode_manifest(encode_manifest(found), folder, folder / FILE_NAME) == found


def check_prediction(data: bytes) -> None:
    folder = scratch() / "predicted" / predictions.PREDICTIONS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "p-7f3a2c91.json").write_bytes(data)
    found, _ = predictions.find("p-7f3a2c91", [folder.parent], known=False)
    assert list(predictions.load_predictions(folder.parent)) == [found]


def check_request(data: bytes) -> None:
    try:
        request = WindowRequest.from_bytes(data)
    except ValueError:  # the collector takes no errors of its own into a job
        return
    WindowRequest.from_bytes(request.to_bytes())


@functools.cache
def _stored_run() -> Run:
    folder = scratch() / "stored"
    for name, content in seeds.run_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return Run.open(folder, {"threads": 1})


def check_sql(data: bytes) -> None:
    """Check and bind a query of a stranger; it is not run, because the server ends what runs too long."""
    relation = _stored_run().checked_sql(data.decode(errors="replace"))
    shown = f"{relation.columns} {relation.types}"
    assert str(scratch()) not in shown, "a query shows a path of this machine"


_OF_RUNS: Final = (check_manifest, check_prediction, check_sql, check_opened)


def _join(*groups: list[bytes]) -> list[bytes]:
    return [data for group in groups for data in group]


def _with_size(made: Callable[[], list[bytes]]) -> Callable[[], list[bytes]]:
    return lambda: [bytes([size]) + data for size, data in zip((20, 255, 1, 90, 60, 128, 40), made(), strict=False)]


def _after_first(mutation: Callable[[random.Random, bytes], bytes]) -> Callable[[random.Random, bytes], bytes]:
    return lambda chance, data: data[:1] + mutation(chance, data[1:])


_KINETO: Final = (
    *(f"ingest.formats.kineto.{module}" for module in ("reader", "rows", "json_array", "schema", "event_fields")),
    *(f"ingest.formats.kineto.{module}" for module in ("exact_time", "inferred_steps", "kernel_period")),
    "ingest.timeline",
)
TARGETS: Final[dict[str, Target]] = {
    "kineto": Target(
        check=check_kineto,
        seeds=seeds.kineto,
        mutate=mutations.json_text,
        covers=_KINETO,
    ),
    "scan": Target(
        check=check_scan,
        seeds=lambda: [*seeds.kineto()[3:5], *seeds.few_events()],
        mutate=mutations.json_text,
        covers=("ingest.formats.kineto.scan", "ingest.formats.kineto.scanner", "ingest.formats.kineto.scanned_rows"),
        largest=2 << 10,
    ),
    "compiled": Target(
        check=check_scan,
        seeds=seeds.kineto,
        mutate=mutations.json_text,
        covers=("ingest.formats.kineto.scanner", "ingest.formats.kineto.scanned_rows"),
    ),
    "json_array": Target(
        check=check_json_array,
        seeds=_with_size(seeds.kineto),
        mutate=_after_first(mutations.json_text),
        covers=("ingest.formats.kineto.json_array",),
    ),
    "gzip": Target(
        check=check_gzip,
        seeds=_with_size(lambda: _join(seeds.kineto()[5:], seeds.flight()[3:], seeds.requests())),
        mutate=_after_first(mutations.any_file),
        covers=("ingest.common.byte_stream",),
    ),
    "capture": Target(
        check=_reader("capture", "rank-00000.capture"),
        seeds=seeds.captures,
        mutate=mutations.capture_frames,
        covers=("ingest.formats.capture", "collect.capture"),
    ),
    "watch": Target(check=check_watch, seeds=seeds.captures, mutate=mutations.capture_frames, covers=("live",)),
    "flight": Target(
        check=_reader("flight_recorder", "_dump_0"),
        seeds=seeds.flight,
        mutate=mutations.pickled,
        covers=("ingest.formats.flight_recorder",),
    ),
    "pickle": Target(
        check=check_pickle,
        seeds=lambda: _join(seeds.flight()[1:3], seeds.allocator()),
        mutate=mutations.pickled,
        covers=("ingest.common.safe_pickle",),
    ),
    "allocator": Target(
        check=_reader("allocator_snapshot", "snapshot_rank0.pickle"),
        seeds=seeds.allocator,
        mutate=mutations.pickled,
        covers=("ingest.formats.allocator",),
    ),
    "nsys": Target(
        check=_reader("nsys", "rank0.sqlite"),
        seeds=seeds.nsys,
        mutate=mutations.database,
        covers=("ingest.formats.nsys",),
        largest=256 << 10,
    ),
    "op_trace": Target(
        check=_reader("op_trace", "ops.parquet"),
        seeds=seeds.op_trace,
        mutate=mutations.parquet_rows,
        covers=("ingest.formats.op_trace",),
    ),
    "reduced": Target(
        check=check_reduced,
        seeds=seeds.reduced,
        mutate=mutations.archive,
        covers=("ingest.common.reduced_trace", "store.parts"),
        largest=64 << 10,
    ),
    "schedule": Target(
        check=check_schedule,
        seeds=seeds.schedules,
        mutate=mutations.json_text,
        covers=("ingest.formats.pipeline_schedule",),
    ),
    "calibration": Target(
        check=check_calibration,
        seeds=seeds.calibrations,
        mutate=mutations.json_text,
        covers=("predict.costs.calibration", "predict.costs.calibrated", "predict.costs.fit", "predict.costs.curve"),
    ),
    "nccl_tests": Target(
        check=check_nccl_tests,
        seeds=seeds.nccl_logs,
        mutate=mutations.log_lines,
        covers=("predict.costs.nccl_tests",),
    ),
    "nccl_log": Target(
        check=_reader("nccl_log", "job.out"),
        seeds=seeds.nccl_info_logs,
        mutate=mutations.log_lines,
        covers=("ingest.formats.nccl_log",),
    ),
    "topology": Target(
        check=check_topology,
        seeds=seeds.topologies,
        mutate=mutations.json_text,
        covers=("predict.costs.topology",),
        largest=4 << 10,
    ),
    "description": Target(
        check=check_description,
        seeds=seeds.descriptions,
        mutate=mutations.json_text,
        covers=("predict.estimate.description", "predict.estimate.huggingface", "predict.estimate.request"),
        largest=4 << 10,
    ),
    "manifest": Target(
        check=check_manifest,
        seeds=seeds.manifests,
        mutate=mutations.sealed,
        covers=("store.manifest", "store.seals"),
    ),
    "prediction": Target(
        check=check_prediction,
        seeds=seeds.stored_predictions,
        mutate=mutations.sealed,
        covers=("predict.whatif.predictions",),
    ),
    "request": Target(
        check=check_request, seeds=seeds.requests, mutate=mutations.json_text, covers=("collect.capture",), largest=1024
    ),
    "sql": Target(
        check=check_sql, seeds=seeds.queries, mutate=mutations.sql, covers=("store.select",), largest=2 << 10
    ),
    "whole": Target(
        check=check_whole,
        seeds=seeds.whole,
        mutate=mutations.any_file,
        covers=("ingest", "account", "explain.analyze.report", "explain.advise", "predict.graph", "predict.whatif"),
        largest=256 << 10,
        most_cpu_s=10.0,
    ),
    "open": Target(
        check=check_opened,
        seeds=forgeries,
        mutate=mutate_run,
        covers=("store", "account", "explain.analyze.report", "explain.advise", "predict.graph", "predict.whatif"),
        largest=256 << 10,
        most_cpu_s=10.0,
    ),
}

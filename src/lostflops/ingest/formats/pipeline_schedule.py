"""Measured pipeline schedules, one JSON file per stage: when each forward and backward pass ran, in ms.

Primus writes `{"1": {"total": ..., "fwd_start": [...], "fwd_end": [...], "bwd_start": [...], "bwd_end": [...]}, ...}`,
each iteration from its start to the stage's last pass, and the sizes of the job in `config.json` next to it. Iterations
are placed one after the other. In recorded files stages start an iteration together, to a millisecond, so it is as long
as on the slowest stage, by the files next to this one: otherwise the last stages would seem never to wait.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lostflops.core.errors import BrokenSource
from lostflops.core.limits import LARGEST_SCHEDULE
from lostflops.ingest.common.byte_stream import ByteStream
from lostflops.ingest.common.columns import NULL, Columns
from lostflops.ingest.common.rank_names import rank_in_name
from lostflops.ingest.common.reader import RankClaim, RankRows, ReadTask
from lostflops.store.parquet import ColumnData, ConstantColumn
from lostflops.store.tables import EVENTS, LANES, PASSES, STATS, STEPS, TableSchema

NAME: Final = "pipeline_schedule"
IS_TIMELINE: Final = True
BASE_TIME: Final = 946_684_800_000_000_000
"""2000-01-01 UTC, when the first iteration is placed."""
_HEAD: Final = re.compile(rb'\s*\{\s*"\d{1,9}"\s*:\s*\{')
_CONFIG: Final = "config.json"
_STAGES: Final = "pp_rank_*.json"
_LONGEST: Final = 1e8
"""Milliseconds that no iteration lasts; many must fit into 64 bits of nanoseconds."""
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
Numbers = npt.NDArray[np.int64]
_OBSERVATIONS: Final = {
    "steps_joined": ("note", "each iteration is recorded from time zero; iterations were placed one after the other"),
    "no_launches": ("note", "passes without a launch: the format has no host events, so idle gaps stay unexplained"),
    "unreadable_passes": ("dropped", "passes that end before they start, or lack their start or end"),
    "rank_assigned": ("guessed", "the file name has no stage: a rank was assigned"),
    "rank_is_stage": (
        "guessed",
        "the file name has only the stage, and the job has more ranks: one rank represents its stage",
    ),
    "order_guessed": ("guessed", "passes numbered in Megatron's interleaved order, which the file does not confirm"),
    "microbatches_unknown": (
        "missing",
        f"passes without microbatch and chunk: no {_CONFIG} next to the file matches them",
    ),
}


class Length(msgspec.Struct):
    total: float


class Iteration(Length):
    fwd_start: list[float]
    fwd_end: list[float]
    bwd_start: list[float]
    bwd_end: list[float]


class ScheduleSizes(msgspec.Struct):
    """Sizes of the job, from `config.json`."""

    pp_size: int
    num_mbs: int
    vp_size: int | None = 1
    world_size: int | None = None


def recognises(head: bytes, _path: Path) -> bool:
    return _HEAD.match(head) is not None and b'"fwd_start"' in head


def rank_claim(path: Path) -> RankClaim:
    named = rank_in_name(path.name)
    return RankClaim(named, "file name") if named is not None else RankClaim(None, "assigned")


def ingest(job: ReadTask) -> list[RankRows]:
    stream = ByteStream(job.path, job.on_read)
    iterations = _iterations(stream)
    sizes = _sizes(job.path.with_name(_CONFIG))
    rank, rank_source = job.claim[:2]
    assert rank is not None
    losses: Counter[str] = Counter(steps_joined=len(iterations))
    longest = _longest(job.path)
    parts, edges, zero = [], [], BASE_TIME
    for step, iteration in iterations.items():
        passes = _passes(step, iteration, sizes, losses)
        length = max(_ns(iteration.total), int(passes["stop"].max(initial=0)))
        parts.append(passes | {name: passes[name] + zero for name in ("start", "stop")})
        edges.append((step, zero, zero + length))
        zero += max(length, _ns(longest.get(step, 0)))
    _note_doubts(losses, sizes, rank_source)
    passes = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    rows: Counter[str] = Counter()
    for table, columns in _tables(passes, edges, losses, rank).items():
        rows[table.name] = max(len(column) for column in columns.values() if isinstance(column, (list, np.ndarray)))
        job.parts.put(table, rank, rows[table.name], columns)
    world_size = sizes.world_size if sizes is not None else None
    return [
        RankRows(
            rank=rank,
            rank_source=rank_source,
            digest=stream.digest,
            rows=rows,
            world_size=world_size,
            base_time=BASE_TIME,
        )
    ]


def _iterations(stream: ByteStream) -> dict[int, Iteration]:
    data = bytearray()
    for block in stream.blocks():
        data += block
        if len(data) > LARGEST_SCHEDULE:
            raise BrokenSource(f"{stream.path} is larger than {LARGEST_SCHEDULE >> 20} MB, more than any schedule.")
    try:
        found = msgspec.json.decode(data, type=dict[int, Iteration])
    except _UNREADABLE as error:
        raise BrokenSource(f"{stream.path}: {stream.problem or error}. Write the schedule again.") from None
    kept = {step: found[step] for step in sorted(found) if 0 <= step < 1 << 31 and 0 <= found[step].total < _LONGEST}
    if not kept:
        raise BrokenSource(f"{stream.path} has no iteration with a length.")
    return kept


def _sizes(path: Path) -> ScheduleSizes | None:
    """Return the sizes of the job; None without a `config.json`, or if it has other content."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ScheduleSizes)
    except (OSError, *_UNREADABLE):
        return None


def _longest(path: Path) -> dict[int, float]:
    """Return the longest `total` of each iteration in the files of all stages."""
    longest: dict[int, float] = {}
    for stage in path.parent.glob(_STAGES) if path.match(_STAGES) else ():
        with suppress(OSError, *_UNREADABLE):
            for step, length in msgspec.json.decode(stage.read_bytes(), type=dict[int, Length]).items():
                if length.total < _LONGEST:
                    longest[step] = max(length.total, longest.get(step, 0))
    return longest


def _passes(step: int, iteration: Iteration, sizes: ScheduleSizes | None, losses: Counter[str]) -> Columns:
    """Return forward passes before backward passes; times are relative to the iteration's zero."""
    found = []
    for is_backward, starts, stops in (
        (False, iteration.fwd_start, iteration.fwd_end),
        (True, iteration.bwd_start, iteration.bwd_end),
    ):
        both, most = min(len(starts), len(stops)), max(len(starts), len(stops))
        microbatch, chunk = interleaved_order(most, sizes, is_backward=is_backward)
        start, stop = (np.array(times[:both], np.float64) for times in (starts, stops))
        whole = (np.abs(start) < _LONGEST) & (np.abs(stop) < _LONGEST) & (stop >= start)
        losses["unreadable_passes"] += most - int(whole.sum())
        losses["microbatches_unknown"] += int((microbatch[:both][whole] == NULL).sum())
        found.append(
            {
                "step": np.full(int(whole.sum()), step, np.int64),
                "microbatch": microbatch[:both][whole],
                "chunk": chunk[:both][whole],
                "is_backward": np.full(int(whole.sum()), is_backward),
                "start": np.rint(start[whole] * 1e6).astype(np.int64),
                "stop": np.rint(stop[whole] * 1e6).astype(np.int64),
            }
        )
    losses["no_launches"] += sum(part["step"].size for part in found)
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def interleaved_order(count: int, sizes: ScheduleSizes | None, *, is_backward: bool) -> tuple[Numbers, Numbers]:
    """Return microbatch and chunk of a stage's passes in one direction, in the order in which they run.

    Megatron takes as many microbatches as there are stages through one chunk after the other, backward passes from the
    last chunk to the first. Null if the sizes are unknown or do not give this many passes.

    >>> microbatch, chunk = interleaved_order(8, ScheduleSizes(pp_size=2, num_mbs=4, vp_size=2), is_backward=False)
    >>> microbatch.tolist(), chunk.tolist()
    ([0, 1, 0, 1, 2, 3, 2, 3], [0, 0, 1, 1, 0, 0, 1, 1])
    """
    chunks = (sizes.vp_size or 1) if sizes is not None else 0
    if sizes is None or sizes.pp_size < 1 or chunks < 1 or sizes.num_mbs * chunks != count:
        return np.full(count, NULL, np.int64), np.full(count, NULL, np.int64)
    at_once = sizes.pp_size if chunks > 1 else max(sizes.num_mbs, 1)
    order = [
        (microbatch, chunks - 1 - chunk if is_backward else chunk)
        for first in range(0, sizes.num_mbs, at_once)
        for chunk in range(chunks)
        for microbatch in range(first, min(first + at_once, sizes.num_mbs))
    ]
    numbers = np.array(order, np.int64).reshape(-1, 2)
    return numbers[:, 0], numbers[:, 1]


def _note_doubts(losses: Counter[str], sizes: ScheduleSizes | None, rank_source: str) -> None:
    losses["rank_assigned"] = int(rank_source == "assigned")
    if sizes is not None:
        losses["rank_is_stage"] = int(sizes.world_size is not None and sizes.world_size > sizes.pp_size)
        known = losses["no_launches"] - losses["microbatches_unknown"]
        losses["order_guessed"] = known if (sizes.vp_size or 1) > 1 else 0


def _tables(
    passes: Columns, edges: list[tuple[int, int, int]], losses: Counter[str], rank: int
) -> dict[TableSchema, dict[str, ColumnData]]:
    directions = [("backward" if is_backward else "forward") for is_backward in passes["is_backward"].tolist()]
    numbered: dict[str, ColumnData] = {name: passes[name] for name in ("step", "microbatch", "chunk", "start", "stop")}
    step, start, stop = (list(column) for column in zip(*edges, strict=True))
    # What a stage waits for its first microbatch belongs to the step, so the device's edges are the iteration's.
    spans: dict[str, ColumnData] = {"start": start, "stop": stop, "device_start": start, "device_stop": stop}
    found = [(what, *_OBSERVATIONS[what], count) for what, count in sorted(losses.items()) if count]
    stats: dict[str, ColumnData] = {
        name: [row[i] for row in found] for i, name in enumerate(("what", "effect", "reason", "count"))
    }
    return {
        EVENTS: {
            "event": np.arange(len(directions)),
            "lane": ConstantColumn(0),
            "kind": ConstantColumn("kernel"),
            "name": directions,
            "start": passes["start"],
            "dur": passes["stop"] - passes["start"],
            "step": passes["step"],
        },
        PASSES: numbered | {"stage": ConstantColumn(rank), "direction": directions},
        STEPS: spans | {"step": step, "lane": ConstantColumn(0)},
        LANES: {"lane": [0], "kind": ["stream"], "device": [0], "stream": [0], "name": ["compute"]},
        STATS: stats | {"format": ConstantColumn(NAME)},
    }


def _ns(ms: float) -> int:
    return round(ms * 1e6)

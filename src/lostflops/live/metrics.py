"""Metrics of a running job for export: numbers, ranks and host names, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from lostflops.live.board import Board
from lostflops.live.sessions import LiveStep


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    help: str
    unit: str
    """Unit as UCUM writes it: `s`, `By`, `1`."""
    type: Literal["gauge", "counter"] = "gauge"


Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]

_STEP = Metric("lostflops_step", "Last step that the rank reported.", "1")
_SECONDS = Metric("lostflops_step_seconds", "Duration of the rank's last step.", "s")
_DATA = Metric("lostflops_step_data_seconds", "Time in the rank's last step spent waiting for data.", "s")
_MEMORY = Metric("lostflops_peak_memory_bytes", "Peak memory allocated by the rank so far.", "By")
_LATENESS = Metric(
    "lostflops_enqueue_lateness_seconds", "Mean delay after the first rank of the host to enqueue a collective.", "s"
)
_MISSING = Metric(
    "lostflops_rank_missing", "1 if other ranks keep reporting steps but this rank does not, else 0.", "1"
)
_JOB_SECONDS = Metric("lostflops_job_step_seconds", "Duration of the last step on its slowest rank.", "s")
_JOB_MEDIAN = Metric("lostflops_job_median_step_seconds", "Duration of the last step on the median rank.", "s")
_SAMPLES = Metric("lostflops_samples_per_second", "Samples per second over all ranks in the last step.", "1/s")
_TOKENS = Metric("lostflops_tokens_per_second", "Tokens per second over all ranks in the last step.", "1/s")
_MFU = Metric("lostflops_mfu_ratio", "Model FLOPs of the last step as a fraction of peak, from 0 to 1.", "1")
_RANKS = Metric("lostflops_ranks", "Number of ranks in the current attempt.", "1")
_ATTEMPT = Metric("lostflops_attempt", "Number of the current attempt, from 0.", "1")
_DROPPED = Metric("lostflops_dropped_records_total", "Records lost by collectors.", "1", "counter")
_ANOMALIES = Metric(
    "lostflops_anomalies_total", "Times that the job became slower or hung, or its memory grew.", "1", "counter"
)
KINDS: Final = ("slower", "late_rank", "data", "memory", "hang")

METRICS: Final = (
    *(_STEP, _SECONDS, _DATA, _MEMORY, _LATENESS, _MISSING),
    *(_JOB_SECONDS, _JOB_MEDIAN, _SAMPLES, _TOKENS, _MFU, _RANKS, _ATTEMPT, _DROPPED, _ANOMALIES),
)


def collect(board: Board, mfu: float | None) -> dict[Metric, list[Sample]]:
    """Return the samples of every metric that has a value now."""
    found: dict[Metric, list[Sample]] = {}
    for metric, labels, value in (*_of_ranks(board), *_of_job(board, mfu)):
        if value is not None:
            found.setdefault(metric, []).append((labels, value))
    return {metric: found[metric] for metric in METRICS if metric in found}


def _of_ranks(board: Board) -> Iterator[tuple[Metric, Labels, float | None]]:
    attempt = board.current
    if attempt is None:
        return
    lateness = board.lateness.mean_lateness()
    for rank, session in sorted(attempt.sessions.items()):
        labels = (("host", session.host), ("rank", str(rank)))
        yield _MISSING, labels, float(rank in attempt.silent)
        if rank in lateness:
            yield _LATENESS, labels, lateness[rank] / 1e9
        if rank in board.latest:
            for metric, value in _of_step(*board.latest[rank]):
                yield metric, labels, value


def _of_step(number: int, step: LiveStep) -> Iterator[tuple[Metric, float | None]]:
    yield _STEP, number
    yield _SECONDS, step.time / 1e9
    yield _DATA, None if step.data is None else step.data / 1e9
    yield _MEMORY, step.peak_memory


def _of_job(board: Board, mfu: float | None) -> Iterator[tuple[Metric, Labels, float | None]]:
    attempt, line = board.current, board.newest
    if attempt is None:
        return
    yield _RANKS, (), attempt.world_size
    yield _ATTEMPT, (), attempt.number
    yield _DROPPED, (), sum(session.dropped for session in board.sessions)
    for kind in KINDS:
        yield _ANOMALIES, (("kind", kind),), board.anomalies[kind]
    if line is not None and line.attempt == attempt.number:
        yield _JOB_SECONDS, (), line.time / 1e9
        yield _JOB_MEDIAN, (), line.median / 1e9
        yield _SAMPLES, (), line.rate(line.samples)
        yield _TOKENS, (), line.rate(line.tokens)
        yield _MFU, (), mfu

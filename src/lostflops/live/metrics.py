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
_CAPACITY = Metric("lostflops_device_memory_bytes", "Total memory of the rank's device.", "By")
_LEVEL = Metric(
    "lostflops_collector_level",
    "What the rank's collector records: 0 everything, 1 no collectives and no stacks, 2 step boundaries, 3 nothing.",
    "1",
)
_LATENESS = Metric(
    "lostflops_enqueue_lateness_seconds",
    "Largest delay in a step after the first rank of the host to enqueue a collective, mean of 20 steps.",
    "s",
)
_MISSING = Metric(
    "lostflops_rank_missing", "1 if other ranks keep reporting steps but this rank does not, else 0.", "1"
)
_BLOCKING = Metric(
    "lostflops_rank_blocking", "1 if the job is stalled and others wait for this rank in a collective, else 0.", "1"
)
_STALLED = Metric(
    "lostflops_job_stalled", "1 if no rank has finished a step for longer than 5 usual steps and --wait, else 0.", "1"
)
_ENDED = Metric("lostflops_job_ended", "1 if every process of the current attempt reported its end, else 0.", "1")
_REPORTED = Metric(
    "lostflops_last_report_timestamp_seconds", "Unix time at which any rank's collector was last heard from.", "s"
)
_BEGUN = Metric("lostflops_attempt_start_timestamp_seconds", "Unix time at which the current attempt began.", "s")
_JOB_SECONDS = Metric("lostflops_job_step_seconds", "Duration of the last step on its slowest rank.", "s")
_JOB_MEDIAN = Metric("lostflops_job_median_step_seconds", "Duration of the last step on the median rank.", "s")
_SAMPLES = Metric("lostflops_samples_per_second", "Samples per second over all ranks in the last step.", "1/s")
_TOKENS = Metric("lostflops_tokens_per_second", "Tokens per second over all ranks in the last step.", "1/s")
_MFU = Metric("lostflops_mfu_ratio", "Model FLOPs of the last step as a fraction of peak, from 0 to 1.", "1")
_RANKS = Metric("lostflops_ranks", "Number of ranks in the current attempt.", "1")
_ATTEMPT = Metric("lostflops_attempt", "Number of the current attempt, from 0.", "1")
_DROPPED = Metric("lostflops_dropped_records_total", "Records lost by collectors.", "1", "counter")
_ANOMALIES = Metric(
    "lostflops_anomalies_total", "Times that the job became slower or stalled, or its memory grew.", "1", "counter"
)
KINDS: Final = ("slower", "late_rank", "data", "memory", "stall")

METRICS: Final = (
    *(_STEP, _SECONDS, _DATA, _MEMORY, _CAPACITY, _LATENESS, _MISSING, _BLOCKING, _LEVEL),
    *(_JOB_SECONDS, _JOB_MEDIAN, _SAMPLES, _TOKENS, _MFU, _RANKS, _STALLED, _ENDED),
    *(_ATTEMPT, _BEGUN, _REPORTED, _DROPPED, _ANOMALIES),
)


def collect(board: Board, mfu: float | None, clock_zero: float = 0.0) -> dict[Metric, list[Sample]]:
    """Return the samples of every metric that has a value now.

    `clock_zero` is the Unix time at which the watcher's clock showed 0.
    """
    found: dict[Metric, list[Sample]] = {}
    for metric, labels, value in (*_of_ranks(board), *_of_job(board, mfu, clock_zero)):
        if value is not None:
            found.setdefault(metric, []).append((labels, value))
    return {metric: found[metric] for metric in METRICS if metric in found}


def _of_ranks(board: Board) -> Iterator[tuple[Metric, Labels, float | None]]:
    attempt = board.current
    if attempt is None:
        return
    lateness, blocking = board.lateness.mean_lateness(), board.blocking_ranks or ()
    for rank, session in sorted(attempt.sessions.items()):
        labels = (("host", session.host), ("rank", str(rank)))
        yield _MISSING, labels, float(rank in attempt.silent)
        yield _BLOCKING, labels, float(rank in blocking)
        yield _LEVEL, labels, session.level
        yield _CAPACITY, labels, session.device_memory
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


def _of_job(board: Board, mfu: float | None, clock_zero: float) -> Iterator[tuple[Metric, Labels, float | None]]:
    attempt, line = board.current, board.newest
    if attempt is None:
        return
    yield _RANKS, (), attempt.world_size
    yield _STALLED, (), float(board.blocking_ranks is not None)
    yield _ENDED, (), float(board.is_ended)
    yield _ATTEMPT, (), attempt.number
    yield _BEGUN, (), attempt.start / 1e9
    yield _REPORTED, (), None if board.heard is None else clock_zero + board.heard
    yield _DROPPED, (), sum(session.dropped for session in board.sessions)
    for kind in KINDS:
        yield _ANOMALIES, (("kind", kind),), board.anomalies[kind]
    if line is not None and line.attempt == attempt.number:
        yield _JOB_SECONDS, (), line.time / 1e9
        yield _JOB_MEDIAN, (), line.median / 1e9
        yield _SAMPLES, (), line.rate(line.samples)
        yield _TOKENS, (), line.rate(line.tokens)
        yield _MFU, (), mfu

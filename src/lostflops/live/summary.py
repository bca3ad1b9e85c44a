"""Summary of a job, when watching it ends."""

from __future__ import annotations

from collections import Counter

from lostflops.core.results import Block, Field, Pair, Pairs, Result, Table
from lostflops.core.units import pluralise
from lostflops.live.board import Board
from lostflops.live.follow import Follower
from lostflops.live.notices import name_ranks


def summary(board: Board, follower: Follower) -> Result:
    totals, sessions = board.totals, list(board.sessions)
    steps = Pairs(
        "steps",
        "Steps",
        (
            Pair("seen", len(totals.times), "count"),
            Pair("p50_ns", totals.quantile(0.5), "ns", "p50"),
            Pair("p95_ns", totals.quantile(0.95), "ns", "p95"),
            Pair("samples_per_second", totals.samples.per_second, "rate", "samples/s"),
            Pair("tokens_per_second", totals.tokens.per_second, "rate", "tokens/s"),
            Pair("incomplete", totals.incomplete, "count", "with missing ranks"),
        ),
    )
    losses = Pairs(
        "collector",
        "Collector",
        (
            Pair("restarts", max(0, len(board.attempts) - 1), "count"),
            Pair("records_dropped", sum(session.dropped for session in sessions), "count", "records dropped"),
            Pair("collectives_lost", sum(session.lost for session in sessions), "count", "collectives overwritten"),
            Pair("damaged", follower.damaged, "count", "damaged sections"),
            Pair("records_of_unknown_sessions", board.homeless, "count", "records from unknown processes"),
            Pair("records_unreadable", board.unreadable, "count", "records from another version", board.unreadable > 0),
        ),
    )
    blocks: tuple[Block, ...] = (steps, losses, *_notes(board))
    return Result("watch", "Watched job", _verdict(board), blocks, _remarks(board, follower), version=2)


def _verdict(board: Board) -> str:
    attempt, times = board.current, board.totals.times
    if attempt is None:
        return "Nothing is recorded yet."
    if not times:
        return f"No step seen yet on {pluralise(attempt.world_size, 'rank')}."
    judged = board.lateness.judge(board.totals.quantile(0.5) or 0, again=True)
    if judged is None or judged.power is None:
        who = "Which rank is late is unknown: too few steps show when two ranks of one host enqueue collectives."
    elif judged.late:
        who = judged.late[0].say()
    else:
        who = f"No rank is late. {judged.power.say()}"
    ended = "The job ended" if board.is_ended else "The job was still running"
    return f"{ended}: {pluralise(len(times), 'step')} on {pluralise(attempt.world_size, 'rank')}. {who}"


def _notes(board: Board) -> tuple[Table, ...]:
    """Return a table of what collectors noted, summed over ranks; no table if they noted nothing."""
    counts: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for session in board.sessions:
        for what, (count, reason) in session.notes.items():
            counts[what] += count
            reasons[what] = reason
    rows = tuple((what, count, reasons[what]) for what, count in counts.most_common())
    fields = (Field("what"), Field("count", "count"), Field("reason"))
    return (Table("noted", "Notes of the collectors", fields, rows),) if rows else ()


def _remarks(board: Board, follower: Follower) -> tuple[str, ...]:
    found = []
    if unfinished := board.find_unfinished_step():
        step, ranks = unfinished
        found.append(f"Step {step} was not finished: {name_ranks(ranks)} had not reported it.")
    if board.current and board.current.silent:
        found.append(f"{name_ranks(board.current.silent).capitalize()} stopped reporting.")
    if board.current and board.current.hosts > 1:
        found.append("Ranks are compared only within their host: clocks of different hosts are not aligned here.")
    if follower.skipped:
        found.append("Long files were read only near their end: earlier steps are not counted.")
    return tuple(found)

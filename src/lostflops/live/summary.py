"""What was seen of a job, when watching it ends."""

from __future__ import annotations

from collections import Counter

from lostflops.live.board import Board
from lostflops.live.follow import Follower
from lostflops.live.lateness import overall
from lostflops.live.notices import name_ranks
from lostflops.results import Block, Field, Pair, Pairs, Result, Table
from lostflops.units import counted, format_ns


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
            Pair("incomplete", totals.incomplete, "count", "with a rank missing"),
        ),
    )
    losses = Pairs(
        "collector",
        "Collector",
        (
            Pair("restarts", max(0, len(board.attempts) - 1), "count"),
            Pair("records_dropped", sum(session.dropped for session in sessions), "count", "records dropped"),
            Pair("collectives_lost", sum(session.lost for session in sessions), "count", "collectives overwritten"),
            Pair("damaged", follower.damaged, "count", "damaged stretches"),
            Pair("records_of_unknown_sessions", board.homeless, "count", "records of unknown sessions"),
            Pair("records_unreadable", board.unreadable, "count", "records of another version", board.unreadable > 0),
        ),
    )
    blocks: tuple[Block, ...] = (steps, losses, *_notes(board))
    return Result("watch", "Watched", _verdict(board), blocks, _remarks(board, follower))


def _verdict(board: Board) -> str:
    attempt, times = board.current, board.totals.times
    if attempt is None:
        return "Nothing was recorded so far."
    if not times:
        return f"No step of {counted(attempt.world_size, 'rank')} was seen."
    late = overall(board.lateness.whole)
    who = (
        f"{name_ranks([late.rank])} enqueues last in {100 * late.share:.0f}% of its collectives, "
        f"{format_ns(late.lateness)} behind the first of its host on average"
        if late
        else "no rank stands out as last to enqueue"
        if board.lateness.whole.met
        else "who comes last cannot be told: no two ranks of one host were seen in a collective"
    )
    ended = "The job ended" if board.is_ended else "The job was seen to run"
    return f"{ended}: {counted(len(times), 'step')} on {counted(attempt.world_size, 'rank')}; {who}."


def _notes(board: Board) -> tuple[Table, ...]:
    """What collectors noted, summed over ranks."""
    counts: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for session in board.sessions:
        for what, (count, reason) in session.notes.items():
            counts[what] += count
            reasons[what] = reason
    rows = tuple((what, count, reasons[what]) for what, count in counts.most_common())
    fields = (Field("what"), Field("count", "count"), Field("reason"))
    return (Table("noted", "Noted by collectors", fields, rows),) if rows else ()


def _remarks(board: Board, follower: Follower) -> tuple[str, ...]:
    found = []
    if unfinished := board.unfinished():
        step, ranks = unfinished
        found.append(f"Step {step} was under way: {name_ranks(ranks)} had not reported it.")
    if board.current and board.current.silent:
        found.append(f"{name_ranks(board.current.silent).capitalize()} did not report any more.")
    if board.current and board.current.hosts > 1:
        found.append("Ranks are compared with those of their own host: clocks of several hosts are not tied here.")
    if follower.skipped:
        found.append("Long files were taken up near their end: earlier steps are not counted.")
    return tuple(found)

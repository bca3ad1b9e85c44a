"""The pace of a job in answers: in figures and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from lostflops.account.pace.normal import normal_steps, traced_attempt
from lostflops.account.pace.strip import SLOW
from lostflops.account.pace.timings import PACED, PHASES, JobPace, within
from lostflops.core.results import Field, Pair, Pairs, Table
from lostflops.core.units import format_ns, format_share, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_STEPS: Final = 20
"""Number of newest steps that are listed, and of slowest steps."""
_FOR_PERCENTILES: Final = 20
"""Fewest steps of which one in twenty is slower than a 95th percentile."""
_SHORT: Final = {"forward": "fwd", "backward": "bwd", "optimizer": "optim", "outside": "rest"}
_MARKS: Final = ("first", "compiled", "profiled", "skipped")

_LISTED: Final = f"""
    with {PACED},
    placed as (
        select *, row_number() over (order by step desc) as age, row_number() over (order by ns desc, step) as place,
               count(*) over () as of_all
        from paced
    )
    select step, ns, slowest_rank, slowest_ns, {", ".join(PHASES)},
           {", ".join(f"{phase}_sum / greatest(ns_sum, 1)" for phase in PHASES)},
           is_first, compiled, profiled, skipped, settled, of_all
    from placed where {{chosen}} order by step"""
_BESIDE: Final = """
    select count(distinct step) from timings
    where {within} and profiled and step not in (select step from steps)"""
_ATTEMPTS: Final = """
    select attempt, max(world_size), count(distinct rank), max(restart), min(start), max(stop) - min(start),
           coalesce(bool_and(ended), false), sum(records)::bigint, sum(dropped)::bigint
    from attempts group by attempt order by attempt"""


def report_recording(run: Run, paces: Sequence[JobPace], pace: JobPace) -> Pairs:
    """Report what the collector recorded, how fast the job went, and what recording cost."""
    attempts, dropped, lost = run.rows(
        """select count(distinct attempt), coalesce(sum(dropped), 0)::bigint,
                  (select coalesce(sum(count), 0)::bigint from stats where what = 'ring_entries_lost')
           from attempts"""
    )[0]
    window = [step for (step,) in run.rows("select distinct step from steps order by step")]
    beside = run.rows(_BESIDE.format(within=within((), pace.attempt)))[0][0] if window else 0
    return Pairs(
        "recorded",
        "Recorded in all steps",
        (
            Pair("attempts", attempts, "count", shown=attempts > 1),
            Pair("attempt", pace.attempt, label="attempt shown", shown=attempts > 1),
            Pair("steps", sum(one.steps for one in paces), "count"),
            Pair("settled_steps", pace.settled, "count", "normal steps"),
            Pair("step_p50_ns", _whole(pace.p50), "ns", "normal step, median"),
            Pair("step_p95_ns", _whole(pace.p95), "ns", "normal step, 95%"),
            *_rates(pace),
            Pair("collector_share", pace.own_share, "share", "cost of recording, of a step"),
            Pair("profiled_steps", count := len(window) or pace.profiled_steps, "count", "profiled steps", count > 0),
            Pair(
                "steps_beside_window",
                beside,
                "count",
                "steps while Lostflops prepared or wrote",
                beside > 0,
            ),
            Pair("profiled_ratio", pace.profiled_ratio, "rate", "profiled step / normal step", bool(window)),
            Pair("window_first_step", window[0] if window else None, shown=False),
            Pair("window_last_step", window[-1] if window else None, shown=False),
            Pair("window", _stretch(window), label="steps of the trace", shown=bool(window)),
            Pair("records_dropped", dropped, "count", "records dropped"),
            Pair("collectives_lost", lost, "count", "collectives lost", lost > 0),
        ),
    )


def list_steps(run: Run, pace: JobPace, ranks: Sequence[int] = (), steps: Sequence[int] = ()) -> Table:
    """List steps of the attempt: those asked for, else the newest and the slowest."""
    chosen = f"step in ({', '.join(map(str, steps))})" if steps else f"least(age, place) <= {MOST_STEPS}"
    rows = run.rows(_LISTED.format(within=within(ranks, pace.attempt), chosen=chosen))
    fields = (
        Field("step"),
        Field("time_ns", "ns", "time"),
        Field("slowest_rank", label="slowest rank"),
        Field("slowest_ns", "ns", shown=False),
        *(Field(f"{phase}_ns", "ns", shown=False) for phase in PHASES),
        *(Field(phase, "share", _SHORT.get(phase, phase), "shares") for phase in PHASES),
        *(Field(mark, shown=False) for mark in (*_MARKS, "settled")),
        Field("mark"),
    )
    kept = tuple(
        (row[0], round(row[1]), *row[2:4], *map(_whole, row[4:9]), *row[9:19], _mark(row, pace)) for row in rows
    )
    left_out = rows[0][19] - len(kept) if rows else 0
    return Table("timings", "By step, on the training thread (median of ranks)", fields, kept, left_out)


def phases(pace: JobPace) -> Table:
    """Return where the training thread was: the mean of settled steps and ranks."""
    rows = tuple(
        (name, None if ns is None else round(ns / (pace.timed or 1)), pace.share(name))
        for name, ns in zip(PHASES, pace.phases, strict=True)
    )
    fields = (Field("phase"), Field("ns", "ns", "mean"), Field("share", "share"))
    return Table("step_phases", "By phase of a step, on the training thread", fields, rows)


def attempts(run: Run, paces: Sequence[JobPace]) -> Table:
    by_number = {pace.attempt: pace for pace in paces}
    rows = []
    for number, world, ranks, restart, start, lasted, ended, records, dropped in run.rows(_ATTEMPTS):
        pace = by_number.get(number)
        steps, settled, p50 = (pace.steps, pace.settled, _whole(pace.p50)) if pace else (0, 0, None)
        ends = (pace.first_step, pace.last_step) if pace else (None, None)
        rows.append((number, world, ranks, restart, start, lasted, ended, steps, settled, p50, records, dropped, *ends))
    fields = (
        Field("attempt"),
        Field("world_size", "count", "world"),
        Field("ranks", "count"),
        Field("restart"),
        Field("start", "time"),
        Field("ns", "ns", "lasted"),
        Field("ended"),
        Field("steps", "count"),
        Field("settled_steps", "count", "normal steps"),
        Field("step_p50_ns", "ns", "median step"),
        Field("records", "count", shown=False),
        Field("dropped", "count", shown=False),
        Field("first_step", shown=False),
        Field("last_step", shown=False),
    )
    return Table("attempts", "Attempts", fields, tuple(rows))


def went(run: Run, pace: JobPace) -> str:
    """Say how fast the job went, and where the time of a step is; the normal step is the one that every verb states."""
    if pace.p50 is None or pace.p95 is None:
        return (
            f"{pluralise(pace.steps, 'step')} recorded, but no normal step: each is the first, compiled, profiled or "
            "without an update, or ran before the first timed forward pass."
        )
    known = {phase: share for phase in PHASES if (share := pace.share(phase))}
    largest = sorted(known, key=known.__getitem__, reverse=True)
    shares = ", ".join(f"{phase} {format_share(known[phase])}" for phase in largest)
    normal = normal_steps(run)
    of_pace = normal is not None and normal.attempt == pace.attempt
    step, how = pace.p50, f"median of {pace.settled:,}"
    if normal is not None and of_pace:
        step, how = normal.location.value, f"trimmed mean of {pace.settled:,} steps"
    most = f"; 95% take up to {format_ns(round(pace.p95))}" if pace.settled >= _FOR_PERCENTILES else ""
    return f"A normal step takes {format_ns(round(step))} ({how}{most}): {shares}."


def notes(run: Run, paces: Sequence[JobPace], pace: JobPace) -> Iterator[str]:
    if len(paces) > 1:
        yield f"{len(paces)} attempts have steps; attempt {pace.attempt} is shown, the newest with a normal step."
        traced = traced_attempt(run)
        if traced not in (None, pace.attempt):
            yield f"The trace is of attempt {traced}, so its steps are not those of attempt {pace.attempt}."
    (world,) = run.rows(f"select max(world_size) from attempts where attempt = {pace.attempt}")[0]
    if world is not None and pace.ranks < world:
        yield f"The run has timings of {pace.ranks:,} of {world:,} ranks: rates count only these ranks."
    groups = "select exists (select 1 from groups where size > 1 and size < (select max(size) from groups))"
    if (pace.samples_per_second or pace.tokens_per_second) and run.rows(groups)[0][0]:
        yield (
            "Samples and tokens are summed over ranks: a batch that is shared by the ranks of a tensor or pipeline "
            "group counts more than once."
        )


def _rates(pace: JobPace) -> Iterator[Pair]:
    for what, rate in (("samples", pace.samples_per_second), ("tokens", pace.tokens_per_second)):
        yield Pair(f"{what}_per_second", rate, "rate", f"{what} per second", rate is not None)


def _mark(row: Sequence[Any], pace: JobPace) -> str:
    flags = row[14:18]
    is_slow = row[18] and pace.p50 is not None and row[1] > SLOW * pace.p50
    return next((mark for mark, is_set in zip(_MARKS, flags, strict=True) if is_set), "slow" if is_slow else "")


def _stretch(steps: Sequence[int]) -> str | None:
    """Return the first and last step as text; None without steps.

    >>> _stretch([5, 6, 7]), _stretch([5]), _stretch([5, 7]), _stretch([])
    ('5 to 7', '5', '5 to 7 (2 of them)', None)
    """
    if not steps:
        return None
    if len(steps) == 1:
        return str(steps[0])
    missing = len(steps) < steps[-1] - steps[0] + 1
    return f"{steps[0]} to {steps[-1]}" + (f" ({len(steps)} of them)" if missing else "")


def _whole(ns: float | None) -> int | None:
    return None if ns is None else round(ns)

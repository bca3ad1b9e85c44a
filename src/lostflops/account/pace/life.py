"""The life of a job: all time of its ranks, from the first start to the last end, by what it was spent on.

Each nanosecond of a rank is on exactly one line. Ranks that were not recorded count like the mean of the others. Steps
count as training up to the time of a normal step (`timings`), because the ledger says what is lost inside a step. Work
that is done again after a restart counts as training: the collector does not know from which step a program goes on.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from lostflops.account.pace.normal import FEWEST, normal_steps
from lostflops.account.pace.timings import PACED, choose_pace, paces, within

if TYPE_CHECKING:
    from lostflops.store.run import Run

TRAINING: Final = "training"
UNKNOWN: Final = "unknown"
LIFE: Final = {
    TRAINING: "in steps, up to the time of a normal step",
    "starting": "before the first step, and what the first steps and those that compile take beyond a normal step",
    "checkpointing": "in functions that write checkpoints, on the training thread",
    "evaluating": "in forward passes without gradients between steps",
    "profiling": "what profiled steps take beyond a normal step",
    "stalled": "what other steps take beyond a normal step, if they take more than twice as long",
    "restarting": "between attempts: no process of the rank ran",
    "ending": "after the last step of an attempt",
    UNKNOWN: "not timed: records were lost, or steps were not recorded",
}
"""Lines of a life, and what each holds."""
STALLED: Final = 2.0
"""A step that takes this many times as long as a normal one is stalled: what it takes beyond a normal one is lost."""

_STEPS: Final = f"""
    with {PACED},
    split as (
        select rank, own.attempt as attempt, own.ns as ns,
               least(greatest(coalesce(saving, 0), 0), own.ns) as saved,
               least(greatest(coalesce(evaluating, 0), 0), own.ns - saved) as evaluated,
               own.ns - saved - evaluated as rest, $normal as normal, least(rest, normal) as usual,
               paced.is_first or paced.compiled or paced.is_early as starts, paced.profiled as profiled
        from own join paced using (attempt, step)
    ),
    named as (
        select *, case when starts then 'starting' when profiled then 'profiling'
                       when rest > {STALLED} * normal then 'stalled' else '{TRAINING}' end as excess_line
        from split
    )
    select rank, attempt, sum(ns)::bigint, sum(saved)::bigint, sum(evaluated)::bigint, sum(usual)::bigint,
           {
    ", ".join(
        f"coalesce(sum(rest - usual) filter (excess_line = '{line}'), 0)::bigint"
        for line in (TRAINING, "starting", "profiling", "stalled")
    )
}
    from named group by rank, attempt"""
_ATTEMPTS: Final = """
    with timed as (select rank, attempt, min(start) as first, max(stop) as last from timings group by rank, attempt)
    select rank, attempt, start, stop, first, last, bool_or(first is not null) over (partition by attempt),
           greatest(world_size, count(*) over (partition by attempt)), count(*) over (partition by attempt)
    from attempts left join timed using (rank, attempt)
    where start is not null order by rank, start, attempt"""
_STEP_LINES: Final = ("checkpointing", "evaluating", TRAINING, TRAINING, "starting", "profiling", "stalled")


def life_of(run: Run) -> Counter[str]:
    """Return the time of all ranks by line of `LIFE`, in ns; nothing if the collector recorded no attempt."""
    steps = _read_steps(run)
    life: Counter[str] = Counter()
    before: tuple[int, int] | None = None
    for rank, attempt, start, written, first, last, is_timed, ranks, recorded in run.rows(_ATTEMPTS):
        own: Counter[str] = Counter()
        stop = latest = max(start, written or start, last or start)
        if before is not None and before[0] == rank:
            own["restarting"] += max(0, start - before[1])
            latest = max(latest, before[1])  # an attempt may begin and end while another runs
        before = rank, latest
        if first is None or last is None:
            # Without a step on any rank, the attempt ended before its first; a rank without steps was not timed.
            own[UNKNOWN if is_timed else "starting"] += stop - start
        else:
            own.update(_life_of_attempt(start, stop, first, last, steps.get((rank, attempt))))
        life.update({line: ns * ranks // recorded for line, ns in own.items()})
    return life


def _read_steps(run: Run) -> dict[tuple[int, int], tuple[int, Counter[str]]]:
    """Return for each rank and attempt the time in steps, and how it is split."""
    normal = _normal_of_attempts(run)
    if not normal:
        return {}
    query = _STEPS.format(within=within(())).replace("$normal", normal)
    found = {}
    for rank, attempt, whole, *parts in run.rows(query):
        split: Counter[str] = Counter()
        for line, ns in zip(_STEP_LINES, parts, strict=True):
            split[line] += ns
        found[rank, attempt] = whole, split
    return found


def _normal_of_attempts(run: Run) -> str:
    """Return SQL for the normal step of each attempt in ns: each may have run elsewhere, on more or fewer ranks.

    An attempt with few steps has that of the job; empty if no normal step is known.
    """
    found = paces(run)
    known = {pace.attempt: round(pace.p50) for pace in found if pace.p50 and pace.settled >= FEWEST}
    normal, pace = normal_steps(run), choose_pace(found)
    usual = round(pace.p50) if pace is not None and pace.p50 else None
    if normal is not None:
        usual = known[normal.attempt] = round(normal.location.value)
    if usual is None:
        return ""
    cases = " ".join(f"when {attempt} then {ns}" for attempt, ns in known.items())
    return f"case own.attempt {cases} else {usual} end" if cases else str(usual)


def _life_of_attempt(
    start: int, stop: int, first: int, last: int, steps: tuple[int, Counter[str]] | None
) -> Counter[str]:
    """Split the time of one process, which has steps from `first` to `last`."""
    first = max(first, start)
    whole, split = steps or (0, Counter())
    gaps = last - first - whole
    if gaps < 0:  # steps overlap: their times cannot be trusted
        whole, split, gaps = 0, Counter(), last - first
    return split + Counter({"starting": first - start, UNKNOWN: gaps, "ending": stop - last})

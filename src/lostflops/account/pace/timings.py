"""The pace of a job, by the timings of all its steps.

The time of a step is the median of its ranks. Steps are of a kind by the optimizers that step in them, and only those
of one kind are normal: of the kinds that a trace shows, the one that takes most time. A step is normal, or settled, if
it is not the first of its kind, and on no rank anything was compiled or profiled in it or its update skipped (by a
GradScaler: such a step is shorter), and if it is not before the first step with a timed forward pass. Figures are of
settled steps, and of the newest attempt that has any. Shares of phases are of those settled steps whose phases were
timed: a collector that costs too much stops timing them. Phases are those of the training thread: on an accelerator
they show where the host was, not where the device was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lostflops.store.run import Run

PHASES: Final = ("data", "forward", "backward", "optimizer", "outside")


def _aggregate_phase(how: str, phase: str) -> str:
    """Return SQL for a phase over the ranks; null if one of them did not record it."""
    return f"if(count({phase}) = count(*), {how}({phase}), null)"


PACED: Final = f"""
    own as (
        select *, stop - start as ns from timings where {{within}}
    ),
    grouped as (
        select attempt, step, count(*) as ranks, median(ns) as ns, max(ns) as slowest_ns,
               arg_max(rank, ns) as slowest_rank,
               {", ".join(f"{_aggregate_phase('median', phase)} as {phase}" for phase in PHASES)},
               {", ".join(f"{_aggregate_phase('sum', phase)} as {phase}_sum" for phase in PHASES)},
               sum(ns) as ns_sum, if(count(own) = count(*), sum(own), null) as own_sum,
               if(count(samples) = count(*), sum(samples), null) as samples,
               if(count(tokens) = count(*), sum(tokens), null) as tokens,
               coalesce(bool_or(compiled), false) as compiled, coalesce(bool_or(profiled), false) as profiled,
               coalesce(bool_or(skipped), false) as skipped, coalesce(any_value(kind_of_step), '') as kind,
               step in (select step from steps) as traced
        from own group by attempt, step
    ),
    kinds as (
        select attempt, arg_max(kind, (traced, taken)) as main
        from (select attempt, kind, bool_or(traced) as traced, sum(ns) as taken from grouped group by attempt, kind)
        group by attempt
    ),
    marked as (
        select *, step = min(step) over (partition by attempt, kind) as is_first,
               ranks = max(ranks) over (partition by attempt) as is_whole,
               step < min(step) filter (forward is not null) over (partition by attempt) as is_early,
               forward is not null or max(forward) over (partition by attempt) is null as is_phased,
               kind = main as is_main
        from grouped join kinds using (attempt)
    ),
    paced as (
        select *, coalesce(not (is_first or compiled or skipped or is_early), true) and is_main as is_regular,
               is_regular and not profiled as settled, settled and is_phased as is_told,
               bool_or(is_told) over (partition by attempt) as any_told
        from marked
    )"""
"""SQL of the steps of each attempt, from the timings that are `within`."""

_RATE: Final = """sum({what}) filter (settled and is_whole) * 1e9
           / nullif(sum(ns) filter (settled and is_whole and {what} is not null), 0)"""
_SUMMARY: Final = f"""
    with {PACED}
    select attempt, count(*), count(*) filter (settled), max(ranks), min(step), max(step),
           quantile_cont(ns, 0.5) filter (settled), quantile_cont(ns, 0.95) filter (settled),
           {_RATE.format(what="samples")}, {_RATE.format(what="tokens")},
           sum(own_sum) filter (settled) / nullif(sum(ns_sum) filter (settled and own_sum is not null), 0),
           median(ns) filter (profiled and is_regular),
           count(*) filter (profiled), sum(ranks) filter (is_told or not any_told),
           sum(ns_sum) filter (is_told or not any_told),
           {", ".join(f"sum({phase}_sum) filter (is_told or not any_told)" for phase in PHASES)}
    from paced group by attempt order by attempt"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPace:
    """Pace of one attempt; times are in ns, rates are of all its ranks together, and None is unknown."""

    attempt: int
    steps: int
    settled: int
    ranks: int
    first_step: int
    last_step: int
    p50: float | None
    p95: float | None
    samples_per_second: float | None
    tokens_per_second: float | None
    own_share: float | None
    profiled_ns: float | None
    profiled_steps: int
    timed: int
    """Number of steps, over all ranks, that `phases` sum up."""
    ns: float
    """Time of these steps."""
    phases: tuple[float | None, ...]
    """Sums over settled steps and ranks with timed phases, over all steps if there are none; None is unknown."""

    @property
    def profiled_ratio(self) -> float | None:
        """Time of a profiled step over that of a settled one."""
        return self.profiled_ns / self.p50 if self.profiled_ns is not None and self.p50 else None

    def share(self, phase: str) -> float | None:
        ns = self.phases[PHASES.index(phase)]
        return None if ns is None else ns / (self.ns or 1)


def paces(run: Run, ranks: Sequence[int] = ()) -> list[JobPace]:
    """Return the pace of each attempt in order; empty if no step was timed."""
    return [_pace(row) for row in run.rows(_SUMMARY.format(within=within(ranks)))]


def choose_pace(found: Sequence[JobPace]) -> JobPace | None:
    """Return the newest attempt with a settled step, else the newest."""
    return next((pace for pace in reversed(found) if pace.settled), found[-1] if found else None)


def within(ranks: Sequence[int], attempt: int | None = None) -> str:
    of_ranks = f"rank in ({', '.join(map(str, ranks))})" if ranks else "true"
    return of_ranks if attempt is None else f"{of_ranks} and attempt = {attempt}"


def _pace(row: Sequence[float | None]) -> JobPace:
    attempt, steps, settled, ranks, first, last = (int(value or 0) for value in row[:6])
    p50, p95, samples, tokens, own, profiled_ns = (None if value is None else float(value) for value in row[6:12])
    return JobPace(
        attempt=attempt,
        steps=steps,
        settled=settled,
        ranks=ranks,
        first_step=first,
        last_step=last,
        p50=p50,
        p95=p95,
        samples_per_second=samples,
        tokens_per_second=tokens,
        own_share=own,
        profiled_ns=profiled_ns,
        profiled_steps=int(row[12] or 0),
        timed=int(row[13] or 0),
        ns=float(row[14] or 0),
        phases=tuple(row[15:]),
    )

"""The lines that begin and end every summary of a run: the job, and what was recorded of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.account.job.answers import first_sentence
from lostflops.account.pace.kinds import describe_kinds
from lostflops.account.pace.last_change import find_last_change
from lostflops.account.pace.normal import UNLIKE, normal_steps
from lostflops.account.pace.timings import PACED, choose_pace, paces, within
from lostflops.core.units import format_ns, format_percent, pluralise

if TYPE_CHECKING:
    from lostflops.account.ledger.total import RunLedger
    from lostflops.account.pace.timings import JobPace
    from lostflops.store.run import Run

_PROFILED: Final = f"""
    with {PACED}
    select count(*), sum(ns) from paced where profiled and is_regular"""


def describe_job(run: Run, total: RunLedger) -> str:
    """Return how the job ended, what took its time if that was not training, then ranks, hosts, device, backend and
    step time, such as "8 ranks on 2 hosts (CPU, gloo), 126 ms per step."

    The step time is that of a normal step, as predictions use it; without timings it is the mean of the ledger's steps.
    """
    [(ranks, world, hosts, named, devices, backends)] = run.rows(
        """select count(distinct rank), max(world_size), count(distinct host), bool_and(host is not null),
                  list(distinct device order by device), list(distinct backend order by backend) from ranks"""
    )
    seen = pluralise(ranks, "rank") if not world or world <= ranks else f"{ranks:,} of {pluralise(world, 'rank')}"
    place = f" on {pluralise(hosts, 'host')}" if named and hosts else ""
    known = [backend for backend in backends if backend]
    is_cpu = not any("nccl" in backend for backend in known) and not _has_device_events(run)
    kinds = ", ".join([*([name for name in devices if name][:2] or (["CPU"] if is_cpu else [])), *known])
    step = _step_time(run, total)
    who = f"{seen}{place}" + (f" ({kinds})" if kinds else "") + (f", {format_ns(step)} per step." if step else ".")
    return " ".join(filter(None, (first_sentence(run), who, describe_kinds(run))))


def _step_time(run: Run, total: RunLedger) -> int | None:
    """Return the time of a step in ns; None without steps."""
    normal = normal_steps(run)
    if normal is not None:
        return round(normal.location.value)
    pace = choose_pace(paces(run))
    if pace is not None and pace.p50:
        return round(pace.p50)
    return round(total.total_ns / total.step_count) if total.step_count else None


def describe_recording(run: Run) -> str:
    """Return how much was recorded and what that cost; empty where steps were not timed."""
    found = paces(run)
    pace = choose_pace(found)
    if pace is None:
        return ""
    cost = "" if pace.own_share is None else f" at a cost of {format_percent(pace.own_share)} of the step"
    timed = f"Recorded {pluralise(sum(one.steps for one in found), 'step')}{cost}"
    said = f"{timed}; {profiled}." if (profiled := _describe_profiling(run)) else f"{timed}."
    return f"{said} {later}" if (later := _describe_later_change(run, pace)) else said


def _describe_later_change(run: Run, pace: JobPace) -> str:
    """Return how much slower the job became after its last profiled step, so that nothing profiled shows why."""
    [(profiled,)] = run.rows("select max(step) from steps")
    change = find_last_change(run, pace.attempt)
    if profiled is None or change is None or change.step <= profiled:
        return ""
    return (
        f"Since about step {change.step}, steps take {format_percent(change.rise)} longer than before; all profiled "
        "steps are from before that, so they do not show why."
    )


def _describe_profiling(run: Run) -> str:
    """Return how many steps have a trace, and how much longer profiled steps took than as many normal ones: the
    profiler also needs time before and after the steps that it keeps."""
    [(count,)] = run.rows("select count(distinct step) from steps")
    if not count:
        return ""
    normal = normal_steps(run)
    if normal is not None:
        [(steps, ns)] = run.rows(_PROFILED.format(within=within((), normal.attempt)))
        usual = steps * normal.location.value
        if steps and ns > UNLIKE * usual:
            return f"profiling {count} of them added {format_ns(round(ns - usual))}"
    return f"{count} of them {'was' if count == 1 else 'were'} profiled"


def _has_device_events(run: Run) -> bool:
    return bool(run.rows("select 1 from lanes where kind = 'stream' limit 1"))

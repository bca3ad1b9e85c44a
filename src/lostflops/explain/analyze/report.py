"""Where did the time of the run go, and what share of the peak FLOPs did the model get?

Every nanosecond of every rank's window is on exactly one line; the lines sum to the ranks' wall time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeGuard

import numpy as np

from lostflops.account.align.answers import clock_notes, clock_of
from lostflops.account.align.mesh import recognise
from lostflops.account.job.answers import JOB, first_sentence, report_job
from lostflops.account.job.headline import describe_job
from lostflops.account.late.charges import charges_by_line
from lostflops.account.late.ranks import judge_ranks
from lostflops.account.late.timed import judge_timed_steps
from lostflops.account.ledger.answers import total_of
from lostflops.account.ledger.bound import WORDS, Bound
from lostflops.account.ledger.breakdowns import job_phase_table, layers, module_table, sampled_in, where
from lostflops.account.ledger.by_rank import Progress
from lostflops.account.ledger.iterations import explain_iterations, read_iterations, tabulate_iterations
from lostflops.account.ledger.lines import (
    BUSY_LINES,
    COMM_LINES,
    DEFINITIONS,
    GROUPS,
    LINES,
    WAIT_LINES,
    compute_group_shares,
)
from lostflops.account.ledger.mfu import Claims, hfu, waterfall
from lostflops.account.ledger.scope import Scope, scope
from lostflops.account.ledger.total import RunLedger
from lostflops.account.ledger.windows import WindowKind, inferred_steps
from lostflops.account.memory.summary import summary
from lostflops.account.pace.normal import UNLIKE, normal_steps
from lostflops.account.pace.timed_steps import TimedSteps
from lostflops.core.errors import UsageError
from lostflops.core.results import Field, Line, Lines, Pair, Pairs, Result, Section, Table, Value
from lostflops.core.units import format_ns, format_percent, format_share, pluralise

if TYPE_CHECKING:
    from lostflops.account.pace.normal import NormalSteps
    from lostflops.store.run import Run

MOST_LOSSES: Final = 3
MOST_ROWS: Final = 12
UNEVEN: Final = 1.1
"""A rank is named as the one that loses most if its share is above this many times the mean."""
NO_MODULES: Final = "No modules were recorded. lostflops run records them by default."
_ONE_RANK: Final = "Only one rank was recorded: comm.transfer includes its waits for other ranks."
NO_JOB_PHASES: Final = 'No phases of the job were marked: use torch.profiler.record_function("phase:NAME").'
NO_JOB: Final = "only the collector records a whole job; this run has traces alone. Start the job with lostflops run."
_FOLDED: Final = ("utilization", "overlap", "throughput", "memory", "quality", "recorded")
"""Blocks that a terminal shows with --full."""
_FOR: Final = "for rank "
_MOST_CHARGED: Final = 64
"""Most ranks of which a report says who caused waits: of more, `lostflops ranks` does, and takes longer."""
SMALL: Final = 0.02
"""Unexplained time above this share is named in a note."""


def report(
    run: Run,
    *,
    window: WindowKind | None = None,
    ranks: Sequence[int] = (),
    steps: Sequence[int] = (),
    by: str = "",
    said: Claims | None = None,
    progress: Progress | None = None,
) -> Result:
    asked = scope(run, window, ranks, steps)
    total = total_of(run, asked, progress)
    said = said or Claims()
    fall = waterfall(run, asked, total, said)
    done = hfu(run, asked, total, said)
    # Given FLOPs may exceed those that were counted: then it is not known what devices did.
    done = None if done is not None and fall.value is not None and done < fall.value else done
    used = _utilization(fall.value, done, Bound.of(total))
    accelerated = _count_accelerated_ranks(run, total.on_thread)
    clock = clock_of(run)
    breakdowns = {
        "phase": _sums_table("phases", "By phase of training, all ranks", total.phases, total.total_ns),
        "job-phase": job_phase_table(total.job_phases, total.total_ns),
        "annotation": _sums_table("annotations", "By annotation", total.annotations, total.total_ns),
        "module": module_table("modules", total.modules, total.total_ns),
        "layer": module_table("layers", layers(total.modules), total.total_ns),
        "rank": _worst_ranks(total),
    }
    has_phases = bool(breakdowns["job-phase"].rows)
    shown = breakdowns.pop(by or ("job-phase" if has_phases else "phase"))
    served = read_iterations(run, asked.ranks, asked.steps)
    told, held = TimedSteps.of(run, ranks), summary(run, asked.ranks)
    whole_job = report_job(run) or ()
    charged, normal = _charge_waits(run, asked, total), normal_steps(run)
    result = Result(
        name="report",
        version=3,
        title="Where the time went",
        verdict=("No device events: this is the training thread. " if accelerated else "")
        + _verdict(_subject(run, asked, total), asked, total, used),
        blocks=(
            fall,
            used,
            _ledger(charged, normal),
            _losses(run, charged),
            shown,
            *([tabulate_iterations(served)] if served else []),
            *([_overlap(total)] if total.comm else []),
            *([_throughput(total, said, told, normal)] if total.step_count else []),
            *([held] if held is not None else []),
            _quality(run, asked, total),
        ),
        notes=(
            *([NO_MODULES] if by in ("module", "layer") and not shown.rows else []),
            *([NO_JOB_PHASES] if by == "job-phase" and not has_phases else []),
            *explain_iterations(served),
            *filter(None, (inferred_steps(run, asked.ranks),)),
            *_notes(asked, total, accelerated, _records_launches(run, asked)),
            *([_ONE_RANK] if len(run.ranks) == 1 and total.lines["comm.transfer"] else []),
            *(clock_notes(run, clock) if total.comm and len(total.ranks) > 1 else ()),
        ),
        more=(
            *breakdowns.values(),
            *([] if total.comm else [_overlap(total)]),
            *([] if total.step_count else [_throughput(total, said, told, normal)]),
            _window(asked, total),
            _ranks(total),
            where(total.samples, total.sampled_ns),
            clock,
            *whole_job,
        ),
        folded=(
            *([] if by or has_phases else [shown.name]),
            *([] if fall.value is not None else [fall.name]),
            *_FOLDED,
        ),
    )
    if told is None:
        return result
    if total.total_ns:
        return told.report(result)
    made = told.report(result, judge_timed_steps(run, recognise(run), told.pace).answer())
    return replace(made, verdict=f"{first_sentence(run)} {made.verdict}".strip())


def show_job(answer: Result) -> Result:
    """Show the job's own ledger in place of that of its profiled steps."""
    blocks = tuple(block for block in answer.more if is_of_job(block))
    if not blocks:
        raise UsageError(NO_JOB)
    return replace(answer, blocks=blocks, more=(*answer.blocks, *(one for one in answer.more if one not in blocks)))


def is_of_job(block: object) -> TypeGuard[Section | Table]:
    """Return whether a block is about the whole job, and has something to show."""
    if isinstance(block, Table):
        return block.name in ("life_by_rank", "compilations") and bool(block.rows)
    return isinstance(block, Section) and block.name == JOB


def _subject(run: Run, asked: Scope, total: RunLedger) -> str:
    """Describe the job, or the part of it that was asked for."""
    if asked.steps or len(asked.ranks) < len(run.ranks):
        steps = f", {pluralise(len(total.steps), 'step')}" if total.steps else ""
        return f"{pluralise(len(total.ranks), 'rank')}{steps}."
    return describe_job(run, total)


def _verdict(subject: str, asked: Scope, total: RunLedger, used: Pairs) -> str:
    if not total.total_ns:
        return f"{subject} No rank recorded any time in this window."
    losses = [line for line, ns in total.lines.most_common() if line != "compute" and ns]
    largest = " and ".join(f"{line} {format_percent(total.share(line))}" for line in losses[:2])
    lost = f"the largest losses are {largest}" if len(losses) > 1 else f"the only loss is {largest}"
    span = "the recorded time" if asked.kind is WindowKind.TRACE else "the time"
    share = format_percent(total.share("compute"))
    said = f"{subject} {_describe_utilization(used, total.share('compute'))}Compute takes {share} of {span}"
    return said + (f"; {lost}." if losses else ".")


def _describe_utilization(used: Pairs, compute: float) -> str:
    """Return MFU, HFU and what bounds the job, as far as they are known, with a space at the end; and its share, unless
    the share of `compute`, which follows, has it all."""
    known = [(name, share) for name, share in (("MFU is", used.mfu), ("HFU", used.hfu)) if share is not None]
    reached = (
        f"{', '.join(f'{name} {format_percent(share)}' for name, share in known)}. " if used.mfu is not None else ""
    )
    if used.bound is None:
        return reached
    if used.bound != "balanced":
        share = getattr(used, f"{used.bound}_bound")
        of = (
            ""
            if used.bound == "compute" and share < compute + 0.01
            else f": {format_percent(share)} of the time, including waits for it"
        )
        return f"{reached}Bound by {used.bound}{of}. "
    first, second = sorted(WORDS, key=lambda word: -getattr(used, f"{word}_bound"))[:2]
    return f"{reached}Balanced between {first} and {second}. "


def _utilization(mfu: float | None, hardware: float | None, bound: Bound) -> Pairs:
    return Pairs(
        "utilization",
        "Utilization, and what bounds the job",
        (
            Pair("mfu", mfu, "share", "MFU"),
            Pair("hfu", hardware, "share", "HFU"),
            Pair("bound", bound.word, label="bound by"),
            *(Pair(f"{word}_bound", bound.shares[word], "share", f"{word}-bound time") for word in WORDS),
        ),
    )


def _charge_waits(run: Run, asked: Scope, total: RunLedger) -> RunLedger:
    """Return the ledger with waits by the rank that caused them, as `lostflops ranks` charges them: the last to arrive
    may have waited itself."""
    lines = [line for line in WAIT_LINES if len(total.parts.get(line, ())) > 0]
    if not lines or not 1 < len(total.ranks) <= _MOST_CHARGED:
        return total
    found = judge_ranks(run, asked, recognise(run))
    if not found.stragglers:
        return total
    due = charges_by_line(found.profiles, found.comparison, [one.rank for one in found.stragglers])
    ranks, parts = found.comparison.ranks.tolist(), dict(total.parts)
    for line in lines:
        known = sum(ns for name, ns in total.parts[line].items() if name.removeprefix(_FOR).isdecimal())
        others = {name: ns for name, ns in total.parts[line].items() if not name.removeprefix(_FOR).isdecimal()}
        whole = float(due[line].sum())
        if whole > 0:
            own = [round(known * float(ns) / whole) for ns in due[line]]
            own[int(np.argmax(due[line]))] += known - sum(own)
            parts[line] = Counter({f"{_FOR}{rank}": ns for rank, ns in zip(ranks, own, strict=True) if ns > 0} | others)
    return replace(total, parts=parts)


def _ledger(total: RunLedger, normal: NormalSteps | None) -> Lines:
    whole = total.total_ns or 1
    per, unit = (total.step_count, "step") if total.step_count else (max(len(total.ranks), 1), "rank")
    items = tuple(
        Line(
            line,
            total.lines[line],
            total.lines[line] / whole,
            tuple(Line(name, ns, ns / whole) for name, ns in total.parts.get(line, Counter()).most_common()),
        )
        for line in LINES
    )
    title = "The ledger"
    if normal is not None and total.step_count:
        usual = normal.location.value
        if not 1 / UNLIKE < total.total_ns / total.step_count / usual < UNLIKE:
            title = f"The ledger of the profiled steps (normal steps take {format_ns(round(usual))})"
    return Lines("ledger", title, items, total.total_ns, per, unit)


def _losses(run: Run, total: RunLedger) -> Table:
    largest = [line for line, ns in total.lines.most_common() if line != "compute" and ns][:MOST_LOSSES]
    rows = []
    for line in largest:
        _, rank, event = total.longest.get(line, (0, None, None))
        evidence = ". ".join(part[:1].upper() + part[1:] for part in _evidence(run, total, line))
        rows.append((line, total.lines[line], total.share(line), DEFINITIONS[line], evidence, rank, event))
    return Table(
        "losses",
        "Largest losses",
        (
            Field("line"),
            Field("ns", "ns", shown=False),
            Field("share", "share"),
            Field("meaning", shown=False),
            Field("evidence"),
            Field("rank", shown=False),
            Field("event", shown=False),
        ),
        tuple(rows),
    )


_NAMED_FIRST: Final = {
    "comm.wait": "waits for ",
    "comm.bubble": "waits for ",
    "comm.transfer": "most in groups ",
}
"""Lines whose parts are ranks or groups, each with what these are to the line."""


def _evidence(run: Run, total: RunLedger, line: str) -> Iterator[str]:
    made_of = total.parts.get(line, Counter()).most_common(2)
    if made_of:
        of = _NAMED_FIRST.get(line)
        shares = [(format_percent(ns / total.lines[line]), name.removeprefix("for ")) for name, ns in made_of]
        if of is not None:
            yield of + ", ".join(f"{name} ({share})" for share, name in shares)
        else:
            yield ", ".join(f"{share} {name}" for share, name in shares)
    if len(total.ranks) > 1:
        most = max(total.ranks, key=lambda rank: rank.lines[line] / (rank.wall or 1))
        share, mean = most.lines[line] / (most.wall or 1), total.share(line)
        if share > UNEVEN * mean:
            yield f"highest on rank {most.rank} ({format_percent(share)}, mean {format_percent(mean)})"
    if line in total.longest:
        ns, rank, event = total.longest[line]
        name = _event_name(run, rank, event)
        verb = "in" if line in (*COMM_LINES, "copy") else "before"
        place = f" {verb} {name} (rank {rank}, event {event})" if name else f" (rank {rank})"
        yield f"longest {format_ns(ns)}{place}"
    if line == "idle.sync":
        yield from _describe_blocker(run, total)
    yield from sampled_in(total.samples, total.sampled_ns, line)


def _describe_blocker(run: Run, total: RunLedger) -> Iterator[str]:
    rank, event = total.blocker
    found = run.rows(f"select name, source from events where rank = {rank} and event = {event}")
    for name, source in found:
        yield f"blocked in {name}" + (f" at {source}" if source else "") + f" (event {event})"


def _event_name(run: Run, rank: int, event: int) -> str:
    if event < 0:
        return ""
    found = run.rows(f"select name from events where rank = {rank} and event = {event}")
    name: str = (found[0][0] or "") if found else ""
    return name if len(name) <= 60 else name[:57] + "..."


def _sums_table(name: str, title: str, sums: Mapping[str, Counter[str]], whole: int) -> Table:
    ordered = sorted(sums.items(), key=lambda item: -item[1].total())[:MOST_ROWS]
    fields = (
        Field("name", label=name.removesuffix("s")),
        Field("ns", "ns", "time"),
        Field("share", "share"),
        *(Field(group, "share") for group in GROUPS),
    )
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (key, lines.total(), lines.total() / (whole or 1), *compute_group_shares(lines)) for key, lines in ordered
    )
    return Table(name, title, fields, rows, len(sums) - len(rows))


def _worst_ranks(total: RunLedger) -> Table:
    """Tabulate the mean of all ranks, then ranks, the one that computes least first."""
    ordered = sorted(total.ranks, key=lambda rank: rank.lines["compute"] / (rank.wall or 1))[:MOST_ROWS]
    fields = (
        Field("rank"),
        Field("wall_ns", "ns", "wall"),
        *(Field(group, "share") for group in GROUPS),
        Field("largest_loss", label="largest loss"),
    )
    mean = (
        "mean",
        total.total_ns // max(len(total.ranks), 1),
        *compute_group_shares(total.lines),
        _largest(total.lines),
    )
    rows = tuple(
        (str(rank.rank), rank.wall, *compute_group_shares(rank.lines), _largest(rank.lines)) for rank in ordered
    )
    return Table("worst_ranks", "By rank", fields, (mean, *rows), len(total.ranks) - len(rows))


def _largest(lines: Mapping[str, int]) -> str | None:
    lost = {line: ns for line, ns in lines.items() if line != "compute" and ns}
    return max(lost, key=lambda line: lost[line]) if lost else None


def _ranks(total: RunLedger) -> Table:
    fields = (Field("rank"), Field("wall_ns", "ns"), *(Field(line, "ns", within="lines") for line in LINES))
    rows = tuple((rank.rank, rank.wall, *(rank.lines[line] for line in LINES)) for rank in total.ranks)
    return Table("ranks", "Ranks", fields, rows)


def _overlap(total: RunLedger) -> Pairs:
    return Pairs(
        "overlap",
        "Communication and compute, all ranks",
        (
            Pair("compute_ns", total.compute, "ns", "compute"),
            Pair("comm_ns", total.comm, "ns", "communication"),
            Pair("hidden_ns", total.hidden, "ns", "hidden by compute"),
            Pair("exposed_ns", total.comm - total.hidden, "ns", "exposed"),
            Pair("efficiency", total.efficiency, "share", "hidden, of what could be"),
        ),
    )


def _window(asked: Scope, total: RunLedger) -> Pairs:
    return Pairs(
        "window",
        "Window",
        (
            Pair("kind", asked.kind.value),
            Pair("ranks", tuple(rank.rank for rank in total.ranks)),
            Pair("steps", tuple(sorted(total.steps))),
            Pair("wall_ns", max((rank.wall for rank in total.ranks), default=0), "ns", "longest rank"),
        ),
    )


def _throughput(total: RunLedger, said: Claims, told: TimedSteps | None, steps: NormalSteps | None) -> Pairs:
    """Tabulate rates of normal steps, because profiled ones are slower."""
    mean = total.total_ns / total.step_count if total.step_count else None
    timed = told.pace.ns / told.pace.timed if told is not None and told.pace.settled and told.pace.timed else mean
    normal = timed if steps is None else steps.location.value
    tokens, samples = _per_second(said.tokens, normal), _per_second(said.samples, normal)
    if told is not None:
        tokens = told.pace.tokens_per_second if tokens is None else tokens
        samples = told.pace.samples_per_second if samples is None else samples
    slowest = max((rank.wall / rank.steps for rank in total.ranks if rank.steps), default=None)
    busy = sum(total.share(line) for line in BUSY_LINES) if total.total_ns else None
    step = "step" if normal == mean else "profiled step"
    return Pairs(
        "throughput",
        "Throughput",
        (
            Pair("step_ns", round(mean) if mean else None, "ns", f"{step}, mean of ranks"),
            Pair("slowest_step_ns", round(slowest) if slowest else None, "ns", f"{step}, slowest rank"),
            Pair("steps_per_second", _per_second(1, normal), "rate", "steps per second"),
            Pair("tokens_per_second", tokens, "rate", "tokens per second", tokens is not None),
            Pair("samples_per_second", samples, "rate", "samples per second", samples is not None),
            Pair("busy", busy, "share", "device busy"),
        ),
    )


def _per_second(per_step: float | None, step_ns: float | None) -> float | None:
    return per_step * 1e9 / step_ns if per_step and step_ns else None


def _quality(run: Run, asked: Scope, total: RunLedger) -> Pairs:
    chosen = ", ".join(map(str, asked.ranks))
    world, dropped = run.rows(
        f"""select (select max(world_size) from ranks where rank in ({chosen})), coalesce(sum(count), 0)::bigint
            from stats where effect = 'dropped' and rank in ({chosen})"""
    )[0]
    return Pairs(
        "quality",
        "Data",
        (
            Pair("ranks_seen", len(total.ranks), "count", "ranks recorded"),
            Pair("world_size", world, "count", "ranks in the job"),
            Pair("records_dropped", dropped, "count", "records dropped"),
            Pair("kernels", total.kernels, "count", shown=False),
            Pair("kernels_without_launch", total.unlaunched, "count", "kernels without launch"),
            Pair("unexplained_ns", total.lines["unexplained"], "ns", shown=False),
            Pair("unexplained", total.share("unexplained"), "share"),
        ),
    )


def _notes(asked: Scope, total: RunLedger, accelerated: int, records_launches: bool) -> Iterator[str]:
    for note, ranks in total.notes.most_common():
        yield f"{note} ({pluralise(ranks, 'rank')})"
    silent = len(asked.ranks) - sum(rank.wall > 0 for rank in total.ranks)
    if silent:
        yield f"{pluralise(silent, 'rank')} recorded no time in this window, and count nowhere."
    if accelerated:
        yield (
            f"{pluralise(accelerated, 'rank')} with an accelerator recorded no device events, "
            "so this shows the training "
            "thread. Profile with ProfilerActivity.CUDA."
        )
    if total.share("unexplained") > SMALL:
        why = (
            "the kernels after these gaps have no launch in the trace, or their thread recorded no op. Start the "
            "recording one step earlier, with ProfilerActivity.CPU."
            if records_launches
            else "this trace format has no launches, so why a device was idle is unknown."
        )
        yield f"{format_share(total.share('unexplained'))} is unexplained: {why}"


def _records_launches(run: Run, asked: Scope) -> bool:
    """Return whether any rank is in a format that records launches."""
    chosen = ", ".join(map(str, asked.ranks))
    without = run.sql(f"select count(distinct rank) from stats where what = 'no_launches' and rank in ({chosen})")
    return int(without.fetchall()[0][0]) < len(asked.ranks)


def _count_accelerated_ranks(run: Run, ranks: Sequence[int]) -> int:
    if not ranks:
        return 0
    chosen = ", ".join(map(str, ranks))
    found = run.rows(
        f"""select count(*) from ranks where rank in ({chosen}) and
            (device is not null or backend like '%nccl%'
             or rank in (select rank from events where kind = 'runtime' and rank in ({chosen})))"""
    )
    return int(found[0][0])

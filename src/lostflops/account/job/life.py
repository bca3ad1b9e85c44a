"""The life of a job: all time of its ranks, from the start of the command to its end, by what it was spent on.

Each nanosecond of a rank is on exactly one line. Ranks that were not recorded count like the mean of the others. Steps
count as training up to the time of a normal step (`timings`), because the ledger says what is lost inside a step. Work
that is done again after a restart counts as training: the collector does not know from which step a program goes on.

Where a job was not started with `lostflops run`, or an older collector recorded it, its life begins and ends with what
is known: the start of a process, or its first step.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.account.job.compilations import Compilation, compilations, time_within
from lostflops.account.pace.normal import FEWEST, normal_steps
from lostflops.account.pace.timings import PACED, choose_pace, paces, within
from lostflops.collect.capture import BEGAN, COMMAND, ENDED, STOPPED
from lostflops.core.units import format_ns

if TYPE_CHECKING:
    from lostflops.store.run import Run

TRAINING: Final = "training"
UNKNOWN: Final = "unknown"
LIFE: Final = {
    "launching": "from the start of the command to the start of the rank's process",
    "importing": "import of torch",
    "preparing": "all else until the first step: other imports, model, data, process groups",
    "starting": "what the first step takes beyond a normal step, if nothing was compiled in it",
    "compiling": "torch.compile before the first step ends; later what steps with it take beyond a normal step",
    TRAINING: "in steps, up to the time of a normal step",
    "checkpointing": "in functions that write checkpoints, on the training thread",
    "evaluating": "in forward passes without gradients between steps",
    "profiling": "what profiled steps take beyond a normal step",
    "stalled": "what other steps take beyond a normal step, if they take more than twice as long",
    "restarting": "between attempts: no process of the rank ran",
    "ending": "after the last step of an attempt, until the program ended",
    "recording": "after the program ended, until Lostflops had written its last records",
    "leaving": "until the command ended: exit of the process, and of its launcher",
    UNKNOWN: "not timed: records were lost, or steps were not recorded",
}
"""Lines of a life in the order of a job, and what each holds."""
STALLED: Final = 2.0
"""A step that takes this many times as long as a normal one is stalled: what it takes beyond a normal one is lost."""

_STEPS: Final = f"""
    with {PACED},
    other_kinds as (
        select attempt, kind, median(ns)::bigint as usual_of_kind
        from paced where not (is_main or is_first or compiled or profiled) group by attempt, kind
    ),
    split as (
        select rank, own.attempt as attempt, own.ns as ns,
               least(greatest(coalesce(saving, 0), 0), own.ns) as saved,
               least(greatest(coalesce(evaluating, 0), 0), own.ns - saved) as evaluated,
               own.ns - saved - evaluated as rest,
               coalesce(if(is_main, null, usual_of_kind), $normal) as normal, least(rest, normal) as usual,
               paced.is_first or paced.is_early as starts, paced.compiled as compiles, paced.profiled as profiled
        from own join paced using (attempt, step) left join other_kinds using (attempt, kind)
    ),
    named as (
        select *, case when compiles then 'compiling' when starts then 'starting' when profiled then 'profiling'
                       when rest > {STALLED} * normal then 'stalled' else '{TRAINING}' end as excess_line
        from split
    )
    select rank, attempt, sum(ns)::bigint, sum(saved)::bigint, sum(evaluated)::bigint, sum(usual)::bigint,
           {
    ", ".join(
        f"coalesce(sum(rest - usual) filter (excess_line = '{line}'), 0)::bigint"
        for line in (TRAINING, "compiling", "starting", "profiling", "stalled")
    )
}
    from named group by rank, attempt"""
_ATTEMPTS: Final = """
    with timed as (select rank, attempt, min(start) as first, max(stop) as last from timings group by rank, attempt)
    select rank, attempt, start, stop, first, last,
           bool_or(first is not null) over (partition by attempt) or exists (select 1 from steps),
           greatest(world_size, count(*) over (partition by attempt)), count(*) over (partition by attempt)
    from attempts left join timed using (rank, attempt)
    where start is not null order by rank, start, attempt"""
_LATEST: Final = 1 << 61
"""No clock shows a later time, in ns; a capture may come from anybody."""
_TIMES: Final = {
    BEGAN: {name: name for name in ("command", "process", "import", "torch")},
    ENDED: {"ended": "wall"},
    STOPPED: {"stopped": "wall"},
    COMMAND: {"stop": "stop"},
}
"""Facts that have times, and what each time is called in them."""
_FACTS: Final = f"select rank, attempt, key, value from job where key in {tuple(_TIMES)}"
_STEP_LINES: Final = (
    *("checkpointing", "evaluating", TRAINING, TRAINING, "compiling", "starting", "profiling", "stalled"),
)


def life_of(run: Run) -> Counter[str]:
    """Return the time of all ranks by line of `LIFE`, in ns; nothing if the collector recorded no attempt."""
    life: Counter[str] = Counter()
    for attempts in lives(run).values():
        for split, ranks, recorded in attempts:
            life.update({line: ns * ranks // recorded for line, ns in split.items()})
    return life


def lives(run: Run) -> dict[int, list[tuple[Counter[str], int, int]]]:
    """Return the life of each rank by attempt: its lines in ns, ranks of the attempt, and how many were recorded."""
    return run.keep("lives", lambda: _read_lives(run))


def _read_lives(run: Run) -> dict[int, list[tuple[Counter[str], int, int]]]:
    steps, facts, compiled = _read_steps(run), _read_facts(run), _group_compilations(run)
    found: dict[int, list[tuple[Counter[str], int, int]]] = {}
    before: tuple[int, int] | None = None
    rows = run.rows(_ATTEMPTS)
    newest = max((row[1] for row in rows), default=0)
    for rank, attempt, start, written, first, last, is_timed, ranks, recorded in rows:
        known = facts.get((rank, attempt), {})
        is_new = before is None or before[0] != rank
        if attempt < newest:  # the command went on without this rank
            known = {name: ns for name, ns in known.items() if name != "stop"}
        marks = _Marks.of(known, start, written, first, last, is_first=is_new)
        own = _split_attempt(marks, steps.get((rank, attempt)), is_timed=is_timed, is_cut="stopped" in known)
        latest = marks.left
        early = time_within(compiled.get((rank, attempt), ()), marks.torch, marks.written if first is None else first)
        line = "preparing" if own["preparing"] >= early else UNKNOWN
        own.update({line: -min(early, own[line]), "compiling": min(early, own[line])})
        if before is not None and not is_new:
            own["restarting"] += max(0, marks.process - before[1])
            latest = max(latest, before[1])  # an attempt may begin and end while another runs
        before = rank, latest
        found.setdefault(rank, []).append((own, ranks, recorded))
    return found


def _group_compilations(run: Run) -> dict[tuple[int, int], list[Compilation]]:
    found: dict[tuple[int, int], list[Compilation]] = {}
    for one in compilations(run):
        found.setdefault((one.rank, one.attempt), []).append(one)
    return found


def _read_facts(run: Run) -> dict[tuple[int, int], dict[str, int]]:
    """Return what each process and its command said of its times, in ns."""
    found: dict[tuple[int, int], dict[str, int]] = {}
    for rank, attempt, key, value in run.rows(_FACTS):
        fact = json.loads(value)
        times = {name: fact.get(own) for name, own in _TIMES[key].items()} if isinstance(fact, dict) else {}
        found.setdefault((rank, attempt), {}).update(
            {name: ns for name, ns in times.items() if type(ns) is int and 0 <= ns < _LATEST}
        )
    return found


@dataclass(frozen=True, slots=True)
class _Marks:
    """Times that divide the life of a process, in order."""

    command: int
    process: int
    imports: int
    torch: int
    start: int
    first: int | None
    last: int
    ended: int
    written: int
    left: int

    @classmethod
    def of(
        cls,
        facts: Mapping[str, int],
        start: int,
        written: int | None,
        first: int | None,
        last: int | None,
        *,
        is_first: bool,
    ) -> _Marks:
        """Order what is known; whatever a clock put before its predecessor takes no time."""
        start = start if first is None else min(start, first)
        torch = min(facts.get("torch", start), start)
        process = min(facts.get("process", torch), torch)
        imports = max(min(facts.get("import", process), torch), process)
        command = min(facts.get("command", process), process) if is_first else process
        end = max(start, last or start)
        stop = max(end, written or end)
        ended = min(max(end, facts.get("ended", stop)), stop)
        return cls(command, process, imports, torch, start, first, end, ended, stop, max(stop, facts.get("stop", stop)))


def _split_attempt(
    marks: _Marks, steps: tuple[int, Counter[str]] | None, *, is_timed: bool, is_cut: bool
) -> Counter[str]:
    """Return the lines of one process; `is_cut` if the collector stopped before it, so that its last steps are not
    known."""
    own = Counter(launching=marks.process - marks.command, importing=marks.torch - marks.imports)
    own["preparing"] = marks.imports - marks.process
    own["leaving"] = marks.left - marks.written
    if marks.first is None:
        # Without a step on any rank, the attempt ended before its first; a rank without steps was not timed.
        own[UNKNOWN if is_timed else "preparing"] += marks.written - marks.torch
        return own
    own["preparing"] += marks.first - marks.torch
    own["recording"] = marks.written - marks.ended
    own[UNKNOWN if is_cut else "ending"] += marks.ended - marks.last
    whole, split = steps or (0, Counter())
    gaps = marks.last - marks.first - whole
    if gaps < 0:  # steps overlap: their times cannot be trusted
        whole, split, gaps = 0, Counter(), marks.last - marks.first
    own[UNKNOWN] += gaps
    own.update(split)
    return own


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


_NOT_TIMED: Final = "not timed"
_PARTS: Final = {
    "passed before the first step": ("launching", "importing", "preparing"),
    "in the first step": ("starting",),
    "compiling": ("compiling",),
    "writing checkpoints": ("checkpointing",),
    "in forward passes without gradients": ("evaluating",),
    "in profiled steps": ("profiling",),
    "in stalled steps": ("stalled",),
    "restarting": ("restarting",),
    "after the last step": ("ending", "recording", "leaving"),
    _NOT_TIMED: (UNKNOWN,),
}
"""Parts of a life other than training, as a sentence names them."""
_WORTH_NAMING: Final = 0.05
"""Parts below this share of the life are not named: the sentence shows where to look first."""
_MOST_NAMED: Final = 3


def describe_life(life: Mapping[str, int], ranks: float, *, is_mean: bool = False, most: int = _MOST_NAMED) -> str:
    """Return what took the time of a job if less than half of it was training; else nothing.

    >>> describe_life({"training": 400, "preparing": 19_600, "compiling": 5_500}, 1)
    'Of 25.5 us, 400 ns is training; 19.6 us passed before the first step, 5.50 us compiling.'
    >>> describe_life({"training": 400, "preparing": 200}, 1)
    ''
    """
    whole = sum(life.values())
    parts = {name: sum(life.get(line, 0) for line in lines) for name, lines in _PARTS.items()}
    largest = sorted((ns, name) for name, ns in parts.items() if ns >= _WORTH_NAMING * whole)[-most:]
    if not whole or not largest or life.get(TRAINING, 0) >= whole / 2 or largest[-1][1] == _NOT_TIMED:
        return ""
    named = {name for _, name in largest}
    told = ", ".join(f"{format_ns(round(ns / ranks))} {name}" for name, ns in parts.items() if name in named)
    of = f"Of {format_ns(round(whole / ranks))}" + (" (mean of ranks)" if is_mean else "")
    return f"{of}, {format_ns(round(life.get(TRAINING, 0) / ranks))} is training; {told}."

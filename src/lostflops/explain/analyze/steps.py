"""How long did each step take, on which rank, and where did its time go?

Steps in the timeline are split by the ledger; all steps that the collector timed are split by phase of the training
thread.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.by_rank import Progress
from lostflops.account.ledger.iterations import explain_iterations, read_iterations, tabulate_iterations
from lostflops.account.ledger.lines import GROUPS, LINES, compute_group_shares
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.windows import WindowKind, inferred_steps
from lostflops.account.pace.strip import SLOW, Timed, history_strip, largest, list_windows, strip, timed_strip
from lostflops.account.pace.timed_steps import TimedSteps
from lostflops.core.results import Field, Pair, Pairs, Plot, Result, Table, Value
from lostflops.core.units import format_ns, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_STEPS: Final = 40
"""The first steps up to this number are listed; slow ones always are."""


def steps(
    run: Run, *, ranks: Sequence[int] = (), steps: Sequence[int] = (), progress: Progress | None = None
) -> Result:
    told = TimedSteps.of(run, ranks)
    if told is None:
        return _report_profiled_steps(run, ranks, steps, progress)
    held = _read_traced_steps(run, scope(run, None, ranks).ranks)
    wanted = [step for step in steps if step in held]
    told.refuse_untimed(set(steps) - held)
    profiled = held and (wanted or not steps)
    found = (
        _report_profiled_steps(run, ranks, wanted, progress)
        if profiled
        else Result("steps", "Steps", "", more=_empty())
    )
    result = told.steps(found, steps)
    result = replace(result, more=(*result.more, list_windows(run, ranks)))
    shown = timed_strip(run, told.pace, ranks, steps)
    if steps or len(told.paces) == 1:
        return _add_step_plot(result, shown)
    return _add_step_plot(result, history_strip(run, told.paces, ranks), shown)


def _add_step_plot(result: Result, plot: Plot, *only_json: Plot) -> Result:
    """Return the result with a plot of its steps, in place of one that it has; a single step needs none on screens."""
    drawn = {plot.name, *(one.name for one in only_json)}
    blocks = tuple(block for block in result.blocks if block.name not in drawn)
    more = (*(block for block in result.more if block.name not in drawn), *only_json)
    if sum(len(series.points) for series in plot.series if series.drawn == "marks") < 2:
        return replace(result, blocks=blocks, more=(*more, plot))
    return replace(result, blocks=(plot, *blocks), more=more)


def _read_traced_steps(run: Run, ranks: Sequence[int]) -> set[int]:
    """Return the steps in the timeline."""
    chosen = ", ".join(map(str, ranks))
    return {step for (step,) in run.rows(f"select distinct step from steps where rank in ({chosen})")}


def _empty() -> tuple[Table | Pairs, ...]:
    return _table({}, {}, {}, 0.0), _summarise_spread({}, {}, 0.0), _each([])


def _report_profiled_steps(run: Run, ranks: Sequence[int], steps: Sequence[int], progress: Progress | None) -> Result:
    asked = scope(run, WindowKind.STEPS, ranks, steps)
    walls: dict[int, dict[int, int]] = defaultdict(dict)
    lines: dict[int, Counter[str]] = defaultdict(Counter)
    each = []
    for ledger in ledgers(run, asked, progress):
        for number, own in zip(ledger.window.number, ledger.steps, strict=True):
            walls[number][ledger.rank] = sum(own.values())
            lines[number].update(own)
            each.append((ledger.rank, number, sum(own.values()), *(own[line] for line in LINES)))
    means = {number: sum(by_rank.values()) / len(by_rank) for number, by_rank in sorted(walls.items())}
    middle = median(means.values()) if means else 0.0
    served = read_iterations(run, asked.ranks, asked.steps)
    result = Result(
        name="steps",
        title="Steps",
        verdict=_verdict(means, middle),
        blocks=(
            _table(means, walls, lines, middle),
            _summarise_spread(means, walls, middle),
            *([tabulate_iterations(served)] if served else []),
        ),
        more=(_each(each),),
        notes=tuple(filter(None, (inferred_steps(run, asked.ranks), *explain_iterations(served)))),
    )
    per_rank = {number: {line: ns / len(walls[number]) for line, ns in own.items()} for number, own in lines.items()}
    return _add_step_plot(result, strip(_mark_slow_steps(means, per_rank, middle), middle))


def _mark_slow_steps(
    means: Mapping[int, float], lines: Mapping[int, Mapping[str, float]], middle: float
) -> list[Timed]:
    usual = {line: median(own[line] for own in lines.values()) for line in LINES} if lines else {}
    return [
        Timed(number, mean, f"slow{largest({line: lines[number][line] - usual[line] for line in LINES})}")
        if mean > SLOW * middle
        else Timed(number, mean)
        for number, mean in means.items()
    ]


def _verdict(means: Mapping[int, float], middle: float) -> str:
    if not means:
        return "No rank has a complete step."
    slow = [number for number, mean in means.items() if mean > SLOW * middle]
    told = f"the median takes {format_ns(round(middle))}"
    if len(means) == 1:
        return f"1 step; it takes {format_ns(round(middle))}."
    if not slow:
        return f"{pluralise(len(means), 'step')}; {told}, and no step is more than {SLOW - 1:.0%} longer."
    worst = max(slow, key=lambda number: means[number])
    more = f"{len(slow):,} are slower: " if len(slow) > 1 else ""
    return (
        f"{pluralise(len(means), 'step')}; {told}; {more}step {worst} takes {means[worst] / middle:.2f} times as long."
    )


def _table(
    means: Mapping[int, float], walls: Mapping[int, Mapping[int, int]], lines: Mapping[int, Counter[str]], middle: float
) -> Table:
    rows: list[tuple[Value, ...]] = []
    for number, mean in means.items():
        slowest = max(walls[number], key=lambda rank: walls[number][rank])
        slow = "slow" if mean > SLOW * middle else ""
        rows.append((number, round(mean), slowest, walls[number][slowest], *compute_group_shares(lines[number]), slow))
    fields = (
        Field("step"),
        Field("wall_ns", "ns", "mean"),
        Field("slowest_rank", label="slowest rank"),
        Field("slowest_ns", "ns", "its time"),
        *(Field(group, "share") for group in GROUPS),
        Field("mark", shown=any(row[-1] for row in rows)),
    )
    kept = [row for number, row in enumerate(rows) if number < MOST_STEPS or row[-1]]
    return Table("steps", "By step", fields, tuple(kept), len(rows) - len(kept))


def _summarise_spread(means: Mapping[int, float], walls: Mapping[int, Mapping[int, int]], middle: float) -> Pairs:
    each = [ns for by_rank in walls.values() for ns in by_rank.values()]
    return Pairs(
        "spread",
        "Spread of the profiled steps",
        (
            Pair("median_ns", round(middle), "ns", "median"),
            Pair("shortest_ns", round(min(means.values(), default=0)), "ns", "shortest"),
            Pair("longest_ns", round(max(means.values(), default=0)), "ns", "longest"),
            Pair("steps_per_second", len(each) * 1e9 / sum(each) if sum(each) else None, "rate", "steps per second"),
        ),
    )


def _each(rows: list[tuple[int, ...]]) -> Table:
    fields = (
        Field("rank"),
        Field("step"),
        Field("wall_ns", "ns"),
        *(Field(line, "ns", within="lines") for line in LINES),
    )
    return Table("ranks", "Every rank and step", fields, tuple(rows))

"""What changed between recordings without steps? Lines and kernels per second of recording, without a verdict.

The length of a recording says nothing about the speed of a job: without steps, neither side can be called faster. The
use of a rank's time and the duration of each kernel call can still be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from lostflops.account.facts.inferred_steps import UNCOUNTED
from lostflops.account.ledger.kernel_sums import kernel_sums
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.partition import partition
from lostflops.account.ledger.parts import kernel_classes
from lostflops.account.ledger.record import records
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.core.errors import UsageError
from lostflops.core.results import Block, Figure, Result, Table
from lostflops.core.units import format_share
from lostflops.explain.compare import comparable, where
from lostflops.explain.compare.account import COLLECTIVES, Account, LineUse, average_accounts, collective_uses
from lostflops.explain.compare.change import Verdict
from lostflops.explain.compare.comparable import JobComparison
from lostflops.explain.compare.sides import OpenRun
from lostflops.store.run import Run

_SECOND: Final = 1_000_000_000
_MEANT: Final = (
    "Lines, kernels and collectives are per second of recording and rank. Fewer calls per second can mean less work, "
    "or slower work."
)
_ADVICE: Final = "To know which is faster, mark steps: an NVTX range such as `step 12` around each, or profiler.step()."


def mark_no_steps(paths: Sequence[Path], open_run: OpenRun = Run.open) -> bool:
    """Return whether all runs have a timeline and no run has a step, traced or timed, that can be compared with
    others."""
    counts = []
    inferred = ", ".join(f"'{what}'" for what in UNCOUNTED)
    for path in paths:
        with open_run(path) as run:
            counts += run.rows(
                "select (select count(*) from timings) + (select count(*) from steps where rank not in "
                f"(select rank from stats where what in ({inferred}))), (select sum(events) from ranks)"
            )
    return all(not steps and events for steps, events in counts)


def diff(
    before: Sequence[Path],
    after: Sequence[Path],
    *,
    anyway: bool = False,
    most_kernels: int = where.MOST_KERNELS,
    open_run: OpenRun = Run.open,
) -> Result:
    """Compare recordings; raise UsageError if the jobs are different, as the comparison of steps does."""
    sides = [[_read(path, open_run) for path in side] for side in (before, after)]
    comparison = comparable.compare(*([told for told, _ in side] for side in sides))
    if comparison.refused and not anyway:
        told = "; ".join(map(str, comparison.refused))
        raise UsageError(f"these are different jobs: {told}. To compare them anyway, use --anyway")
    accounts = [average_accounts([account for _, account in side]) for side in sides]
    return Result(
        name="diff",
        version=2,
        title="B compared with A",
        verdict=_verdict(accounts[0], accounts[1]),
        blocks=tuple(_blocks(accounts[0], accounts[1], comparison, most_kernels)),
        notes=(_MEANT, _ADVICE),
        more=(
            where.collective_sizes(accounts[0], accounts[1]),
            comparable.same(comparison),
            Figure("answer", str(Verdict.INCONCLUSIVE)),
            Figure("before", tuple(map(str, before))),
            Figure("after", tuple(map(str, after))),
            Figure("steps_from", "none"),
        ),
    )


def _read(path: Path, open_run: OpenRun) -> tuple[comparable.JobFacts, Account]:
    with open_run(path) as run:
        return comparable.facts(run, None, None), per_second(run)


def per_second(run: Run) -> Account:
    """Return an account whose lines sum to a second: the mean use of a rank's time."""
    ranks = [rank for (rank,) in run.rows("select rank from ranks where events > 0 order by rank")]
    lines, kernels = np.zeros(len(LINES)), defaultdict[str, LineUse](LineUse)
    for record in records(run, ranks):
        made = partition(record, window(record, WindowKind.TRACE))
        lines += [made.lines[line].total for line in LINES]
        for (_, name), found in kernel_sums(record, made, kernel_classes(record)).items():
            kernels[name] += LineUse(found.count, found.ns)
    seconds = float(lines.sum()) / _SECOND
    if not seconds:
        raise UsageError(f"{run.address} has no recorded time to compare")
    met = collective_uses(run.rows(COLLECTIVES.format(joined="")))
    return Account(
        dict(zip(LINES, (lines / seconds).tolist(), strict=True)),
        {name: use.over(seconds) for name, use in kernels.items()},
        {kind: use.over(seconds) for kind, use in met.items()},
    )


def _verdict(before: Account, after: Account) -> str:
    old, new = (side.lines["compute"] / side.step_ns for side in (before, after))
    line = max(LINES, key=lambda line: abs(after.lines[line] - before.lines[line]))
    moved = (after.lines[line] - before.lines[line]) / _SECOND
    unknown = "Inconclusive: neither side marks steps, so there is no step time to compare."
    if not moved:
        return f"{unknown} Ranks compute for {format_share(new)} of the recorded time on both, and no line changed."
    word = "more" if moved > 0 else "less"
    return (
        f"{unknown} Ranks compute for {format_share(new)} of the recorded time instead of {format_share(old)}; "
        f"the line that changed most is {line}: {format_share(abs(moved))} of the time {word}."
    )


def _blocks(before: Account, after: Account, comparison: JobComparison, most_kernels: int) -> list[Block]:
    made = where.lines(before, after)
    *held, whole = made.rows
    # All recorded seconds are equally long, so there is no difference to have shares of.
    rows = tuple(row[:-1] for row in (*held, ("recorded second", *whole[1:])))
    fields = tuple(replace(one, label="of A's time") if one.name == "share" else one for one in made.fields[:-1])
    blocks: list[Block] = [
        replace(made, title="Where the time goes, per second of recording", fields=fields, rows=rows),
        where.kernels(before, after, most_kernels),
    ]
    blocks += [where.collectives(before, after)] if before.collectives or after.collectives else []
    jobs: Table = comparable.differing(comparison)
    return [*blocks, jobs] if jobs.rows else blocks

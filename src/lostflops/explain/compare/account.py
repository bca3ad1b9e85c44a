"""Time of a mean step of a rank, from the trace of a run: by ledger line, kernel and collective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lostflops.account.ledger.kernel_sums import kernel_sums
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.partition import partition
from lostflops.account.ledger.parts import kernel_classes
from lostflops.account.ledger.record import records
from lostflops.account.ledger.windows import WindowKind, window

if TYPE_CHECKING:
    from lostflops.store.run import Run

_COLLECTIVES = """
    select coalesce(op, 'unknown') || coalesce(' of ' || group_size || ' ranks', ''), count(*), sum(c.stop - c.start),
           coalesce(sum(greatest(bytes_in, bytes_out)), 0)
    from collectives c join steps using (rank, step) group by 1"""


@dataclass(frozen=True, slots=True)
class LineUse:
    """Calls, time and bytes of a kernel or collective, as a mean per step and rank."""

    calls: float = 0.0
    ns: float = 0.0
    size: float = 0.0

    def __add__(self, other: LineUse) -> LineUse:
        return LineUse(self.calls + other.calls, self.ns + other.ns, self.size + other.size)

    def over(self, count: float) -> LineUse:
        return LineUse(self.calls / count, self.ns / count, self.size / count)


@dataclass(frozen=True, slots=True)
class Account:
    """Time of a mean step of a rank."""

    lines: Mapping[str, float]
    """Time by line of the ledger, in ns; lines sum to the step."""
    kernels: Mapping[str, LineUse]
    """Use by kernel, or by op on ranks without a device; kernels that run at the same time count each."""
    collectives: Mapping[str, LineUse]

    @property
    def step_ns(self) -> float:
        return sum(self.lines.values())


def account(run: Run) -> Account | None:
    """Return the account of a run; None if no whole step was traced."""
    ranks = [rank for (rank,) in run.rows("select distinct rank from steps order by rank")]
    lines, kernels, steps = np.zeros(len(LINES)), defaultdict[str, LineUse](LineUse), 0
    for record in records(run, ranks) if ranks else ():
        chosen = window(record, WindowKind.STEPS)
        made = partition(record, chosen)
        lines += [made.lines[line].total for line in LINES]
        for (_, name), found in kernel_sums(record, made, kernel_classes(record)).items():
            kernels[name] += LineUse(found.count, found.ns)
        steps += len(chosen.number)
    if not steps or not lines.any():
        return None
    met = {name: LineUse(calls, float(ns), float(size)) for name, calls, ns, size in run.rows(_COLLECTIVES)}
    return Account(
        dict(zip(LINES, (lines / steps).tolist(), strict=True)),
        {name: use.over(steps) for name, use in kernels.items()},
        {name: use.over(steps) for name, use in met.items()},
    )


def average_accounts(accounts: Sequence[Account]) -> Account:
    """Average accounts; each run counts once."""
    count = len(accounts)
    return Account(
        {line: sum(one.lines[line] for one in accounts) / count for line in LINES},
        _uses([one.kernels for one in accounts]),
        _uses([one.collectives for one in accounts]),
    )


def _uses(sides: Sequence[Mapping[str, LineUse]]) -> dict[str, LineUse]:
    total = defaultdict[str, LineUse](LineUse)
    for one in sides:
        for name, use in one.items():
            total[name] += use
    return {name: use.over(len(sides)) for name, use in total.items()}

"""Time of a mean step of a rank, from the trace of a run: by ledger line, kernel and collective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from lostflops.account.ledger.kernel_sums import kernel_sums
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.partition import partition
from lostflops.account.ledger.parts import kernel_classes
from lostflops.account.ledger.record import records
from lostflops.account.ledger.windows import WindowKind, window

if TYPE_CHECKING:
    from lostflops.store.run import Run

COLLECTIVES: Final = """
    select coalesce(op, 'unknown'), group_size, greatest(bytes_in, bytes_out) as size, count(*), sum(c.stop - c.start)
    from collectives c {joined} group by all order by all"""
_IN_STEPS: Final = "join steps using (rank, step)"
Key = TypeVar("Key")


class CollectiveKind(NamedTuple):
    """Collectives of one operation, group size and message size."""

    op: str
    ranks: int | None
    """Size of the group; None if unknown, as for the bytes."""
    size: int | None
    """Bytes of a call: the larger one of input and output."""

    @property
    def name(self) -> str:
        """Return the name of collectives of this operation and group size, whatever their size.

        >>> CollectiveKind("all_reduce", 8, 4096).name
        'all_reduce of 8 ranks'
        """
        return self.op if self.ranks is None else f"{self.op} of {self.ranks} ranks"


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
    kinds: Mapping[CollectiveKind, LineUse]
    """Use by kind of collective."""

    @property
    def step_ns(self) -> float:
        return sum(self.lines.values())

    @property
    def collectives(self) -> Mapping[str, LineUse]:
        """Return the use by operation and group size."""
        total = defaultdict[str, LineUse](LineUse)
        for kind, use in self.kinds.items():
            total[kind.name] += use
        return total


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
    met = collective_uses(run.rows(COLLECTIVES.format(joined=_IN_STEPS)))
    return Account(
        dict(zip(LINES, (lines / steps).tolist(), strict=True)),
        {name: use.over(steps) for name, use in kernels.items()},
        {kind: use.over(steps) for kind, use in met.items()},
    )


def collective_uses(rows: Iterable[Sequence[Any]]) -> dict[CollectiveKind, LineUse]:
    """Return the use by kind of collective, from the rows of `COLLECTIVES`."""
    return {
        CollectiveKind(op, ranks, size): LineUse(calls, float(ns), float(calls * (size or 0)))
        for op, ranks, size, calls, ns in rows
    }


def average_accounts(accounts: Sequence[Account]) -> Account:
    """Average accounts; each run counts once."""
    count = len(accounts)
    return Account(
        {line: sum(one.lines[line] for one in accounts) / count for line in LINES},
        _uses([one.kernels for one in accounts]),
        _uses([one.kinds for one in accounts]),
    )


def _uses(sides: Sequence[Mapping[Key, LineUse]]) -> dict[Key, LineUse]:
    total = defaultdict[Key, LineUse](LineUse)
    for one in sides:
        for name, use in one.items():
            total[name] += use
    return {name: use.over(len(sides)) for name, use in total.items()}

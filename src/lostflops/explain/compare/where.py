"""Where is the difference: on which lines of the ledger, in which kernels and collectives?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lostflops.account.facts.kernel_names import short
from lostflops.account.ledger.lines import LINES
from lostflops.core.results import Field, Table, Value
from lostflops.core.units import format_ns
from lostflops.explain.compare.account import Account, LineUse

MOST_KERNELS: Final = 10
_ALIKE: Final = 0.05
"""Calls, or the time of a call, must differ by more than this part to be named."""
_SEEN: Final = 0.0005
"""A difference is listed if it is at least this part of a step."""
_PLAIN: Final = 0.01
"""It must be at least this part of a step if neither calls nor their times differ by much."""
_SAME: Final = "about the same"


def lines(before: Account, after: Account) -> Table:
    """Tabulate lines in whole ns, so that differences sum to that of the step."""
    old, new = ({line: round(side.lines[line]) for line in LINES} for side in (before, after))
    whole = sum(old.values()) or 1
    told = [(line, old[line], new[line], new[line] - old[line], (new[line] - old[line]) / whole) for line in LINES]
    held = sorted((row for row in told if row[1] or row[2]), key=lambda row: -abs(row[3]))
    last = (
        "step",
        sum(old.values()),
        sum(new.values()),
        sum(row[3] for row in told),
        sum(row[3] for row in told) / whole,
    )
    fields = (
        Field("line"),
        Field("before_ns", "ns", "A"),
        Field("after_ns", "ns", "B"),
        Field("delta_ns", "ns", "difference"),
        Field("share", "share", "of a step of A"),
    )
    return Table("lines", "Where the difference is, per profiled step of a rank", fields, (*held, last))


def mostly(before: Account, after: Account) -> str:
    """Name the line that makes most of the difference."""
    deltas = {line: after.lines[line] - before.lines[line] for line in LINES}
    whole = sum(deltas.values())
    line = max(deltas, key=lambda line: deltas[line] * whole)
    own = f"Most of it is {line}: {format_ns(round(deltas[line]))}"
    if abs(deltas[line]) > abs(whole):
        return f"{own} per profiled step; other lines reduce that to {format_ns(round(whole))}."
    return f"{own} of {format_ns(round(whole))} per profiled step."


def kernels(before: Account, after: Account) -> Table:
    rows = _list_differences(before.kernels, after.kernels, before.step_ns)
    fields = (
        Field("short", label="kernel or op"),
        Field("name", shown=False),
        *_FIELDS,
    )
    shown = tuple((short(str(name)), name, *rest) for name, *rest in rows[:MOST_KERNELS])
    return Table("kernels", "Kernels and ops that changed", fields, shown, len(rows) - len(shown))


def collectives(before: Account, after: Account) -> Table:
    rows = _list_differences(before.collectives, after.collectives, before.step_ns)
    fields = (
        Field("collective"),
        *_FIELDS,
        Field("before_bytes", "bytes", shown=False),
        Field("after_bytes", "bytes", shown=False),
    )
    sizes = [_sizes(str(name), before, after) for name, *_ in rows]
    full = tuple((name, *rest, *size) for (name, *rest), size in zip(rows, sizes, strict=True))
    return Table("collectives", "Collectives that changed, including waits", fields, full)


_FIELDS: Final = (
    Field("change"),
    Field("before_calls", "rate", "calls A"),
    Field("after_calls", "rate", "calls B"),
    Field("before_ns", "ns", "A"),
    Field("after_ns", "ns", "B"),
    Field("delta_ns", "ns", "difference"),
)


def _sizes(name: str, before: Account, after: Account) -> tuple[int, int]:
    old, new = (side.collectives.get(name, LineUse()).size for side in (before, after))
    return round(old), round(new)


def _list_differences(
    before: Mapping[str, LineUse], after: Mapping[str, LineUse], step_ns: float
) -> list[tuple[Value, ...]]:
    """List differences, the largest first, without those that are a negligible part of a step."""
    found: list[tuple[Value, ...]] = []
    for name in before.keys() | after.keys():
        old, new = before.get(name, LineUse()), after.get(name, LineUse())
        word = describe_change(old, new)
        if abs(new.ns - old.ns) >= (_PLAIN if word == _SAME else _SEEN) * step_ns:
            delta = round(new.ns) - round(old.ns)
            found.append((name, word, old.calls, new.calls, round(old.ns), round(new.ns), delta))
    return sorted(found, key=lambda row: (-abs(int(row[6] or 0)), str(row[0])))


def describe_change(old: LineUse, new: LineUse) -> str:
    """Describe the change of a kernel or collective in a few words.

    >>> before = LineUse(2, 10)
    >>> describe_change(LineUse(), LineUse(1, 5))
    'new'
    >>> describe_change(before, LineUse(4, 20)), describe_change(before, LineUse(2, 12))
    ('more calls', 'longer')
    >>> describe_change(LineUse(2, 10), LineUse(1, 8))
    'fewer calls, longer'
    """
    if not old.calls:
        return "new"
    if not new.calls:
        return "gone"
    words = []
    if abs(new.calls / old.calls - 1) > _ALIKE:
        words.append("more calls" if new.calls > old.calls else "fewer calls")
    took = (new.ns / new.calls) / (old.ns / old.calls) if old.ns else 1.0
    if abs(took - 1) > _ALIKE:
        words.append("longer" if took > 1 else "shorter")
    return ", ".join(words) or _SAME

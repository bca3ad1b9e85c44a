"""Where is the difference: on which lines of the ledger, in which kernels and collectives?"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import Final, TypeVar

from lostflops.account.facts.kernel_names import short
from lostflops.account.ledger.lines import LINES
from lostflops.core.results import Field, Table, Value
from lostflops.core.units import format_ns
from lostflops.explain.compare.account import Account, CollectiveKind, LineUse
from lostflops.explain.compare.change import SMALLEST

MOST_KERNELS: Final = 10
"""A terminal shows this many; a page has room for more."""
MOST_SIZES: Final = 200
_ALIKE: Final = 0.05
"""Calls, or the time of a call, must differ by more than this part to be named."""
_SEEN: Final = 0.0005
"""A difference is listed if it is at least this part of a step."""
_PLAIN: Final = 0.01
"""It must be at least this part of a step if neither calls nor their times differ by much."""
_SAME: Final = "about the same"
Key = TypeVar("Key", str, CollectiveKind)


def lines(before: Account, after: Account) -> Table:
    """Tabulate lines in whole ns. They sum to the step, and differences to the difference of the steps."""
    old, new = round_to_sum(before.lines), round_to_sum(after.lines)
    step = sum(old.values()), sum(new.values())
    rows = [_line("step", *step, step)]
    rows += sorted(
        (_line(line, old[line], new[line], step) for line in LINES if old[line] or new[line]),
        key=lambda row: -abs(int(row[3] or 0)),
    )
    fields = (
        Field("line"),
        Field("before_ns", "ns", "A"),
        Field("after_ns", "ns", "B"),
        Field("delta_ns", "ns", "difference", has_bars=True),
        Field("share", "share", "of A's step"),
        Field("of_difference", "share", "of difference"),
    )
    return Table("lines", "Where the difference is, per profiled step of a rank", fields, (*rows[1:], rows[0]))


def _line(name: str, old: int, new: int, step: tuple[int, int]) -> tuple[Value, ...]:
    """Return a row: times, their difference, and its shares of a step of A and of the difference of the steps. The last
    is None if steps differ by less than is ever reported: parts of almost nothing say nothing."""
    whole = step[1] - step[0]
    of_difference = (new - old) / whole if whole and abs(whole) >= SMALLEST * step[0] else None
    return name, old, new, new - old, (new - old) / (step[0] or 1), of_difference


def round_to_sum(parts: Mapping[str, float]) -> dict[str, int]:
    """Round parts to whole numbers that sum to their rounded sum: the largest remainders are rounded up.

    >>> round_to_sum({"compute": 1.4, "copy": 1.4, "comm.wait": 0.2})
    {'compute': 2, 'copy': 1, 'comm.wait': 0}
    """
    whole = {name: floor(part) for name, part in parts.items()}
    missing = round(sum(parts.values())) - sum(whole.values())
    for name in sorted(parts, key=lambda name: whole[name] - parts[name])[:missing]:
        whole[name] += 1
    return whole


def mostly(before: Account, after: Account) -> str:
    """Name the line that makes most of the difference."""
    deltas = {line: after.lines[line] - before.lines[line] for line in LINES}
    whole = sum(deltas.values())
    line = max(deltas, key=lambda line: deltas[line] * whole)
    own = f"Most of it is {line}: {format_ns(round(deltas[line]))}"
    if abs(deltas[line]) > abs(whole):
        return f"{own} per profiled step; other lines reduce that to {format_ns(round(whole))}."
    return f"{own} of {format_ns(round(whole))} per profiled step."


def kernels(before: Account, after: Account, most: int = MOST_KERNELS) -> Table:
    """Tabulate the kernels that changed, the largest difference first."""
    rows = _list_differences(before.kernels, after.kernels, before.step_ns)
    fields = (
        Field("short", label="kernel or op"),
        Field("name", shown=False),
        *_FIELDS,
    )
    shown = tuple((short(name), name, *rest) for name, rest in rows[:most])
    return Table("kernels", "Kernels and ops that changed", fields, shown, len(rows) - len(shown))


def collectives(before: Account, after: Account) -> Table:
    """Tabulate the collectives that changed, by operation and group size."""
    old, new = before.collectives, after.collectives
    fields = (
        Field("collective"),
        *_FIELDS,
        Field("before_bytes", "bytes", shown=False),
        Field("after_bytes", "bytes", shown=False),
    )
    rows = tuple((name, *rest, *_sizes(name, old, new)) for name, rest in _list_differences(old, new, before.step_ns))
    return Table("collectives", "Collectives that changed, including waits", fields, rows)


def collective_sizes(before: Account, after: Account, most: int = MOST_SIZES) -> Table:
    """Tabulate the collectives that changed, by operation, group size and size of a call: other buckets, for example,
    are gone and new."""
    rows = _list_differences(before.kinds, after.kinds, before.step_ns)
    fields = (Field("op"), Field("ranks", "count", "group size"), Field("bytes", "bytes", "size"), *_FIELDS)
    shown = tuple((kind.op, kind.ranks, kind.size, *rest) for kind, rest in rows[:most])
    title = "Collectives that changed, by size of a call"
    return Table("collective_sizes", title, fields, shown, len(rows) - len(shown))


_FIELDS: Final = (
    Field("change"),
    Field("before_calls", "rate", "calls A"),
    Field("after_calls", "rate", "calls B"),
    Field("before_ns", "ns", "A"),
    Field("after_ns", "ns", "B"),
    Field("delta_ns", "ns", "difference", has_bars=True),
)


def _sizes(name: str, before: Mapping[str, LineUse], after: Mapping[str, LineUse]) -> tuple[int, int]:
    return round(before.get(name, LineUse()).size), round(after.get(name, LineUse()).size)


def _list_differences(
    before: Mapping[Key, LineUse], after: Mapping[Key, LineUse], step_ns: float
) -> list[tuple[Key, tuple[Value, ...]]]:
    """List differences, the largest first, without those that are a negligible part of a step."""
    found: list[tuple[int, Key, tuple[Value, ...]]] = []
    for name in before.keys() | after.keys():
        old, new = before.get(name, LineUse()), after.get(name, LineUse())
        word = describe_change(old, new)
        if abs(new.ns - old.ns) >= (_PLAIN if word == _SAME else _SEEN) * step_ns:
            delta = round(new.ns) - round(old.ns)
            found.append((delta, name, (word, old.calls, new.calls, round(old.ns), round(new.ns), delta)))
    return [(name, row) for _, name, row in sorted(found, key=lambda one: (-abs(one[0]), str(one[1])))]


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

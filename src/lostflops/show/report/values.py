"""Values as people read them, by their units: shared by all renderers for people."""

import re
from collections.abc import Sequence

from lostflops.core.results import Finding, Unit, Value
from lostflops.core.units import format_bytes, format_flop, format_flops, format_ns, format_share, format_time
from lostflops.show.report.printable import printable as _clean

MOST_VALUES = 8
SMALLEST_RATE = 0.001

_INTEGER_FORMATS = {
    "ns": format_ns,
    "bytes": format_bytes,
    "flop": format_flop,
    "flops": format_flops,
    "time": format_time,
    "count": "{:,}".format,
}
_RATES = ("rate", "gbs")
_STEPS = re.compile(r"--steps \d+:(\d+)")


def format_value(value: Value, unit: Unit) -> str:
    """Format a value as people read it.

    >>> format_value(1_500_000, "ns"), format_value(0.25, "share"), format_value(None, "bytes"), format_value(12345, "")
    ('1.50 ms', '25.0%', '-', '12345')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and unit in _INTEGER_FORMATS:
        return _INTEGER_FORMATS[unit](value)
    if isinstance(value, int | float) and unit == "share":
        return format_share(value)
    if isinstance(value, int | float) and unit in _RATES:
        return _format_rate(value)
    if isinstance(value, float):
        return f"{value:.10g}"
    return _clean(str(value))


def _format_rate(value: float) -> str:
    """Format a number per second or a ratio.

    >>> _format_rate(1234567.8), _format_rate(23.789), _format_rate(0.00002), _format_rate(0)
    ('1,234,568', '23.8', '<0.001', '0')
    """
    if 0 < value < SMALLEST_RATE:
        return f"<{SMALLEST_RATE:g}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def format_values(values: Sequence[Value], unit: Unit) -> str:
    """Format several values; consecutive numbers become a range.

    >>> format_values((0, 1, 2, 3, 8), ""), format_values(("a", "b"), ""), format_values((), "")
    ('0-3, 8', 'a, b', '-')
    """
    runs: list[list[Value]] = []
    for value in values:
        last = runs[-1][-1] if runs else None
        if isinstance(value, int) and isinstance(last, int) and value == last + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    texts = [
        f"{format_value(run[0], unit)}-{format_value(run[-1], unit)}" if len(run) > 1 else format_value(run[0], unit)
        for run in runs
    ]
    if len(texts) > MOST_VALUES:
        texts = [*texts[:MOST_VALUES], f"... {len(values):,} in all"]
    return ", ".join(texts) or "-"


def format_saving(finding: Finding) -> str:
    """Describe what the fix saves, and how we know."""
    saving = finding.saving
    if saving is None:
        return finding.saves
    parts = [finding.saves, finding.step_times, format_hours(finding) if saving.is_gain else ""]
    return f"{', '.join(filter(None, parts))}; based on {_clean(saving.source)}"


def format_hours(finding: Finding) -> str:
    """Describe what the fix saves in a day of training, in rank-hours and money."""
    money = "" if finding.usd is None else f" (${finding.usd:,.0f})"
    return f"{finding.rank_hours:,.1f} rank-hours a day{money}"


def label_saving(finding: Finding) -> str:
    return "may save" if finding.is_suspected else "saves"


def format_doubt(finding: Finding) -> str:
    """Say why the finding is only suspected, and what to record; empty if it is found."""
    steps = _STEPS.search(finding.record)
    how = f"Record {steps[1]} steps" if steps else "Record with"
    record = f" {how}: lostflops run {finding.record} -- COMMAND" if finding.record else ""
    return f"{_clean(finding.doubt)}{record}" if finding.is_suspected else ""


def format_heading(finding: Finding) -> str:
    return ("Suspected: " if finding.is_suspected else "") + _clean(finding.what)

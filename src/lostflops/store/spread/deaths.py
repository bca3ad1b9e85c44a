"""How a worker process ended, as far as it was observed: by a signal, with an exit code, or without memory."""

from __future__ import annotations

import signal
from typing import Final

from lostflops.core.resources import total_memory
from lostflops.core.units import format_bytes

_NEAR: Final = 0.8
"""Share of the memory limit from which a killed process is taken to have reached it."""


def describe_death(code: int, peak: int, kills_before: int, kills_after: int) -> str:
    """Return how a process ended: `code` as of `subprocess`, `peak` is its largest memory in bytes, 0 if unknown.

    >>> describe_death(7, 0, 0, 0), describe_death(-11, 0, 0, 0)
    ('exit code 7', 'killed by SIGSEGV')
    >>> describe_death(-9, 3 << 30, 4, 5)
    'killed by SIGKILL when the kernel was out of memory, after using 3.22 GB'
    """
    if code >= 0:
        return f"exit code {code}"
    number = -code
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    used = f", after using {format_bytes(peak)}" if peak else ""
    if number == signal.SIGKILL and kills_after > kills_before:
        return f"killed by {name} when the kernel was out of memory{used}"
    limit = total_memory()
    if number == signal.SIGKILL and peak >= _NEAR * limit:
        return f"killed by {name}{used} of {format_bytes(limit)}: out of memory"
    return f"killed by {name}"

"""What torch.compile compiled and why, from its own metrics: called from where, how long, and which guard failed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from lostflops.collect.capture import COMPILATION
from lostflops.collect.sampler import place

_MOST: Final = 200
"""Compilations that are recorded of a process: a job that compiles in every step has said enough by then."""
_CONSTANT: Final = re.compile(r"==.*|'[^']*'|\"[^\"]*\"")
"""Parts of a guard that may hold a value of the program; sizes in `size mismatch` are none."""
_FRAME: Final = re.compile(r"Line: (?P<line>\d+), Name: (?P<function>\S+), Filename: (?P<file>.+)")


class Compilations:
    """Reads what is new in torch's counters, and in its metrics, of which it keeps the last 64."""

    def __init__(self) -> None:
        self.count = 0
        """What dynamo has counted so far."""
        self._seen: set[tuple[str, bool]] = set()

    def has_new(self) -> bool:
        """Return whether dynamo has compiled anything since the last call; dynamo is not imported for this."""
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None) or {}
        before, self.count = self.count, sum(counters["stats"].values()) if "stats" in counters else 0
        return self.count > before

    def take(self, step: int) -> Iterator[dict[str, Any]]:
        """Yield a fact for each compilation that ended since the last call."""
        metrics = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", list)
        for one in metrics():
            key = str(getattr(one, "compile_id", "")), bool(getattr(one, "is_forward", True))
            if key in self._seen or len(self._seen) >= _MOST:
                continue
            self._seen.add(key)
            yield {"kind": "job", "key": COMPILATION, "value": {"step": step, **_describe(one)}}


def _describe(one: Any) -> dict[str, Any]:
    micros, start, reason = (getattr(one, name, None) for name in ("duration_us", "start_time_us", "recompile_reason"))
    return {
        "id": str(getattr(one, "compile_id", "")),
        "is_forward": bool(getattr(one, "is_forward", True)),
        "stack": _stack(getattr(one, "stack_trace", None)),
        "start": start * 1000 if isinstance(start, int) else None,
        "ns": micros * 1000 if isinstance(micros, int) else None,
        "cached": bool(getattr(one, "inductor_fx_local_cache_hit_count", 0)),
        "reason": clean(reason) if isinstance(reason, str) else None,
        "failed": bool(getattr(one, "fail_type", None)),
    }


def _stack(lines: object) -> str | None:
    """Return the stack of a call that was compiled, as samples have it."""
    found = [_FRAME.fullmatch(str(line)) for line in lines] if isinstance(lines, list) else []
    return ";".join(f"{one['function']} {place(one['file'])}:{one['line']}" for one in found if one) or None


def clean(reason: str) -> str:
    """Return why a guard failed without what may be a value of the program.

    >>> clean("0/0: tensor 'x' size mismatch at index 0. expected 8, actual 4")
    "tensor 'x' size mismatch at index 0. expected 8, actual 4"
    >>> clean("0/1: L['self'].mode == 'secret'")
    'L[...].mode'
    """
    text = reason.split("\n", maxsplit=1)[0].partition(": ")[2] or reason
    if "mismatch" not in text:
        text = _CONSTANT.sub(lambda found: "" if found[0].startswith("==") else "...", text).strip()
    return text[:_MOST]

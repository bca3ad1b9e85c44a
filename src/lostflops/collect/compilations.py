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
_MISMATCH: Final = re.compile(
    r"tensor '(?P<name>[A-Za-z_]\w*)[^:]*' (?P<what>(?:size|stride|dtype|rank|device|requires_grad) mismatch"
    r"(?: at index \d+)?\. expected [\w:\[\], -]{1,60}, actual [\w:\[\], -]{1,60})"
)
_GUARDED: Final = re.compile(r"L\['(?P<name>[A-Za-z_]\w*)'\]")
"""Guards, as far as they are known to hold no value of the program."""
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
    """Return why a guard failed without what may be a value of the program: of a tensor its sizes, of all else what was
    compared, by the outermost name.

    >>> clean("0/0: tensor 'x' size mismatch at index 0. expected 8, actual 4")
    "tensor 'x' size mismatch at index 0. expected 8, actual 4"
    >>> clean("0/0: tensor 'batch['secret']' dtype mismatch. expected Float, actual Double")
    "tensor 'batch' dtype mismatch. expected Float, actual Double"
    >>> clean("0/1: L['self'].mode == 'secret'"), clean("0/1: not a guard")
    ("guard on L['self']", 'guard')
    """
    text = reason.partition("\n")[0]
    if found := _MISMATCH.search(text):
        return f"tensor '{found['name']}' {found['what']}"
    found = _GUARDED.search(text)
    return f"guard on L['{found['name']}']" if found else "guard"
